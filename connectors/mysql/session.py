"""One life of the source: the stream of the binary log, and rows that are read beside it."""

import asyncio
import hashlib
import logging
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace
from functools import partial

from headwater.connectors.mysql.binlog.decoder import BinlogDecoder
from headwater.connectors.mysql.binlog.transport import BinlogTransport, DumpStart
from headwater.connectors.mysql.captured_tables import CapturedTables
from headwater.connectors.mysql.events.group_reader import (
    NO_FILE,
    BinlogGroupReader,
    StoredLogFile,
)
from headwater.connectors.mysql.events.row_buffer import MysqlOrigin
from headwater.connectors.mysql.follower import BinlogFollower
from headwater.connectors.mysql.position import (
    CREATED,
    SERVER,
    BinlogPosition,
)
from headwater.connectors.mysql.resume_check import (
    check_requirements,
    check_resumable,
    first_position,
    prepared_position,
)
from headwater.connectors.mysql.server.catalog import MysqlCatalog, MysqlTable
from headwater.connectors.mysql.server.connection import MysqlConnection, connect, finish
from headwater.connectors.mysql.server.server_identity import (
    FilePosition,
    MysqlServer,
    identify,
)
from headwater.connectors.mysql.settings import MysqlSettings
from headwater.connectors.mysql.snapshot.chunk_reader import connect_to_same
from headwater.connectors.mysql.snapshot.locked_snapshot import (
    LockedSnapshot,
    NotLocked,
    begin_locked_snapshot,
)
from headwater.connectors.mysql.snapshot.rows_beside_stream import RowsBesideStream
from headwater.connectors.source import Control, SourceContext
from headwater.connectors.stream_follower import SourceHeartbeat
from headwater.core_log.client.gather import in_thread
from headwater.core_log.foundation.errors import PositionLost, SourceRejected
from headwater.core_log.model.changes import ChangeBatch, Positions
from headwater.core_log.model.table_schema import TableId, TableSchema

logger = logging.getLogger(__name__)

HEARTBEAT_S = 0.5

logger = logging.getLogger(__name__)


class MysqlSession:
    """Emits changes at once, and without changes a position once per heartbeat."""

    def __init__(
        self,
        settings: MysqlSettings,
        context: SourceContext,
        resume_from: Positions,
        lost: str = "",
    ) -> None:
        """`lost`: why the position is, and all rows have to be read again."""
        self._lost = lost
        self._settings, self._context, self._resume_from = settings, context, resume_from
        self._rows: RowsBesideStream | None = None
        self._tables: dict[TableId, MysqlTable] = {}
        self._admitted: dict[int, bool] = {}
        """Whether rows of a schema may enter the log."""
        self._kept: list[TableSchema] = []

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
            position, lost, locked = await self._position(stack, questions, server, catalog)
            if lost:
                self._resume_from = {}
            tables = CapturedTables(self._context, questions, server, catalog)
            self._tables = tables.by_name
            prepared = await asyncio.to_thread(
                prepared_position, questions, server, self._resume_from
            )
            reader = self._reader(position, prepared, server, catalog, tables, charsets)
            reading = asyncio.Lock()
            rows = self._rows = RowsBesideStream(
                self._settings,
                self._context,
                server,
                catalog,
                reader,
                tables.by_name,
                reading,
                locked,
            )
            stack.push_async_callback(rows.close)
            await tables.find(rows, self._resume_from, lost)
            end = None
            if self._context.until_end:
                end = await asyncio.to_thread(server.log_end, questions)
            decoder = BinlogDecoder(
                server.is_mariadb,
                has_checksum=server.checksum.upper() == "CRC32",
                wants=reader.wants,
            )
            heart = SourceHeartbeat(
                self._context.pipeline, self._context.clock, every_ms=self._settings.heartbeat_ms
            )
            yield await self._first(server, reader, rows)
            follower = BinlogFollower(
                partial(self._start, stack, server, reader),
                decoder,
                reader,
                tables,
                rows,
                heart,
                reading=reading,
                end=end,
            )
            async with aclosing(follower.batches()) as batches:
                async for batch in batches:
                    yield await self._admit(batch)

    async def _open(self, stack: AsyncExitStack, what: str) -> MysqlConnection:
        name = f"headwater {self._context.pipeline} {what}"
        connection = await finish(asyncio.to_thread(connect, self._settings, name=name))
        stack.callback(connection.close)
        return connection

    async def _position(
        self,
        stack: AsyncExitStack,
        questions: MysqlConnection,
        server: MysqlServer,
        catalog: MysqlCatalog,
    ) -> tuple[BinlogPosition, str, LockedSnapshot | None]:
        """Returns where to begin, why all rows have to be read again, and the snapshot of a first
        start with a lock."""
        stored, lost = None, self._lost
        try:
            if not lost:
                stored = await asyncio.to_thread(
                    check_resumable, questions, server, self._resume_from
                )
        except PositionLost as error:
            if self._settings.position_mismatch == "stop":
                raise
            lost = error.problem
        if stored is not None:
            return stored, lost, None
        if not lost and (locked := await self._lock(questions, server, catalog)) is not None:
            stack.callback(locked.close)
            return locked.position.copy(), "", locked
        return await asyncio.to_thread(first_position, questions, server), lost, None

    async def _lock(
        self, questions: MysqlConnection, server: MysqlServer, catalog: MysqlCatalog
    ) -> LockedSnapshot | None:
        settings = self._settings.snapshot
        if settings.locking == "none" or settings.mode == "never":
            return None
        found = await asyncio.to_thread(catalog.tables, questions)
        name = f"headwater {self._context.pipeline} snapshot"
        begin = partial(
            begin_locked_snapshot,
            partial(connect_to_same, partial(connect, self._settings, name=name), server),
            server,
            [each.table for each in found if not each.problem],
            count=settings.parallel,
            timeout_ms=settings.lock_timeout_ms,
        )
        try:
            return await in_thread(begin)
        except NotLocked as refused:
            if settings.when_not_locked == "stop":
                raise refused.error from None
            logger.warning("rows are read without a lock: %s", refused.error)
            return None

    def _reader(
        self,
        position: BinlogPosition,
        prepared: BinlogPosition | None,
        server: MysqlServer,
        catalog: MysqlCatalog,
        tables: CapturedTables,
        charsets: dict[int, str],
    ) -> BinlogGroupReader:
        """Begins before the oldest prepared XA transaction, whose rows have to be read again."""
        return BinlogGroupReader(
            MysqlOrigin(self._context.pipeline, server.name),
            prepared or position,
            tables.by_name,
            catalog.captures,
            charsets,
            server.is_mariadb,
            server.has_gtids,
            server.folds_names,
            skips=position if prepared else None,
            stored=self._stored_file(server, position),
        )

    def _stored_file(self, server: MysqlServer, position: BinlogPosition) -> StoredLogFile:
        """MariaDB's servers may have one id, and each of them files of these names."""
        said = self._resume_from.get(CREATED, "")
        is_same = self._resume_from.get(SERVER) == server.identity and not server.is_mariadb
        is_known = is_same and said.isdecimal()
        return StoredLogFile(position.place.file, int(said)) if is_known else NO_FILE

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
        if batch is None:
            return ChangeBatch((), parts)
        return await self._admit(replace(batch, positions={**parts, **batch.positions}))

    async def _admit(self, batch: ChangeBatch) -> ChangeBatch:
        """Asks the rules that hide columns before the first row of each schema. Rows of a form that
        the table no longer has are left out if it would show them."""
        for changes in batch.tables:
            schema = changes.schema
            if id(schema) in self._admitted:
                continue
            error = await self._context.refusal(schema, is_next=True)
            present = self._tables.get(schema.table)
            if error is not None and (present is None or present.schema == schema):
                raise error
            if error is not None:
                said = "%s: changes in a former form of the table are left out: %s"
                logger.warning(said, schema.table, error.statement)
            self._admitted[id(schema)] = error is None
            self._kept.append(schema)
        kept = tuple(each for each in batch.tables if self._admitted[id(each.schema)])
        return batch if len(kept) == len(batch.tables) else replace(batch, tables=kept)
