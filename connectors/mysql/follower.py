"""Follows the binary log: what is emitted when, beside rows that are read meanwhile."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

from headwater.connectors.mysql.binlog.decoder import BinlogDecoder, Decoded
from headwater.connectors.mysql.binlog.event import is_compressed
from headwater.connectors.mysql.binlog.simple_groups import SimpleGroups, find_simple_groups
from headwater.connectors.mysql.binlog.transport import BinlogTransport
from headwater.connectors.mysql.captured_tables import CapturedTables
from headwater.connectors.mysql.events.group_reader import BinlogGroupReader
from headwater.connectors.mysql.server.server_identity import FilePosition
from headwater.connectors.mysql.snapshot.rows_beside_stream import RowsBesideStream
from headwater.connectors.stream_follower import SourceHeartbeat, has_stream_next
from headwater.core_log.client.gather import in_thread, let_go
from headwater.core_log.model.changes import ChangeBatch, Operation, TableChanges

EVENTS_BYTES_MAX = 2 << 20
QUICK_BYTES_MAX = 64 << 10
"""Less is read faster than a thread is woken, and a busy machine wakes it late."""
ROWS_MAX = 20_000
"""Rows per batch."""


class BinlogFollower:
    """Takes the events that have come: few of them in the event loop, many in a thread. Emits
    changes at once, and without changes a position once per heartbeat."""

    def __init__(
        self,
        start: Callable[[], Awaitable[BinlogTransport]],
        decoder: BinlogDecoder,
        reader: BinlogGroupReader,
        tables: CapturedTables,
        rows: RowsBesideStream,
        heart: SourceHeartbeat,
        *,
        reading: asyncio.Lock,
        end: FilePosition | None,
    ) -> None:
        """`start` begins the stream. `end`: where to stop, if it is not followed for ever."""
        self._start, self._decoder, self._reader = start, decoder, reader
        self._tables, self._rows, self._heart = tables, rows, heart
        self._reading, self._end = reading, end
        self._is_told_open = False
        """Whether rows were emitted whose position is still to come."""
        self._told = reader.position.text
        self._readable: asyncio.Future[None] | None = None
        self._stirring: asyncio.Future[None] | None = None
        self._has_more_rows = False
        """Whether the next chunk waits for what the server may have sent meanwhile."""

    @property
    def is_over(self) -> bool:
        if self._end is None or self._reader.is_open or self._is_told_open:
            return False
        is_reached = self._reader.position.place.order >= self._end.order
        return is_reached and not self._rows.has_work

    async def batches(self) -> AsyncGenerator[ChangeBatch, None]:
        try:
            for part in (self._before_stream, self._along_stream):
                async with aclosing(part()) as batches:
                    async for batch in batches:
                        yield batch
            if (last := self._position_batch()) is not None:
                yield last
        finally:
            for waiting in (self._readable, self._stirring):
                if waiting is not None:
                    await let_go(waiting)

    async def _along_stream(self) -> AsyncGenerator[ChangeBatch, None]:
        transport, has_answered = await self._start(), False
        while True:
            async with aclosing(self._beside()) as beside:
                async for batch in beside:
                    yield batch
            if has_answered and self.is_over:
                return
            if events := await self._next_events(transport):
                has_answered = True  # a server that refuses says so instead of its first event
                async with aclosing(self._streamed(events)) as streamed:
                    async for batch in streamed:
                        yield batch
            elif transport.is_dry and not self._has_more_rows:
                await self._something(transport)

    async def _before_stream(self) -> AsyncGenerator[ChangeBatch, None]:
        """Emits the rows of a locked snapshot."""
        while self._rows.precedes_stream:
            async with aclosing(self._beside()) as beside:
                async for batch in beside:
                    yield batch
            if self._rows.precedes_stream and not self._has_more_rows:
                await self._something()

    async def _beside(self) -> AsyncGenerator[ChangeBatch, None]:
        """Emits rows that were read beside the stream; after a chunk the stream has its turn."""
        self._has_more_rows = False
        while not (self._reader.is_open or self._is_told_open):
            while (batch := await self._rows.ready(self._reader.position.place)) is not None:
                yield replace(batch, positions={**batch.positions})
                self._has_more_rows = await has_stream_next(self._readable, batch)
                if self._has_more_rows:
                    return
            if not self._reader.is_at_stop:
                return
            async with aclosing(self._rows.whole_table()) as batches:
                async for batch in batches:
                    yield batch

    async def _next_events(self, transport: BinlogTransport) -> list[bytes]:
        """Returns what there is, possibly nothing."""
        if self._readable is not None and not self._readable.done():
            return []
        events = transport.take(QUICK_BYTES_MAX)
        if not (transport.is_dry or transport.has_ended):
            events += await in_thread(partial(transport.take, EVENTS_BYTES_MAX))
        return events

    async def _something(self, transport: BinlogTransport | None = None) -> None:
        """Waits for the server, if the stream has begun, or for rows that were read beside it."""
        if self._stirring is None or self._stirring.done():
            self._stirring = asyncio.ensure_future(self._rows.wait_for_rows())
        waiting: set[asyncio.Future[Any]] = {self._stirring}
        if transport is not None:
            if self._readable is None or self._readable.done():
                self._readable = asyncio.ensure_future(transport.until_readable())
            waiting.add(self._readable)
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if self._readable is not None and self._readable.done():
            self._readable.result()

    async def _streamed(self, events: Sequence[bytes]) -> AsyncGenerator[ChangeBatch, None]:
        decoded = self._decoded(events)
        is_quick, is_done = self._is_quick(events), False
        while not is_done:
            async with self._reading:
                work = partial(self._work, decoded)
                is_done, changes = work() if is_quick else await in_thread(work)
            for each in changes:
                self._rows.saw(each)
            async with aclosing(self._emitted(changes)) as batches:
                async for batch in batches:
                    yield batch

    def _is_quick(self, events: Sequence[bytes]) -> bool:
        """Whether little comes out of these events, and of what waits for them."""
        if self._reader.holds_rows or any(map(is_compressed, events)):
            return False
        return sum(map(len, events)) <= QUICK_BYTES_MAX

    def _decoded(self, events: Sequence[bytes]) -> Iterator[Decoded | SimpleGroups]:
        decode = self._decoder.decode
        for each in find_simple_groups(events, self._decoder):
            if isinstance(each, bytes):
                yield from decode(each)
            elif self._reader.takes(each):
                yield each
            else:
                yield from chain.from_iterable(map(decode, each.events))

    async def _emitted(self, changes: Sequence[TableChanges]) -> AsyncGenerator[ChangeBatch, None]:
        """Yields changes up to where the reader is, and a position if it is between two groups."""
        *firsts, last = in_pieces(changes, rows_max=ROWS_MAX)
        for piece in firsts:
            self._is_told_open = True
            yield ChangeBatch(tuple(piece), {})
        reader, is_boundary = self._reader, not self._reader.is_open
        if is_boundary and reader.suspects:
            if last:
                yield ChangeBatch(tuple(last), {})
            yield await self._after_look()
        elif is_boundary:
            if last or self._is_told_open or self._heart.is_due:
                yield self._boundary(last)
        elif last:
            self._is_told_open = True
            yield ChangeBatch(tuple(last), {})
        if reader.is_at_stop:
            async with aclosing(self._rows.whole_table()) as batches:
                async for batch in batches:
                    yield batch

    async def _after_look(self) -> ChangeBatch:
        """The position behind a change of tables is stored together with what follows from it."""
        suspects, self._reader.suspects = self._reader.suspects, {}
        await self._tables.look_again(suspects, self._rows, self._reader.position.place)
        self._decoder.choose_again()
        batch = await self._rows.ready(FilePosition("", -1))
        boundary = self._boundary(())
        if batch is None:
            return boundary
        return replace(batch, positions={**boundary.positions, **batch.positions})

    def _boundary(self, changes: Sequence[TableChanges]) -> ChangeBatch:
        self._is_told_open = False
        self._told = self._reader.position.text
        return ChangeBatch(tuple(changes), self._reader.parts(), notices=self._heart.beat())

    def _position_batch(self) -> ChangeBatch | None:
        if self._told == self._reader.position.text or self._reader.is_open:
            return None
        return ChangeBatch((), self._reader.parts())

    def _work(self, decoded: Iterator[Decoded | SimpleGroups]) -> tuple[bool, list[TableChanges]]:
        """Reads on until these events end, a batch is full, or tables have to be looked at."""
        reader = self._reader
        is_done = reader.add_decided() and (reader.is_open or not reader.suspects)
        is_done = is_done and not reader.is_at_stop
        for each in decoded if is_done else ():
            if isinstance(each, SimpleGroups):
                reader.feed_groups(each)
            else:
                reader.feed(each)
            is_full = not reader.add_decided() or reader.is_full or reader.is_at_stop
            if is_full or (reader.suspects and not reader.is_open):
                is_done = False
                break
        if reader.is_open and not reader.is_full:
            return is_done, []
        return is_done, reader.take()


def in_pieces(changes: Sequence[TableChanges], *, rows_max: int) -> list[list[TableChanges]]:
    """Returns the changes in lists of at most about so many; at least one, possibly empty. The two
    halves of a change of key stay together."""
    pieces, left = [list[TableChanges]()], rows_max
    for each in changes:
        start = 0
        while start < len(each):
            if left <= 0:
                pieces.append([])
                left = rows_max
            end = min(start + left, len(each))
            if each.moves is not None and each.moves[end - 1].as_py():
                end += each.operations[end - 1].as_py() == Operation.DELETE
            pieces[-1].append(each if end - start == len(each) else each.slice(start, end - start))
            left -= end - start
            start = end
    return pieces
