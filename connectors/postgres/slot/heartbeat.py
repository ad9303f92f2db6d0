"""Advances the slot of an idle source, and watches how much write-ahead log the slot retains."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from typing import NoReturn

import psycopg
from psycopg import sql

from headwater.connectors.postgres.publication.monitor import CaptureMonitor
from headwater.connectors.postgres.server.connection import PgConnection, connect, in_our_words
from headwater.connectors.postgres.server.lsn import lsn_text, parse_lsn
from headwater.connectors.postgres.settings import PostgresSettings, SlotSettings
from headwater.connectors.postgres.slot import replication_slot
from headwater.connectors.source import Gauge, SourceContext
from headwater.core_log.client.gather import let_go
from headwater.core_log.foundation.errors import (
    HeadwaterError,
    PositionLost,
    SourceRejected,
    SourceUnavailable,
)
from headwater.core_log.model.changes import ChangeBatch

logger = logging.getLogger(__name__)

PREFIX = "headwater.heartbeat"
"""Prefix of logical messages that are not events; reading one proves the stream's progress."""
ASKED_PREFIX = "headwater.asked"
"""Prefix of a message after which that progress is stored at once, because a caller waits for
it."""
OUR_PREFIXES = (PREFIX, ASKED_PREFIX)
RETAINED = "retained_wal_bytes"
WATCH_MS = 10_000
"""How often the server is queried without a heartbeat."""
WORTH_BYTES = 8_192
"""Other sessions must have written this much before a message pays, so that an idle server stays
idle."""
GRACE_MS = 60_000
"""Time for which the limit may be exceeded: the slot's restart position moves in steps, about 15
seconds apart."""
NEAR = 0.8
"""Share of the limit that causes a warning."""


class HeartbeatCheck(IntEnum):
    FINE = 0
    NEAR = 1
    OVER = 2


@dataclass(slots=True)
class WalBudget:
    """The limit `slot.max_retained_wal`. Exceeding it counts after some time without improvement: a
    source that catches up is not stopped."""

    limit: int | None
    beyond_since_ms: int | None = None
    beyond_at_first: int = 0
    told: HeartbeatCheck = HeartbeatCheck.FINE

    def judge(self, retained: int, *, now_ms: int) -> HeartbeatCheck:
        """Reports each state once, until it is fine again."""
        if self.limit is None or retained < NEAR * self.limit:
            self.told, self.beyond_since_ms = HeartbeatCheck.FINE, None
            return HeartbeatCheck.FINE
        verdict = (
            HeartbeatCheck.OVER
            if self._lasts(retained, now_ms, self.limit)
            else HeartbeatCheck.NEAR
        )
        if verdict <= self.told:
            return HeartbeatCheck.FINE
        self.told = verdict
        return verdict

    def _lasts(self, retained: int, now_ms: int, limit: int) -> bool:
        if retained <= limit:
            self.beyond_since_ms = None
            return False
        if self.beyond_since_ms is None or retained < self.beyond_at_first:
            self.beyond_since_ms, self.beyond_at_first = now_ms, retained
        return now_ms - self.beyond_since_ms >= GRACE_MS


class Heartbeat:
    """The heartbeat, on its own connection: a failure to connect stops nothing."""

    def __init__(
        self,
        settings: PostgresSettings,
        context: SourceContext,
        *,
        slot: str,
        watch: CaptureMonitor | None = None,
    ) -> None:
        """`watch` is called with every heartbeat."""
        self._settings, self._context, self._slot = settings, context, slot
        self._looks_at = watch
        self._budget = WalBudget(settings.slot.max_retained_wal)
        self._connection: PgConnection | None = None
        self._may_emit, self._emitted = settings.heartbeat_ms > 0, 0
        self.gives_slot_up = False
        """The stream ends for it, and `run` raises the reason."""
        self._soon = asyncio.Event()

    async def run(self, *, emits: bool = True) -> NoReturn:
        """Runs as long as the stream. Raises only if the stream must not continue, or would leave a
        gap."""
        try:
            while True:
                self._soon.clear()
                await self.beat(emits=emits)
                seconds = (self._settings.heartbeat_ms or WATCH_MS) / 1_000
                with suppress(TimeoutError):
                    async with asyncio.timeout(seconds):
                        await self._soon.wait()
        finally:
            await self.close()

    async def run_paused(self) -> NoReturn:
        """Only watches, while nothing is read. A limit that stops the source has nothing to stop,
        and the next start says what follows from a missing slot. It ends if it drops the slot."""
        try:
            while True:
                try:
                    await self.beat(emits=False)
                except SourceRejected as error:
                    logger.warning("%s", error)
                except SourceUnavailable:
                    pass
                await asyncio.sleep((self._settings.heartbeat_ms or WATCH_MS) / 1_000)
        finally:
            await self.close()

    def look_soon(self) -> None:
        """Checks soon, because the stream has shown something that the catalog may explain."""
        self._soon.set()

    async def beside(
        self, batches: AsyncGenerator[ChangeBatch, None]
    ) -> AsyncGenerator[ChangeBatch, None]:
        """Passes the batches on; while rows are read without a stream, it only watches."""
        watching = asyncio.ensure_future(self.run(emits=False))
        try:
            async for batch in batches:
                if watching.done():
                    watching.result()
                yield batch
        finally:
            await let_go(watching)
            await batches.aclose()

    async def beat(self, *, emits: bool = True) -> None:
        try:
            if self._connection is None:
                name = replication_slot.reader_name(self._context.pipeline)
                self._connection = await connect(self._settings, name=name)
            if emits:
                await self._emit(self._connection)
            slot = await replication_slot.look(self._connection, self._slot)
            gap = None if self._looks_at is None else await self._looks_at.look(self._connection)
        except HeadwaterError:
            await self.close()  # the stream will fail, too, if more than this connection is broken
            return
        if slot is None:
            gap = SourceUnavailable("the replication slot is gone", slot=self._slot)
        if gap is not None:
            raise gap  # the next run finds the consequence and reports it
        if slot is not None and slot.retained_bytes is not None:
            await self._watch(self._connection, slot, slot.retained_bytes)

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _emit(self, connection: PgConnection) -> None:
        if not self._may_emit:
            return
        with in_our_words("the server does not say where its write-ahead log ends"):
            try:
                cursor = await connection.execute(
                    "SELECT pg_catalog.pg_current_wal_insert_lsn()::text"
                )
                row = await cursor.fetchone()
                assert row is not None, "a question for one value has one row as an answer"
                if parse_lsn(row[0]) - self._emitted < WORTH_BYTES:
                    return
                cursor = await connection.execute(
                    sql.SQL(
                        "SELECT pg_catalog.pg_logical_emit_message(false, {}, '')::text"
                    ).format(sql.Literal(PREFIX))
                )
                row = await cursor.fetchone()
                assert row is not None, "a question for one value has one row as an answer"
                self._emitted = parse_lsn(row[0])
            except (
                psycopg.errors.InsufficientPrivilege,
                psycopg.errors.ObjectNotInPrerequisiteState,  # on a standby
                psycopg.errors.ReadOnlySqlTransaction,
            ):
                self._may_emit = (
                    False  # the server's own keepalives advance the slot, in larger steps
                )

    async def _watch(
        self, connection: PgConnection, slot: replication_slot.Slot, retained: int
    ) -> None:
        limits = self._settings.slot
        self._context.report(Gauge(RETAINED, max(retained, 0), limits.max_retained_wal))
        verdict = self._budget.judge(retained, now_ms=self._context.clock.monotonic_ms())
        if verdict is HeartbeatCheck.FINE:
            return
        if verdict is HeartbeatCheck.NEAR or limits.when_exceeded == "warn":
            logger.warning("%s", _exceeded_error(SourceRejected, slot, limits))
            return
        if limits.when_exceeded == "drop":
            self.gives_slot_up = True
            await replication_slot.drop(connection, self._slot, ends_reader=True)
            raise _exceeded_error(PositionLost, slot, limits)
        raise _exceeded_error(SourceRejected, slot, limits)


def _exceeded_error(
    kind: type[HeadwaterError], slot: replication_slot.Slot, limits: SlotSettings
) -> HeadwaterError:
    retained, limit = slot.retained_bytes or 0, limits.max_retained_wal or 0
    problem = "the slot makes the server keep more write-ahead log than `max_retained_wal`"
    if kind is PositionLost:
        problem += ", and was dropped"
    elif retained <= limit:
        problem = "the slot makes the server keep nearly as much write-ahead log as it may"
    end = (slot.restart or 0) + retained
    behind = end - (slot.confirmed or 0)
    if behind * 2 < retained:
        hint = (
            "a transaction that has been open for long holds it back: SELECT pid, xact_start, state"
            " FROM pg_stat_activity WHERE xact_start IS NOT NULL ORDER BY xact_start LIMIT 5"
        )
    else:
        hint = (
            "the pipeline reads more slowly than the database writes, or stands: headwater status"
        )
    return kind(
        problem,
        slot=slot.name,
        retained_bytes=retained,
        max_bytes=limit,
        confirmed=lsn_text(slot.confirmed or 0),
        behind_bytes=behind,
        hint=hint,
    )
