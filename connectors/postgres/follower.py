"""Follows the stream: emits one batch after another, and positions even if there are no changes."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace
from typing import Any

from headwater.connectors.postgres.catalog import CapturedTable
from headwater.connectors.postgres.events.event_mapper import EventMapper
from headwater.connectors.postgres.events.event_metadata import PlacedChanges
from headwater.connectors.postgres.publication.monitor import CaptureMonitor
from headwater.connectors.postgres.schema_history.schema_monitor import TableFormChange
from headwater.connectors.postgres.schema_history.table_definition import LOST_KEY, Cause
from headwater.connectors.postgres.server.lsn import lsn_text
from headwater.connectors.postgres.slot.heartbeat import ASKED_PREFIX, Heartbeat
from headwater.connectors.postgres.slot.resume_check import SERVER, STREAM
from headwater.connectors.postgres.snapshot.incremental_snapshot import IncrementalSnapshot
from headwater.connectors.postgres.wal.stream import WalStream
from headwater.connectors.postgres.wal.wal_batch import WalBatch, WalMessage
from headwater.connectors.source import Control
from headwater.connectors.stream_follower import SourceHeartbeat, has_stream_next
from headwater.core_log.client.gather import let_go
from headwater.core_log.foundation.clock import Clock
from headwater.core_log.model.changes import ChangeBatch, Phase, Positions, TableChanges

FIRST_BEAT_SECONDS = 1.0
ASK_SECONDS = 0.2
"""Shortest time between two requests for the server's position, while rows or the end of a finite
run wait for the stream to reach it."""


class StreamFollower:
    """Emits changes of the stream at once. Without changes it emits a position once per heartbeat,
    because only stored positions may be confirmed."""

    def __init__(
        self,
        stream: WalStream,
        translator: EventMapper,
        incremental: IncrementalSnapshot,
        heart: Heartbeat,
        watch: CaptureMonitor,
        *,
        beat: SourceHeartbeat,
        server: str,
        start: int,
        clock: Clock,
        end: int | None,
        awaits_paused: bool,
    ) -> None:
        """`end`: where to stop, if the stream is not followed for ever. `awaits_paused`: not before
        paused snapshots have been resumed and completed."""
        self._stream, self._translator, self._heart = stream, translator, heart
        self._incremental, self._watch = incremental, watch
        watch.forms.told = self.begin_rereads
        translator.choose = self._beside_rows_read
        incremental.in_place.look_soon = heart.look_soon
        self._beat, self._server, self._clock, self._end = beat, server, clock, end
        self._awaits_paused = awaits_paused
        self._reached = self._told = start
        """The stream's position, and the last position that was emitted."""
        self._is_first = True
        self._is_open = False
        """Whether a batch was emitted whose position is still to come."""
        self._asked_ms: int | None = None
        self._stirring: asyncio.Future[None] | None = None
        """The task that waits for rows read beside the stream, across WAL batches."""

    def confirm(self, lsn: int) -> None:
        """Confirms that all below is durable in the log."""
        self._stream.confirm(lsn)

    async def control(self, control: Control) -> None:
        await self._incremental.control(control)

    def begin_rereads(self, tables: Sequence[TableFormChange]) -> None:
        """Starts the re-reads that changed tables need."""
        for each in tables:
            if each.captured is not None:
                self._read_again(each.captured, each.cause, after=each.after)

    def _read_again(self, table: CapturedTable, cause: Cause, *, after: int) -> None:
        """Starts a re-read, or follows in place; a table that has lost its key waits until it has
        one."""
        captures = self._translator.captures
        if cause.why == LOST_KEY:
            captures.hold(table.oid)
            self._watch.hold(table.table)
        elif captures.holds(table.oid):
            if not table.schema.key:
                return
            captures.let_go(table.oid)
            self._watch.let_go(table.table)
        self._incremental.read_again(table, cause, after=after)

    async def batches(self) -> AsyncGenerator[ChangeBatch, None]:
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._stream.close)
            stack.push_async_callback(self._incremental.close)
            wal_batches = self._stream.wal_batches()
            stack.push_async_callback(wal_batches.aclose)
            beating = asyncio.ensure_future(self._keep_beating())
            stack.push_async_callback(let_go, beating)
            stack.push_async_callback(self._stir_no_more)
            while not self.is_over:
                coming = asyncio.ensure_future(anext(wal_batches))
                async with AsyncExitStack() as waiting:
                    waiting.push_async_callback(let_go, coming)
                    async with aclosing(self._beside(coming, beating)) as beside:
                        async for rows in beside:
                            yield rows
                    if not coming.done():
                        break
                    await self._check_slot_kept(coming, beating)
                wal_batch = coming.result()
                self._reached = max(self._reached, wal_batch.position or 0)
                async with aclosing(self._translator.map_batch(wal_batch)) as parts:
                    async for part in parts:
                        if part.tables or part.notices:
                            yield self._placed(part)
                if (batch := self._end_batch(wal_batch)) is not None:
                    yield batch
            if self._has_position_to_tell:
                yield ChangeBatch((), self._position())

    async def _beside(
        self, coming: "asyncio.Future[WalBatch]", beating: "asyncio.Future[None]"
    ) -> AsyncGenerator[ChangeBatch, None]:
        """Yields rows that were read beside the stream until it goes on; at least one chunk."""
        # The stream may have just reached the position that rows wait for.
        may_read = self._incremental.has_work
        while may_read or not (coming.done() or self.is_over):
            if not may_read:
                await self._something(coming, beating)
            while (batch := await self._batch_beside_stream()) is not None:
                yield batch
                if await has_stream_next(coming, batch):
                    return
            may_read = False

    async def _check_slot_kept(
        self, coming: "asyncio.Future[WalBatch]", beating: "asyncio.Future[None]"
    ) -> None:
        """Raises the reason for which the heartbeat has given the slot up, if the stream ended."""
        if coming.exception() is not None and self._heart.gives_slot_up:
            await beating

    async def _something(
        self, coming: "asyncio.Future[WalBatch]", beating: "asyncio.Future[None]"
    ) -> None:
        """Waits for the stream, for rows read beside it, or for the next heartbeat."""
        waiting: set[asyncio.Future[Any]] = {coming, beating}
        seconds = self._patience_s
        if not self._is_open:
            if self._stirring is None or self._stirring.done():
                self._stirring = asyncio.ensure_future(self._incremental.wait_for_work())
            waiting.add(self._stirring)
            if max(self._incremental.awaits or 0, self._end or 0) > self._reached:
                self._ask()
                seconds = ASK_SECONDS
        await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if beating.done():
            beating.result()

    def _ask(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if self._asked_ms is None or now_ms - self._asked_ms >= ASK_SECONDS * 1_000:
            self._asked_ms = now_ms
            self._stream.ask()

    async def _stir_no_more(self) -> None:
        if self._stirring is not None:
            await let_go(self._stirring)

    async def _batch_beside_stream(self) -> ChangeBatch | None:
        """Returns rows that were read beside the stream, or a heartbeat that is due."""
        if (rows := await self._rows_read()) is not None:
            return rows
        if self._beat.is_due and self._has_position_to_tell:
            return ChangeBatch((), self._position(), notices=self._beat.beat())
        return None

    async def _rows_read(self) -> ChangeBatch | None:
        """Yields rows that were read beside the stream, once it has passed their snapshot."""
        if self._is_open:
            return None
        rows = await self._incremental.ready(self._reached)
        if rows is None:
            return None
        captures = self._translator.captures
        tables = [each for each in rows.tables if await captures.admits(each.schema)]
        replacements = [
            each
            for each in rows.replacements
            if await captures.admits(each.schema, is_next=each.phase is not Phase.PENDING)
        ]
        keys = dict[str, str]()
        for each in replacements:
            if each.phase is Phase.STARTED:
                keys |= captures.rekey(each.schema)
        positions = captures.positions_of_snapshot(
            {**self._incremental.notes, **rows.positions} if rows.positions else {}, self._reached
        )
        return replace(
            rows,
            tables=tuple(tables),
            positions={**positions, **keys},
            replacements=tuple(replacements),
        )

    async def _keep_beating(self) -> None:
        """Starts the heartbeat a little later, so that it does not slow down the start."""
        await asyncio.sleep(FIRST_BEAT_SECONDS)
        await self._heart.run()

    def _placed(self, part: ChangeBatch) -> ChangeBatch:
        """Returns the batch with all parts of the position, if it has one."""
        self._is_open = True
        if not part.positions:
            return part
        notices = (*part.notices, *self._beat.beat())
        return replace(part, positions=self._position(), notices=notices)

    def _end_batch(self, wal_batch: WalBatch) -> ChangeBatch | None:
        """Starts what the WAL batch asks for; returns its position if that is still to come."""
        captures = self._translator.captures
        if captures.has_new_form:
            captures.has_new_form = False
            self._heart.look_soon()
        for table, (cause, after) in captures.take_rereads():
            self._read_again(table, cause, after=max(after, self._reached))
        must_tell = wal_batch.is_wanted or self._beat.is_due or _is_asked(wal_batch)
        is_news = self._is_open or (must_tell and self._has_position_to_tell)
        if not is_news or wal_batch.position is None:
            return None
        return ChangeBatch((), self._position(), notices=self._beat.beat())

    def _beside_rows_read(
        self, placed: PlacedChanges, wal_batch: WalBatch
    ) -> Sequence[TableChanges]:
        """Returns the changes without those that wait for the rows of their table."""
        if not self._incremental.is_watching:
            return [placed.changes]
        commits = wal_batch.transactions.commit_lsns[placed.transactions]
        if stale := self._incremental.stale(placed.changes.schema.table, commits):
            placed = placed.since(stale)
            if not len(placed.transactions):
                return []
        if placed.changes.is_truncate:
            self._incremental.forget_rows(placed.changes.schema.table)
            return [placed.changes]
        xids = wal_batch.transactions.xids[placed.transactions]
        return self._incremental.saw(placed.changes, xids)

    @property
    def is_over(self) -> bool:
        """Whether all work of a finite run is done."""
        if self._end is None or self._reached < self._end or self._is_open:
            return False
        return self.has_read_all or not (self._awaits_paused or self._incremental.has_work)

    @property
    def has_read_all(self) -> bool:
        """Whether no table has rows to read, now or later."""
        return not self._incremental.is_watching

    @property
    def _has_position_to_tell(self) -> bool:
        return self._reached > self._told and not self._is_open

    @property
    def _patience_s(self) -> float | None:
        due_ms = self._beat.due_ms
        return None if due_ms is None else max(due_ms, 50) / 1_000

    def _position(self) -> Positions:
        self._told, self._is_open = self._reached, False
        news = self._translator.captures.news(self._reached, self._incremental.notes)
        found = {STREAM: lsn_text(self._reached), **news}
        if self._is_first:
            found[SERVER] = self._server
            self._is_first = False
        return found


def _is_asked(wal_batch: WalBatch) -> bool:
    return any(
        isinstance(event, WalMessage) and event.prefix == ASKED_PREFIX for event in wal_batch.events
    )
