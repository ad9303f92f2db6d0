"""One life of the source: the stream of the binary log, and rows that are read beside it."""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace
from itertools import chain
from typing import Any

import orjson
import pyarrow as pa

from headwater.connectors.mysql.binlog.decoder import BinlogDecoder, Decoded
from headwater.connectors.mysql.binlog.simple_groups import SimpleGroups, find_simple_groups
from headwater.connectors.mysql.binlog.transport import BinlogTransport, DumpStart
from headwater.connectors.mysql.events.group_reader import OTHER_FORM, BinlogGroupReader
from headwater.connectors.mysql.events.row_buffer import MysqlOrigin
from headwater.connectors.mysql.position import (
    CREATED,
    SERVER,
    XA_FILE,
    XA_STREAM,
    BinlogPosition,
    stored_position,
)
from headwater.connectors.mysql.resume_check import (
    check_requirements,
    check_resumable,
    first_position,
)
from headwater.connectors.mysql.schema_history.form_change import kinds_of_change
from headwater.connectors.mysql.server.catalog import MysqlCatalog, MysqlTable, restored_table
from headwater.connectors.mysql.server.connection import MysqlConnection, connect, finish
from headwater.connectors.mysql.server.server_identity import (
    FilePosition,
    MysqlServer,
    identify,
)
from headwater.connectors.mysql.settings import MysqlSettings
from headwater.connectors.mysql.snapshot.rows_beside_stream import RowsBesideStream
from headwater.connectors.mysql.snapshot.table_progress import (
    FORM,
    PROGRESS,
    MysqlTableProgress,
    form_part,
    parse_form,
    progress_part,
)
from headwater.connectors.source import Control, Remark, SourceContext
from headwater.core_log.client.gather import let_go
from headwater.core_log.foundation.diagnostic import Diagnostic
from headwater.core_log.foundation.errors import PositionLost, SourceRejected
from headwater.core_log.model.changes import (
    ChangeBatch,
    EventMessages,
    Operation,
    Positions,
    TableChanges,
)
from headwater.core_log.model.table_schema import TableId, TableSchema

BURST_BYTES = 2 << 20
ROWS_MAX = 20_000
"""Rows per batch."""
HEARTBEAT_S = 0.5
LEFT_OUT = "tables that cannot be captured"


class MysqlSession:
    """Emits changes at once, and without changes a position once per heartbeat."""

    def __init__(
        self, settings: MysqlSettings, context: SourceContext, resume_from: Positions
    ) -> None:
        self._settings, self._context, self._resume_from = settings, context, resume_from
        self.tables: dict[TableId, MysqlTable] = {}
        self._rows: RowsBesideStream | None = None
        self.reading = asyncio.Lock()
        self.known_at: dict[TableId, FilePosition] = {}
        """Where the log ended after a table was looked up."""
        self._admitted: set[int] = set()
        self._kept: list[TableSchema] = []
        self._is_told_open = False
        """Whether rows were emitted whose position is still to come."""
        self._told: BinlogPosition | None = None
        self._beat_ms = context.clock.monotonic_ms()

    async def control(self, control: Control) -> None:
        if self._rows is None:
            raise SourceRejected("the source is not running yet", kind=control.kind)
        await self._rows.control(control)

    async def batches(self) -> AsyncGenerator[ChangeBatch, None]:
        async with AsyncExitStack() as stack:
            questions = await self._open(stack, "questions")
            server = await asyncio.to_thread(identify, questions)
            await asyncio.to_thread(check_requirements, questions, server)
            catalog = MysqlCatalog(self._settings, server.is_mariadb)
            charsets = await asyncio.to_thread(catalog.charsets, questions)
            position, lost = await self._position(questions, server)
            if lost:
                self._resume_from = {}
            reader = self._reader(position, server, catalog, charsets)
            rows = self._rows = RowsBesideStream(
                self._settings, self._context, server, catalog, reader, self.tables, self.reading
            )
            stack.push_async_callback(rows.close)
            await self._find_tables(questions, server, catalog, rows, lost)
            end = None
            if self._context.until_end:
                end = await asyncio.to_thread(server.log_end, questions)
            transport = await self._start(stack, server, reader)
            decoder = BinlogDecoder(
                server.is_mariadb,
                has_checksum=server.checksum.upper() == "CRC32",
                wants=reader.wants,
            )
            yield await self._first(server, reader, rows)
            follower = _Follower(self, questions, server, catalog, reader, rows, decoder, end)
            async with aclosing(follower.batches(transport)) as batches:
                async for batch in batches:
                    yield await self._admit(batch)

    async def _open(self, stack: AsyncExitStack, what: str) -> MysqlConnection:
        name = f"headwater {self._context.pipeline} {what}"
        connection = await finish(asyncio.to_thread(connect, self._settings, name=name))
        stack.callback(connection.close)
        return connection

    async def _position(
        self, questions: MysqlConnection, server: MysqlServer
    ) -> tuple[BinlogPosition, str]:
        """Returns where to begin, and why all rows have to be read again."""
        lost = ""
        try:
            stored = await asyncio.to_thread(check_resumable, questions, server, self._resume_from)
        except PositionLost as error:
            if self._settings.position_mismatch == "stop":
                raise
            stored, lost = None, error.problem
        if stored is None:
            stored = await asyncio.to_thread(first_position, questions, server)
        return stored, lost

    def _reader(
        self,
        position: BinlogPosition,
        server: MysqlServer,
        catalog: MysqlCatalog,
        charsets: dict[int, str],
    ) -> BinlogGroupReader:
        """Begins before the oldest prepared XA transaction, whose rows have to be read again."""
        is_mariadb = server.is_mariadb
        oldest = stored_position(
            self._resume_from, is_mariadb=is_mariadb, names=(XA_STREAM, XA_FILE)
        )
        return BinlogGroupReader(
            MysqlOrigin(self._context.pipeline, server.name),
            oldest or position,
            self.tables,
            catalog.captures,
            charsets,
            is_mariadb,
            server.has_gtids,
            skips=position if oldest else None,
            created=self._created(position),
        )

    def _created(self, position: BinlogPosition) -> int:
        said = self._resume_from.get(CREATED, "")
        return int(said) if said.isdecimal() and position.gtids is None else 0

    async def _find_tables(
        self,
        questions: MysqlConnection,
        server: MysqlServer,
        catalog: MysqlCatalog,
        rows: RowsBesideStream,
        lost: str,
    ) -> None:
        """Tables have the form that the stream has at its position, if it was stored."""
        found = {each.table: each for each in await asyncio.to_thread(catalog.tables, questions)}
        end = await asyncio.to_thread(server.log_end, questions)
        stored = {
            _table_of(part.removeprefix(FORM)): parse_form(text)
            for part, text in self._resume_from.items()
            if part.startswith(FORM) and text
        }
        for part, text in self._resume_from.items():
            if part.startswith(PROGRESS):
                rows.remember(_table_of(part.removeprefix(PROGRESS)), text)
        for name in sorted({*found, *stored}):
            if not catalog.captures(name):
                rows.notes[form_part(name)] = ""  # its changes are missed from here on
                continue
            table = found.get(name)
            said = self._resume_from.get(progress_part(name))
            progress = None if said is None else MysqlTableProgress.parse(said)
            if name in stored and progress is not None:
                form = restored_table(name, stored[name], is_mariadb=server.is_mariadb)
                table = form if table is None else form.with_size_of(table)
            assert table is not None, "a name comes from the catalogue or has a form"
            table = self.tables[name] = self.with_key(await self.by_rules(table), rows)
            self.known_at[name] = end
            if table.problem:
                if name in stored:
                    rows.leave(name)
                    rows.notes[form_part(name)] = ""
            elif lost or (progress is not None and name not in stored):
                why = lost or "the table was created again"
                rows.read_again(table, why, (), has_other_key=True)
            else:
                rows.restore(table, progress)
        self.report_left_out()

    async def by_rules(self, table: MysqlTable) -> MysqlTable:
        """Returns the table with a problem if the rules that hide columns do not let its rows into
        the log."""
        if table.problem:
            return table
        if (error := await self._context.refusal(table.schema, is_next=True)) is None:
            return table
        return replace(table, problem=error.statement, hint=error.hint)

    def with_key(self, table: MysqlTable, rows: RowsBesideStream) -> MysqlTable:
        """Returns the table with a problem if it has lost the key that its topic has."""
        if not rows.has_lost_key(table):
            return table
        hint = f"add a primary key, or name unique columns: keys: {{{table.table}: [...]}}"
        return replace(table, problem="it has no key any more", hint=hint)

    def report_left_out(self) -> None:
        refused = [each for each in self.tables.values() if each.problem]
        finding = None
        if refused:
            said = "; ".join(f"{each.table}: {each.problem}" for each in refused)
            finding = Diagnostic(
                f"tables match `tables` and are left out, as they cannot be captured: {said}",
                "; ".join(dict.fromkeys(each.hint for each in refused if each.hint)),
                is_fatal=False,
                left_out=tuple(sorted(str(each.table) for each in refused)),
            )
        self._context.report(Remark(LEFT_OUT, finding))

    async def _start(
        self, stack: AsyncExitStack, server: MysqlServer, reader: BinlogGroupReader
    ) -> BinlogTransport:
        connection = await self._open(stack, "stream")
        transport = BinlogTransport(connection)
        gtids = reader.position.gtids
        start = DumpStart(reader.position.place, gtids if gtids or not server.is_mariadb else None)
        await asyncio.to_thread(
            transport.start, server, start, server_id=self._server_id, heartbeat_s=HEARTBEAT_S
        )
        return transport

    @property
    def _server_id(self) -> int:
        if self._settings.server_id is not None:
            return self._settings.server_id
        digest = hashlib.sha256(self._context.pipeline.encode()).digest()
        return 2**31 + int.from_bytes(digest[:4], "big") % (2**31 - 1)

    async def _first(
        self, server: MysqlServer, reader: BinlogGroupReader, rows: RowsBesideStream
    ) -> ChangeBatch:
        """The position before anything, with the form of every table."""
        batch = await rows.ready(FilePosition("", -1))
        parts = {SERVER: server.identity, **reader.parts()}
        self._told = reader.position.copy()
        if batch is None:
            return ChangeBatch((), parts)
        return await self._admit(replace(batch, positions={**parts, **batch.positions}))

    async def _admit(self, batch: ChangeBatch) -> ChangeBatch:
        """Asks the rules that hide columns before the first row of each schema."""
        for changes in batch.tables:
            if id(changes.schema) in self._admitted:
                continue
            if (error := await self._context.refusal(changes.schema, is_next=True)) is not None:
                raise error
            self._admitted.add(id(changes.schema))
            self._kept.append(changes.schema)
        return batch

    def beat(self) -> tuple[EventMessages, ...]:
        self._beat_ms = self._context.clock.monotonic_ms()
        key = orjson.dumps({"serverName": self._context.pipeline})
        value = orjson.dumps({"ts_ms": self._context.clock.now_ms()})
        return (
            EventMessages(
                "heartbeat", pa.array([key], pa.binary()), pa.array([value], pa.binary())
            ),
        )

    @property
    def is_beat_due(self) -> bool:
        since_ms = self._context.clock.monotonic_ms() - self._beat_ms
        return 0 < self._settings.heartbeat_ms <= since_ms


class _Follower:
    """Reads bursts in a thread, and decides what is emitted when."""

    def __init__(
        self,
        session: MysqlSession,
        questions: MysqlConnection,
        server: MysqlServer,
        catalog: MysqlCatalog,
        reader: BinlogGroupReader,
        rows: RowsBesideStream,
        decoder: BinlogDecoder,
        end: FilePosition | None,
    ) -> None:
        self._session, self._questions, self._server = session, questions, server
        self._catalog, self._reader, self._rows = catalog, reader, rows
        self._decoder, self._end = decoder, end
        self._is_told_open = False
        self._told = reader.position.text

    @property
    def is_over(self) -> bool:
        if self._end is None or self._reader.is_open or self._is_told_open:
            return False
        is_reached = self._reader.position.place.order >= self._end.order
        return is_reached and not self._rows.has_work

    async def batches(self, transport: BinlogTransport) -> AsyncGenerator[ChangeBatch, None]:
        burst: asyncio.Future[list[bytes]] | None = None
        try:
            while True:
                burst = asyncio.ensure_future(asyncio.to_thread(transport.burst, BURST_BYTES))
                async with aclosing(self._beside(burst)) as beside:
                    async for batch in beside:
                        yield batch
                if not burst.done():
                    break
                async with aclosing(self._streamed(burst.result())) as streamed:
                    async for batch in streamed:
                        yield batch
            if (last := self._position_batch()) is not None:
                yield last
        finally:
            transport.interrupt()
            if burst is not None:
                try:
                    await asyncio.wait([burst])
                except asyncio.CancelledError:
                    await asyncio.wait([burst])  # its thread ends at once, and not behind our back
                    raise
                if not burst.cancelled():
                    burst.exception()

    async def _beside(
        self, burst: "asyncio.Future[list[bytes]]"
    ) -> AsyncGenerator[ChangeBatch, None]:
        """Emits rows that were read beside the stream, until the stream goes on or all is done."""
        while True:
            if not (self._reader.is_open or self._is_told_open):
                place = self._reader.position.place
                while (batch := await self._rows.ready(place)) is not None:
                    yield replace(batch, positions={**batch.positions})
                if self._reader.is_at_stop:
                    async with aclosing(self._rows.whole_table()) as batches:
                        async for batch in batches:
                            yield batch
                    continue
            if self.is_over or burst.done():
                return
            stirring = asyncio.ensure_future(self._rows.wait_for_rows())
            try:
                waiting: set[asyncio.Future[Any]] = {burst, stirring}
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            finally:
                await let_go(stirring)

    async def _streamed(self, events: Sequence[bytes]) -> AsyncGenerator[ChangeBatch, None]:
        decoded = self._decoded(events)
        is_done = False
        while not is_done:
            async with self._session.reading:
                working = asyncio.to_thread(self._work, decoded)
                is_done, changes = await finish(working)
            for each in changes:
                self._rows.saw(each)
            async with aclosing(self._emitted(changes)) as batches:
                async for batch in batches:
                    yield batch

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
            if last or self._is_told_open or self._session.is_beat_due:
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
        await self._look_again()
        batch = await self._rows.ready(FilePosition("", -1))
        boundary = self._boundary(())
        if batch is None:
            return boundary
        return replace(batch, positions={**boundary.positions, **batch.positions})

    def _boundary(self, changes: Sequence[TableChanges]) -> ChangeBatch:
        self._is_told_open = False
        notices = self._session.beat() if self._session.is_beat_due else ()
        self._told = self._reader.position.text
        return ChangeBatch(tuple(changes), self._reader.parts(), notices=notices)

    def _position_batch(self) -> ChangeBatch | None:
        if self._told == self._reader.position.text or self._reader.is_open:
            return None
        return ChangeBatch((), self._reader.parts())

    def _work(self, decoded: Iterator[Decoded | SimpleGroups]) -> tuple[bool, list[TableChanges]]:
        """Reads on until the burst ends, a batch is full, or tables have to be looked at."""
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

    async def _look_again(self) -> None:
        """Looks tables up whose form or rows may have changed, and has them read again."""
        suspects, self._reader.suspects = self._reader.suspects, {}
        for name, why in suspects.items():
            self._rows.suspect(name)
            now = await asyncio.to_thread(self._catalog.table, self._questions, name)
            if now is not None:
                now = self._session.with_key(await self._session.by_rules(now), self._rows)
            end = await asyncio.to_thread(self._server.log_end, self._questions)
            self._take_on(name, now, why, end)
        self._decoder.choose_again()
        self._session.report_left_out()

    def _take_on(self, name: TableId, now: MysqlTable | None, why: str, end: FilePosition) -> None:
        session, tables = self._session, self._session.tables
        before = tables.get(name)
        if now is None:
            if before is not None:
                del tables[name]
                self._rows.leave(name)
                self._rows.notes[form_part(name)] = ""
            return
        is_same = before is not None and now.has_form_of(before)
        is_later = self._reader.position.place.order > session.known_at.get(name, end).order
        if why == OTHER_FORM and is_same and is_later:
            raise SourceRejected(
                "rows of a table are logged in a form that the catalogue does not declare",
                table=str(name),
                hint="ALTER TABLE ... FORCE makes the table anew with the server's own types",
            )
        session.known_at[name] = end
        tables[name] = now
        if now.problem:
            self._rows.leave(name)
            self._rows.notes[form_part(name)] = ""
        elif before is None and not self._rows.knows(name):
            self._rows.restore(now, None)
        else:
            kinds = () if before is None else kinds_of_change(before, now)
            self._rows.read_again(
                now,
                why or "the table was created again",
                kinds,
                has_other_key=before is None or not now.has_key_of(before),
            )


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


def _table_of(name: str) -> TableId:
    namespace, _, table = name.partition(".")
    return TableId(namespace, table)
