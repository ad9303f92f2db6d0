"""Our quotas and Kafka's own hold the same random use back for the same time, and are set alike."""

import asyncio
import subprocess
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest

from headwater.core_log.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlteredEntity,
    QuotaAlteration,
    QuotaOperation,
)
from headwater.core_log.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    QuotaFilterComponent,
)
from tests.compat.java_programs import JAVA, RUN_S_MAX, compile_sources, kafka_jars
from tests.compat.test_administration_beside_kafka import Node
from tests.contract.apache_kafka import run_apache_kafka
from tests.core_log.broker.in_memory import ask, started
from tests.core_log.security.quota_use import answers, random_use
from tests.fakes import MemoryFiles

pytestmark = [pytest.mark.kafka, pytest.mark.compat]

WORLDS = 1_000


def test_random_use_waits_as_long_as_with_kafka(tmp_path: Path) -> None:
    path = f"{kafka_jars()}/*"
    compile_sources(Path("tests/compat/java_quotas"), tmp_path, path)
    seed = Random().randrange(1 << 32)
    random = Random(seed)
    lines = [line for _ in range(WORLDS) for line in random_use(random)]
    options = ["-Dorg.slf4j.simpleLogger.defaultLogLevel=off", "-Dstdout.encoding=UTF-8"]

    done = subprocess.run(
        [*JAVA, *options, "-cp", f"{tmp_path}:{path}", "Throttles"],
        input="\n".join(lines) + "\n",
        encoding="utf-8",
        capture_output=True,
        check=True,
        timeout=RUN_S_MAX,
    )

    told = zip(lines, done.stdout.splitlines(), answers(lines), strict=True)
    different = [(line, theirs, ours) for line, theirs, ours in told if theirs != ours]
    assert not different, f"seed {seed}: {len(different)} {different[:8]}"


def entity(*parts: tuple[str, str | None]) -> list[AlteredEntity]:
    return [AlteredEntity(entity_type=kind, entity_name=name) for kind, name in parts]


def alter(
    *parts: tuple[str, str | None], validate_only: bool = False, **values: float | None
) -> AlterClientQuotasRequest:
    ops = [
        QuotaOperation(key=key, value=value or 0.0, remove=value is None)
        for key, value in values.items()
    ]
    entry = QuotaAlteration(entity=entity(*parts), ops=ops)
    return AlterClientQuotasRequest(entries=[entry], validate_only=validate_only)


def describe(
    *components: tuple[str, int, str | None], strict: bool = False
) -> DescribeClientQuotasRequest:
    return DescribeClientQuotasRequest(
        components=[
            QuotaFilterComponent(entity_type=kind, match_type=match_type, match=name)
            for kind, match_type, name in components
        ],
        strict=strict,
    )


ALICE, APP, ANYBODY, ANY_APP = (
    ("user", "alice"),
    ("client-id", "app"),
    ("user", None),
    ("client-id", None),
)
TWICE = alter(ALICE, producer_byte_rate=2e6).entries[0]
SAME_KEY = QuotaAlteration(
    entity=entity(("user", "carol")),
    ops=[QuotaOperation(key="producer_byte_rate", value=each) for each in (1.0, 2.0)],
)
REQUESTS = (
    alter(ALICE, producer_byte_rate=1e6, consumer_byte_rate=2e6),
    alter(ALICE, APP, request_percentage=12.5),
    alter(APP, ALICE, controller_mutation_rate=0.5),
    alter(ANYBODY, producer_byte_rate=5.0),
    alter(ANYBODY, ANY_APP, producer_byte_rate=6.0),
    alter(ANY_APP, consumer_byte_rate=7.0),
    alter(("ip", "10.0.0.1"), connection_creation_rate=3.0),
    alter(("ip", None), connection_creation_rate=4.0),
    alter(ALICE, consumer_byte_rate=None),
    alter(ALICE, consumer_byte_rate=None),
    alter(("user", "new"), validate_only=True, producer_byte_rate=1.0),
    alter(),
    alter(("group", "a")),
    alter(("user", ""), producer_byte_rate=1.0),
    alter(("ip", "10.0.0.1"), ALICE, producer_byte_rate=1.0),
    alter(("ip", "not an address"), connection_creation_rate=3.0),
    alter(ALICE, no_such_rate=1.0),
    alter(ALICE, no_such_rate=None),
    alter(ALICE, connection_creation_rate=1.0),
    alter(("ip", "10.0.0.1"), producer_byte_rate=1.0),
    alter(ALICE, producer_byte_rate=0.0),
    alter(ALICE, producer_byte_rate=-1.0),
    alter(ALICE, producer_byte_rate=1.5),
    alter(ALICE, producer_byte_rate=1e20),
    alter(ALICE, request_percentage=1.5, producer_byte_rate=0.0),
    alter(("ip", "10.0.0.1"), connection_creation_rate=1e10),
    AlterClientQuotasRequest(entries=[TWICE, TWICE]),
    AlterClientQuotasRequest(entries=[SAME_KEY]),
    describe(),
    describe(strict=True),
    describe(("user", 0, "alice")),
    describe(("user", 0, "alice"), strict=True),
    describe(("user", 1, None)),
    describe(("user", 2, None)),
    describe(("user", 2, None), ("client-id", 0, "app")),
    describe(("client-id", 2, None), strict=True),
    describe(("ip", 2, None)),
    describe(("ip", 0, "10.0.0.1")),
    describe(("ip", 0, "10.0.0.1"), ("user", 2, None)),
    describe(("user", 0, "nobody")),
    describe(("user", 0, None)),
    describe(("user", 1, "x")),
    describe(("user", 2, "x")),
    describe(("user", 3, None)),
    describe(("", 0, "x")),
    describe(("user", 0, "x"), ("user", 2, None)),
    describe(("group", 0, "x")),
)


def gist(answer: Any) -> list[Any]:
    """Returns codes, messages, entities and values; their order is free."""
    said = [
        (
            getattr(each, "error_code", None),
            getattr(each, "error_message", None),
            sorted((part.entity_type, part.entity_name or "") for part in each.entity),
            sorted((value.key, value.value) for value in getattr(each, "values", ())),
        )
        for each in answer.entries or ()
    ]
    whole = (getattr(answer, "error_code", None), getattr(answer, "error_message", None))
    return [(*whole, answer.entries is None), *sorted(said, key=str)]


async def test_quotas_are_set_and_described_as_by_kafka(tmp_path: Path) -> None:
    broker = await started(MemoryFiles())
    with run_apache_kafka(tmp_path) as address, closing(Node(address)) as node:
        answers = []
        for request in REQUESTS:
            theirs = await asyncio.to_thread(node.ask, request)
            if isinstance(request, AlterClientQuotasRequest):
                await asyncio.sleep(0.3)  # until Kafka's broker shows what its controller decided
            answers.append((request, gist(theirs), gist(await ask(broker, request))))

    assert [each for each in answers if each[1] != each[2]] == []
    await broker.close()
