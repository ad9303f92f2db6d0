"""Who may not do something is told so as by Kafka, for every API, and learns nothing else."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from headwater.core_log.broker.authorization import OPEN, PARTS, WHOLE
from headwater.core_log.broker.dispatch import load_handlers
from headwater.core_log.broker.lifecycle import RunningBroker
from headwater.core_log.client.settings import KafkaSettings
from headwater.core_log.embedded import InProcessChannel
from headwater.core_log.foundation.settings import BrokerSettings
from headwater.core_log.links.rpc import Rpc
from headwater.core_log.security.acls import Authorizer
from headwater.core_log.security.principal import ANONYMOUS, Principal
from tests.core_log.broker.access_cases import CASES, Case, Grant, denials, show
from tests.core_log.broker.access_requests import Facts
from tests.core_log.broker.access_world import Ask, grants_without, play, prepare

GOLDEN = Path("tests/golden/authorizer/answers.txt")
SERVED = load_handlers()


class World:
    """A broker with an authorizer, and connections of anybody to it."""

    def __init__(self, running: RunningBroker) -> None:
        self.running, self.authorizer = running, Authorizer([Principal("root")])
        running.broker.authorizer = self.authorizer

    async def connect(self, user: str | None) -> Ask:
        server = self.running.server
        channel = InProcessChannel(server, server.address)
        channel.principal = ANONYMOUS if user is None else Principal(user)
        link = Rpc(channel, KafkaSettings(bootstrap=["127.0.0.1:1"]))
        await link.agree()

        def ask(request: Any, version: int | None = None) -> Awaitable[Any]:
            return link.ask(request, version_max=version)

        return ask


async def started(data: Path) -> World:
    settings = BrokerSettings(data=data, listen="127.0.0.1:0", internal_partitions=1)
    return World(await RunningBroker.start(settings))


def test_every_api_is_in_one_table() -> None:
    tables = [*OPEN, *WHOLE, *PARTS]

    assert len(tables) == len(set(tables))
    assert SERVED.keys() <= set(tables)


def test_every_api_that_clients_use_has_a_case() -> None:
    facts = Facts(dict.fromkeys(("orders", "other", "doomed", "doomed by id")))  # type: ignore[arg-type]
    asked = {case.make(facts).api_key for case in CASES}

    of_users = {50, 51}  # test_user_access.py
    assert SERVED.keys() - OPEN - asked - of_users == {52, 53, 54, 56, 58, 59, 62, 63, 67, 82}


async def test_nobody_and_the_wrong_and_the_right_principal_are_answered_as_by_kafka(
    tmp_path: Path,
) -> None:
    """The golden answers are Apache Kafka's (tests/compat/test_access_beside_kafka.py)."""
    world = await started(tmp_path)

    told = await play(world.connect)

    await world.running.stop()
    golden = await asyncio.to_thread(GOLDEN.read_text)
    assert without_creations(told) == without_creations(golden)


def without_creations(text: str) -> list[str]:
    """Leaves out the answers about topics that are created on demand: ours exist at once."""
    return [line for line in text.splitlines() if "right  .topics[automatic" not in line]


@pytest_asyncio.fixture
async def prepared(tmp_path: Path) -> AsyncIterator[tuple[World, Facts]]:
    """Each test has its own, because some cases delete what others ask for."""
    world = await started(tmp_path)
    facts = await prepare(await world.connect("root"))
    yield world, facts
    await world.running.stop()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.replace(" ", "-"))
async def test_each_grant_of_a_case_is_needed(prepared: tuple[World, Facts], case: Case) -> None:
    world, facts = prepared
    request, alice = case.make(facts), await world.connect("alice")
    told = {}
    missing: Grant | None
    for missing in case.grants:
        world.authorizer.use(grants_without(case, missing))
        told[missing] = show(await alice(request, case.version))

    world.authorizer.use(each.acl("User:alice") for each in case.grants)
    answer = await alice(request, case.version)

    assert denials(answer) == 0
    assert show(answer) not in told.values()


@pytest.mark.parametrize("user", [None, "mallory"])
async def test_requests_of_brokers_are_refused_to_all_others(
    prepared: tuple[World, Facts], user: str | None
) -> None:
    world, _ = prepared
    ask = await world.connect(user)

    told = {
        key: (await ask(SERVED[key].request())).error_code
        for key in (52, 53, 54, 56, 58, 59, 62, 63, 67)
    }

    assert set(told.values()) == {31}
