"""`headwater cluster acls` says who may do what, and a broker with users obeys it."""

import asyncio
import signal
from pathlib import Path

import pytest

from headwater.core_log.client import KafkaLog, KafkaSettings
from headwater.core_log.foundation.errors import HeadwaterError
from headwater.core_log.foundation.settings import SecuritySettings
from headwater.core_log.model.log import TopicPartition
from headwater.pipelines.terminal import exit_codes
from tests.pipelines.conftest import Headwater
from tests.pipelines.run_process import address_of, end, start_broker


@pytest.mark.slow
def test_a_user_may_do_what_a_rule_allows(headwater: Headwater, tmp_path: Path) -> None:
    data, password = tmp_path / "data", tmp_path / "password"
    password.write_text("a-password\n")
    broker = start_broker(data, "--set", "security.sasl=SCRAM-SHA-512")
    try:
        headwater("cluster", "users", "add", "alice", "--password-file", password, "--data", data)
        headwater("topics", "create", "orders", "--data", data)
        headwater("topics", "create", "other", "--data", data)
        rule = ("--principal", "User:alice", "--topic", "ord", "--prefixed", "--operation", "read")

        added = headwater("cluster", "acls", "add", *rule, "--data", data)
        listed = headwater("cluster", "acls", "list", "--data", data)
        allowed = asyncio.run(may_read(address_of(data), "orders"))
        refused = asyncio.run(may_read(address_of(data), "other"))
        removed = headwater("cluster", "acls", "remove", *rule, "--yes", "--data", data)
        afterwards = asyncio.run(may_read(address_of(data), "orders"))
    finally:
        end(broker, signal.SIGTERM)

    assert added.code == exit_codes.OK, added.remarks
    assert listed.data.split()[-7:] == [
        "topic",
        "ord",
        "prefixed",
        "User:alice",
        "*",
        "read",
        "allow",
    ]
    assert (allowed, refused, afterwards) == (True, False, False)
    assert removed.data.strip() == "removed 1 rule"
    audit = (data / "audit.log").read_text()
    assert "AlterUserScramCredentials" in audit
    assert "CreateAcls" in audit
    assert "a-password" not in audit


async def may_read(address: str, topic: str) -> bool:
    security = SecuritySettings.model_validate(
        {"protocol": "SASL_PLAINTEXT", "user": "alice", "password": "a-password"}
    )
    log = KafkaLog(KafkaSettings(bootstrap=[address], security=security, retry_for_ms=2_000))
    try:
        await log.bounds([TopicPartition(topic, 0)])
    except HeadwaterError:
        return False
    finally:
        await log.close()
    return True


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--principal", "alice", "--topic", "t"], "The principal must be TYPE:NAME"),
        (["--principal", "User:alice"], "no resource is named"),
    ],
)
def test_a_rule_that_cannot_be_is_refused_in_words(
    headwater: Headwater, tmp_path: Path, arguments: list[str], problem: str
) -> None:
    ran = headwater("cluster", "acls", "add", *arguments, "--data", tmp_path)

    assert ran.code == exit_codes.INVALID
    assert problem in ran.remarks
