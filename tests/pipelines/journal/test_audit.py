"""An action is recorded before it begins and when it has ended, without values of rows."""

import orjson
import pytest

from headwater.core_log.foundation.errors import ConfigError, DecodeError
from headwater.pipelines.journal.audit import HOME, VIA, audit, read_actions
from headwater.pipelines.journal.commits import small_batch
from headwater.pipelines.journal.internal_topics import read_decided
from tests.memory_log import MemoryLog


async def test_an_action_is_known_while_it_runs_and_when_it_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = MemoryLog()
    monkeypatch.setenv(VIA, "console")

    async with audit(log, "rebuild", "shop/orders", {"swap": True, "sink": None}):
        [running] = await read_actions(log)
    [ended] = await read_actions(log)

    assert (running.outcome, running.ended_ms) == ("started", None)
    assert (ended.outcome, ended.problem, ended.id) == ("done", "", running.id)
    assert ended.ended_ms is not None and ended.ended_ms >= ended.started_ms
    assert (ended.command, ended.target, ended.via) == ("rebuild", "shop/orders", "console")
    assert ended.options == {"swap": "True"}
    assert ended.user and ended.host


async def test_a_failed_action_has_its_problem_and_no_facts() -> None:
    log = MemoryLog()

    with pytest.raises(ConfigError):
        async with audit(log, "verify", "shop"):
            raise ConfigError("the key is unknown", key="secret")
    async with audit(log, "verify", "shop") as outcome:
        outcome.problem = "2 keys differ"

    newest, oldest = await read_actions(log)
    assert (oldest.outcome, oldest.problem) == ("failed", "the key is unknown")
    assert (newest.outcome, newest.problem) == ("failed", "2 keys differ")
    stored = [value async for columns in read_decided(log, HOME) for value in columns.values]
    assert all(b"secret" not in value.as_py() for value in stored)
    assert all(orjson.loads(value.as_py())["version"] == 1 for value in stored)


async def test_a_log_without_an_audit_has_no_actions() -> None:
    assert await read_actions(MemoryLog()) == []


async def test_an_action_of_a_newer_version_is_not_passed_over() -> None:
    log = MemoryLog()
    async with audit(log, "verify", "shop"):
        pass
    await log.append(HOME, small_batch([(b"id", b'{"version": 2}')], now_ms=1))

    with pytest.raises(DecodeError, match="newer version"):
        await read_actions(log)
