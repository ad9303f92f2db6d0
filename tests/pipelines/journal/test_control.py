"""What people want of a pipeline is in the log: it survives restarts, and tasks follow it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headwater.connectors.source import Control
from headwater.core_log.embedded import EmbeddedLog
from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.foundation.settings import BrokerSettings
from headwater.core_log.model.table_schema import TableId
from headwater.pipelines.journal import control
from headwater.pipelines.journal.control import (
    DesiredState,
    DesiredTaskState,
    Signal,
    control_home,
    forget_control,
    pause_signal,
    read_desired,
    write_control,
)

NOW_MS = 1_700_000_000_000
ORDERS = "public.orders"


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[EmbeddedLog]:
    log = await EmbeddedLog.open(BrokerSettings(data=tmp_path / "data", listen="127.0.0.1:0"))
    yield log
    await log.close()


def paused(table: str = "", *, id: str = "1") -> Signal:
    return pause_signal(table=table, is_paused=True, id=id)


def resumed(table: str = "", *, id: str = "2") -> Signal:
    return pause_signal(table=table, is_paused=False, id=id)


async def write(log: EmbeddedLog, *signals: Signal, pipeline: str = "shop") -> None:
    await write_control(log, pipeline, signals, now_ms=NOW_MS)


async def test_a_pipeline_on_a_new_log_has_no_desired_state(log: EmbeddedLog) -> None:
    assert await read_desired(log, "shop") == DesiredTaskState("shop")


async def test_the_last_command_counts(log: EmbeddedLog) -> None:
    await write(log, paused(), paused(ORDERS, id="3"))
    await write(log, resumed())

    now = await read_desired(log, "shop")

    assert not now.is_paused
    assert now.paused_tables == {ORDERS}


async def test_a_pause_survives_a_restart_of_the_log(tmp_path: Path) -> None:
    settings = BrokerSettings(data=tmp_path / "data", listen="127.0.0.1:0")
    first = await EmbeddedLog.open(settings)
    await write(first, paused())
    await first.close()

    second = await EmbeddedLog.open(settings)
    now = await read_desired(second, "shop")
    await second.close()

    assert now.is_paused
    assert now.signals[0].at_ms == NOW_MS


async def test_a_paused_pipeline_pauses_all_of_its_tables_and_no_other(log: EmbeddedLog) -> None:
    neighbours = [name for name in map(str, range(500)) if control_home(name) == home]
    await write(log, paused())

    found = [await read_desired(log, name) for name in neighbours[:1]]

    assert (await read_desired(log, "shop")).is_paused
    assert found == [DesiredTaskState(neighbours[0])], "they share a partition, but no signals"


home = control_home("shop")


async def test_a_follower_hears_of_a_new_wish(log: EmbeddedLog) -> None:
    state = DesiredState(log, "shop")
    before = await state.load()
    following = asyncio.ensure_future(state.follow())

    await write(log, paused(ORDERS))
    first = await state.wait_for_change(before)
    await write(log, resumed(ORDERS))
    second = await state.wait_for_change(first)
    following.cancel()

    assert first.paused_tables == {ORDERS}
    assert second.paused_tables == frozenset()
    assert state.now is second


async def test_a_wish_in_a_transaction_that_is_still_open_is_waited_for(
    log: EmbeddedLog,
) -> None:
    await write(log, paused())
    writer = await log.writer("somebody")
    async with writer.transaction() as transaction:
        for batch in control.encode_signals("shop", [resumed()], now_ms=NOW_MS):
            await transaction.append(home, batch)
        loading = asyncio.ensure_future(read_desired(log, "shop"))
        await log.bounds([home])  # by now it has seen how far the partition reaches

    assert not (await loading).is_paused


async def test_a_source_is_given_what_is_its_business(log: EmbeddedLog) -> None:
    signal = Signal("snapshot", ORDERS, "7", {"chunk_rows": "1000"})
    await write(log, paused(), signal, Signal(control.RESTART, "", "8"))

    (found,) = (await read_desired(log, "shop")).controls()

    assert found == Control("7", "snapshot", TableId("public", "orders"), {"chunk_rows": "1000"})


async def test_the_control_of_a_whole_pipeline_names_no_table(log: EmbeddedLog) -> None:
    await write(log, Signal("snapshot", "", "7"))

    (found,) = (await read_desired(log, "shop")).controls()

    assert found.table is None


@pytest.mark.parametrize(
    ("signals", "expected"),
    [
        ([], ""),
        ([paused(ORDERS)], ""),
        ([resumed(ORDERS, id="a")], "a"),
        ([resumed("", id="a")], "a"),
        ([resumed("public.items", id="a")], ""),
        ([resumed(ORDERS, id="a"), Signal(control.RESTART, "", "b")], "b"),
        ([Signal(control.RESTART, "", "b"), resumed(ORDERS, id="a")], "a"),
    ],
)
def test_a_table_begins_afresh_with_its_own_or_its_pipelines_newest_wish(
    signals: list[Signal], expected: str
) -> None:
    assert DesiredTaskState.of("shop", signals).fresh_start(ORDERS) == expected


async def test_a_forgotten_command_is_wanted_no_more(log: EmbeddedLog) -> None:
    await write(log, paused(), Signal("snapshot", ORDERS, "7"))
    await write(log, paused(), pipeline="other")

    count = await forget_control(log, "shop", now_ms=NOW_MS)

    assert count == 2
    assert await read_desired(log, "shop") == DesiredTaskState("shop")
    assert (await read_desired(log, "other")).is_paused


async def test_a_wish_of_a_newer_headwater_is_not_guessed_at(
    log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "FORMAT_VERSION", 2)
    await write(log, paused())
    monkeypatch.undo()

    with pytest.raises(DecodeError, match="newer Headwater"):
        await read_desired(log, "shop")
