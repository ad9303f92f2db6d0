"""An idle slot moves on while others write, a server at rest is left at rest, and what a slot keeps
is watched and bounded."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pydantic import SecretStr

from headwater.connectors.postgres.settings import PostgresSettings
from headwater.connectors.postgres.slot import heartbeat
from headwater.connectors.postgres.slot.heartbeat import (
    GRACE_MS,
    PREFIX,
    Heartbeat,
    HeartbeatCheck,
    WalBudget,
)
from headwater.connectors.source import Gauge, SourceContext, SourceReport
from headwater.core_log.foundation.errors import PositionLost, SourceRejected
from headwater.core_log.model.changes import ChangeBatch
from tests.connectors.postgres.source_session import story
from tests.databases import Guest
from tests.fakes import SimulatedClock

MIB = 1 << 20


def test_a_warning_comes_first_and_who_catches_up_is_not_stopped() -> None:
    budget = WalBudget(limit=100)
    kept = (79, 80, 90, 150, 160, 140, 145, 141, 50, 85, 110, 110, 111)

    told = [budget.judge(each, now_ms=beat * 30_000) for beat, each in enumerate(kept)]

    assert [each.name for each in told] == [
        "FINE", "NEAR", "FINE", "FINE", "FINE", "FINE", "FINE", "OVER",
        "FINE", "NEAR", "FINE", "FINE", "OVER",
    ]  # fmt: skip


def test_a_budget_without_a_limit_is_never_exceeded() -> None:
    budget = WalBudget(limit=None)

    assert {budget.judge(kept, now_ms=kept) for kept in (1, 1 << 40, 1 << 41)} == {
        HeartbeatCheck.FINE
    }


class Beating:
    """A heartbeat, and what it said."""

    def __init__(self, guest: Guest, **choices: Any) -> None:
        self.guest, self.gauges = guest, list[Gauge]()
        settings = PostgresSettings(url=SecretStr(guest.url), tables=("public.*",), **choices)
        self.clock = SimulatedClock(0)
        context = SourceContext("shop", Path(), self.clock, self._report)
        self.heartbeat = Heartbeat(settings, context, slot="headwater_shop")

    def _report(self, report: SourceReport) -> None:
        assert isinstance(report, Gauge)
        self.gauges.append(report)

    def messages(self) -> int:
        """Heartbeats in the stream so far."""
        guest = self.guest
        guest.execute("SELECT pg_switch_wal()")  # so that all of it is on disk
        found: int = guest.value(
            "SELECT count(*) FROM pg_logical_slot_peek_binary_changes('headwater_shop', NULL, NULL,"
            " 'proto_version', '1', 'publication_names', 'headwater_shop', 'messages', 'true')"
            f" WHERE position('{PREFIX}'::bytea IN data) > 0"
        )
        return found


@pytest.fixture
def slotted(guest: Guest) -> Guest:
    guest.execute("CREATE TABLE orders (id int PRIMARY KEY)", "CREATE TABLE other (id int)")
    guest.publish("orders")
    guest.execute("SELECT pg_create_logical_replication_slot('headwater_shop', 'pgoutput')")
    return guest


WRITE = "INSERT INTO other SELECT generate_series(1, 20000)"


async def test_a_message_goes_into_the_stream_when_others_have_written_and_else_none(
    slotted: Guest,
) -> None:
    beating = Beating(slotted)

    await beating.heartbeat.beat()
    at_first = beating.messages()
    slotted.execute(WRITE)
    await beating.heartbeat.beat()
    for _ in range(3):
        await beating.heartbeat.beat()
    await beating.heartbeat.close()

    assert (at_first, beating.messages()) == (1, 2)


async def test_a_heartbeat_of_zero_writes_nothing_and_watches_all_the_same(slotted: Guest) -> None:
    beating = Beating(slotted, heartbeat="0s")

    slotted.execute(WRITE)
    await beating.heartbeat.beat()
    await beating.heartbeat.close()

    [gauge] = beating.gauges
    assert beating.messages() == 0
    assert (gauge.name, gauge.limit) == ("retained_wal_bytes", 20 << 30)
    assert gauge.value > MIB


async def test_a_heartbeat_beyond_the_budget_warns_stops_or_drops_as_the_file_says(
    slotted: Guest, caplog: pytest.LogCaptureFixture
) -> None:
    async def beats(when_exceeded: str) -> None:
        beating = Beating(
            slotted, slot={"max_retained_wal": "1MiB", "when_exceeded": when_exceeded}
        )
        try:
            for _ in range(3):
                slotted.execute(WRITE)
                await beating.heartbeat.beat()
                beating.clock.advance(40_000)
        finally:
            await beating.heartbeat.close()

    with caplog.at_level(logging.WARNING):
        await beats("warn")
    warned = len(caplog.records)
    with pytest.raises(SourceRejected, match="than `max_retained_wal`") as stopped:
        await beats("stop")
    assert slotted.rows("SELECT FROM pg_replication_slots WHERE slot_name = 'headwater_shop'")
    with pytest.raises(PositionLost, match="and was dropped"):
        await beats("drop")

    assert warned == 2, "nearly, then beyond"
    assert "headwater status" in stopped.value.hint
    assert not slotted.rows("SELECT FROM pg_replication_slots WHERE slot_name = 'headwater_shop'")


async def test_a_connection_that_cannot_be_had_stops_nothing(slotted: Guest) -> None:
    beating = Beating(slotted)
    await beating.heartbeat.beat()

    slotted.execute("ALTER ROLE headwater_guest NOLOGIN",
                    "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
                    " WHERE application_name = 'headwater shop'")  # fmt: skip
    await beating.heartbeat.beat()
    await beating.heartbeat.beat()
    slotted.execute("ALTER ROLE headwater_guest LOGIN")
    await beating.heartbeat.beat()
    await beating.heartbeat.close()

    assert len(beating.gauges) == 2


async def test_a_heartbeat_beside_a_snapshot_watches_and_writes_nothing(slotted: Guest) -> None:
    budget = {"max_retained_wal": "1MiB", "when_exceeded": "stop"}
    beating = Beating(slotted, heartbeat="1ms", slot=budget)
    slotted.execute(WRITE)

    async def rows() -> AsyncGenerator[ChangeBatch, None]:
        while True:
            yield ChangeBatch((), {})
            beating.clock.advance(GRACE_MS)
            await asyncio.sleep(0)

    with pytest.raises(SourceRejected, match="than `max_retained_wal`"):
        async with aclosing(beating.heartbeat.beside(rows())) as batches:
            async for _ in batches:
                pass

    assert beating.messages() == 0


@pytest.mark.parametrize("when_exceeded", ["stop", "drop"])
async def test_the_budget_of_a_paused_pipeline_warns_and_may_drop_the_slot(
    slotted: Guest, caplog: pytest.LogCaptureFixture, when_exceeded: str
) -> None:
    budget = {"max_retained_wal": "1MiB", "when_exceeded": when_exceeded}
    beating = Beating(slotted, heartbeat="1ms", slot=budget)
    watching = asyncio.ensure_future(beating.heartbeat.run_paused())

    while not watching.done() and len(caplog.messages) < 2:
        slotted.execute(WRITE)
        beating.clock.advance(40_000)
        await asyncio.sleep(0.01)
    watching.cancel()
    await asyncio.wait([watching])

    kept = slotted.rows("SELECT FROM pg_replication_slots WHERE slot_name = 'headwater_shop'")
    assert beating.gauges[-1].value > MIB
    assert all("max_retained_wal" in each for each in caplog.messages[1:])
    if when_exceeded == "stop":
        assert kept and watching.cancelled()
    else:
        assert not kept and isinstance(watching.exception(), PositionLost)


async def test_a_paused_pipeline_without_a_slot_is_left_alone(
    guest: Guest, caplog: pytest.LogCaptureFixture
) -> None:
    beating = Beating(guest, heartbeat="1ms")

    watching = asyncio.ensure_future(beating.heartbeat.run_paused())
    await asyncio.wait([watching], timeout=0.2)
    watching.cancel()
    await asyncio.wait([watching])

    assert watching.cancelled() and not caplog.messages and not beating.gauges


@pytest.mark.parametrize("turns", range(6))
async def test_a_heartbeat_that_is_asked_to_look_and_cancelled_at_once_ends(
    slotted: Guest, turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`asyncio.wait_for` of Python 3.11 forgets the cancellation, and the source waits for ever."""
    beating = Beating(slotted, heartbeat="1h")

    async def beat(*, emits: bool) -> None:
        assert emits

    monkeypatch.setattr(beating.heartbeat, "beat", beat)
    running = asyncio.create_task(beating.heartbeat.run())
    await turn(10)

    beating.heartbeat.look_soon()
    await turn(turns)
    running.cancel()
    await turn(20)

    assert running.cancelled()


async def turn(times: int) -> None:
    for _ in range(times):
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("action", "error"), [("drop", PositionLost), ("stop", SourceRejected)], ids=["drop", "stop"]
)
async def test_a_source_that_streams_ends_with_what_was_done_of_its_slot(
    slotted: Guest, action: str, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "GRACE_MS", 0)
    budget = {"max_retained_wal": "1MiB", "when_exceeded": action}

    async with story(slotted, tables=["public.orders"], heartbeat="100ms", slot=budget) as told:
        with psycopg.connect(slotted.owner) as late:
            late.execute("INSERT INTO orders VALUES (1)")  # holds back what the server keeps
            slotted.execute(WRITE, WRITE)
            with pytest.raises(error, match="than `max_retained_wal`"):
                while not isinstance(found := await told.batches.get(), Exception):
                    continue
                raise found

    left = slotted.rows("SELECT FROM pg_replication_slots WHERE slot_name = 'headwater_shop'")
    assert bool(left) is (action == "stop")
