"""One run of the source: connects, reads the initial snapshot, and follows the stream."""

import logging
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import AsyncExitStack, aclosing, suppress
from dataclasses import replace

from headwater.connectors.postgres import lost_keys
from headwater.connectors.postgres.catalog import CapturedTable
from headwater.connectors.postgres.discovery import (
    DiscoveredTables,
    advance,
    look,
    open_connection,
    wal_end,
)
from headwater.connectors.postgres.events.change_mapper import truncate_changes
from headwater.connectors.postgres.events.event_mapper import EventMapper
from headwater.connectors.postgres.events.event_metadata import SourceOrigin, TransactionCounts
from headwater.connectors.postgres.events.lookup import LookupConnection
from headwater.connectors.postgres.events.rejects import RejectedRows
from headwater.connectors.postgres.events.relation_cache import CapturedRelations
from headwater.connectors.postgres.events.repeated_keys import RepeatedKeys
from headwater.connectors.postgres.events.row_keys import KeyHistory
from headwater.connectors.postgres.events.toast import ToastFiller
from headwater.connectors.postgres.follower import StreamFollower
from headwater.connectors.postgres.lost_keys import held_of
from headwater.connectors.postgres.publication import (
    coverage,
    excluded_tables,
    manage,
    published_tables,
)
from headwater.connectors.postgres.publication.coverage import (
    find_returned,
    positions_of_new,
    positions_of_removed,
)
from headwater.connectors.postgres.publication.monitor import NEW_TABLES, CaptureMonitor
from headwater.connectors.postgres.publication.published_tables import Publication
from headwater.connectors.postgres.publication.replica_identity import finding_of
from headwater.connectors.postgres.schema_history.column_numbers import ColumnNames
from headwater.connectors.postgres.schema_history.schema_monitor import FormWatch
from headwater.connectors.postgres.schema_history.table_renames import (
    TableNames,
    find_rekeyed,
    forget_keys,
    parts_of_missed,
    parts_of_returned,
)
from headwater.connectors.postgres.server.connection import RIGHTS, PgConnection, connect
from headwater.connectors.postgres.server.lsn import lsn_text, parse_lsn
from headwater.connectors.postgres.settings import PostgresSettings
from headwater.connectors.postgres.slot import replication_slot
from headwater.connectors.postgres.slot.former_reader import once_free
from headwater.connectors.postgres.slot.heartbeat import Heartbeat
from headwater.connectors.postgres.slot.replication_slot import CreatedSlot, SlotMaker
from headwater.connectors.postgres.slot.resume_check import (
    LOST_HINT,
    SERVER,
    STREAM,
    ResumeCheck,
    check_resume,
    may_begin_again,
)
from headwater.connectors.postgres.snapshot.incremental_snapshot import IncrementalSnapshot
from headwater.connectors.postgres.snapshot.initial_snapshot import initial_batches
from headwater.connectors.postgres.snapshot.progress import PREFIX, TableSnapshotProgress, part_of
from headwater.connectors.postgres.snapshot.row_mapper import RowMapper
from headwater.connectors.postgres.snapshot.signals import asks_for_rest
from headwater.connectors.postgres.wal.stream import WalStream, check_origin
from headwater.connectors.source import Control, Remark, SnapshotProgress, SourceContext
from headwater.connectors.stream_follower import SourceHeartbeat
from headwater.core_log.client.gather import together
from headwater.core_log.foundation.errors import (
    Diagnostic,
    HeadwaterError,
    PositionLost,
    SourceRejected,
    SourceUnavailable,
    first_names,
)
from headwater.core_log.model.changes import ChangeBatch, Positions, TableChanges
from headwater.core_log.model.table_schema import TableId

logger = logging.getLogger(__name__)


class ReplicationSession:
    """Ends with an error when a connection breaks; the next run continues from the position."""

    def __init__(
        self, settings: PostgresSettings, context: SourceContext, resume_from: Positions
    ) -> None:
        self._settings, self._context = settings, context
        self._resume_from = resume_from
        self._slot = replication_slot.slot_name(settings, context.pipeline)
        self._publication = published_tables.publication_name(settings, context.pipeline)
        self._set_aside = RejectedRows()
        self.tables: Sequence[CapturedTable] = ()
        """The tables as they were at the start of this run."""
        self._following: StreamFollower | None = None
        self._say_of_slot = lambda finding: context.report(
            Remark(replication_slot.WAITED_FOR_SLOT, finding)
        )
        self._signals: list[Control] = []
        """Signals that came before the stream was followed."""

    async def batches(self) -> AsyncGenerator[ChangeBatch, None]:
        try:
            async with aclosing(self._batches()) as batches:
                async for batch in batches:
                    yield self._set_aside.with_rejects(batch)
        except SourceRejected as error:
            if error.facts.get("sqlstate") == RIGHTS and (lost := await self._find_lost()):
                raise SourceUnavailable(
                    "tables cannot be captured any more", tables=first_names(lost), why=str(error)
                ) from None
            raise

    async def _find_lost(self) -> list[TableId]:
        """Tables that this run captures, and the next one will leave out."""
        async with open_connection(self._settings) as connection:
            looked = await look(connection, self._settings, self._context.pipeline)
        known = {each.oid for each in self.tables}
        return sorted({each.table for each in looked.refused if each.oid in known})

    async def _batches(self) -> AsyncGenerator[ChangeBatch, None]:
        async with AsyncExitStack() as stack:
            line, connection = await together(
                [self._connect(stack, replication=True), self._connect(stack)]
            )
            if await self._is_done(connection):
                return
            resume = await self._check_resume(line)
            check_origin(self._settings.origin, resume.server.version)
            before, looked, held = await self._look(connection)
            tables = looked.tables
            left = self._find_gone(before, looked, held)
            resume = self._with_publication(resume, before)
            back, missed = self._back(before, tables) if resume.start is not None else ([], [])
            entries = await self._publish(connection, tables, held, left, before)
            watch = self._watch(looked, held, entries, left)
            await watch.look_at_first(connection, before)
            reader = self._reader(resume)
            positions, keys = dict(self._resume_from), self._restore_keys(tables, back)
            await self._keep_failover(line, resume)
            if (start := resume.start) is None:
                created = await self._slot_after_a_look(line, connection, resume, reader, watch)
                looked = await self._as_they_are_now(connection, tables)
                tables, start = looked.tables, created.consistent_lsn
                rekeyed = find_rekeyed(self._resume_from, tables)
                keys = KeyHistory.restore({}, tables)
                forget_keys(self._resume_from, rekeyed, keys)
                told = {
                    coverage.PART: entries,
                    **positions_of_new({}, self.tables, reads_new=self._may_read),
                    **keys.news(),
                    **await watch.forms.parts_at_start({}, connection, self._context),
                    **parts_of_returned(self._resume_from, rekeyed, since=start),
                }
                positions = dict(told)
                read_now = [each for each in tables if each not in rekeyed]
                first = Heartbeat(self._settings, self._context, slot=self._slot).beside(
                    self._first(created, resume, read_now, reader, told, connection)
                )
                async with aclosing(first) as batches:
                    async for batch in batches:
                        positions |= batch.positions
                        yield batch
            new = await watch.forms.parts_at_start(positions, connection, self._context)
            new |= positions_of_new(positions, tables, reads_new=self._may_read)
            news = {**keys.news(), **new}
            news |= await _of_lost_keys({**positions, **news}, tables, held, connection)
            if (
                (gone := coverage.ends_of_rereads({**positions, **left}, [*tables, *held]))
                or (left or back or missed or news or held)
                or positions.get(coverage.PART) != entries
            ):
                since = await wal_end(connection) if back or missed else 0
                anew = parts_of_missed(missed, since=since)
                anew |= parts_of_returned(positions, back, since=since)
                changed = {**left, **news, **anew, coverage.PART: entries}
                positions |= changed
                yield ChangeBatch(
                    self._truncate(missed, reader, start),
                    changed,
                    replacements=(*lost_keys.pending(held), *gone),
                )
            self._say_read(tables, positions)
            names = TableNames.restore(
                {} if resume.start is None else self._resume_from,
                tables,
                back=[*back, *missed],
                is_followed=self._may_read,
            )
            translator = self._translator(connection, looked, held, keys, names, reader, watch)
            incremental = IncrementalSnapshot(
                reader,
                looked.catalog,
                tables,
                positions,
                reads_new=self._may_read,
                forms=watch.forms,
            )
            following = await self._follow(line, resume, translator, incremental, start, watch)
            await self._take_up_signals(following)
            async with aclosing(following.batches()) as batches:
                async for batch in batches:
                    yield batch
            await self._finish(connection, watch, following)

    async def _finish(
        self, connection: PgConnection, watch: CaptureMonitor, following: StreamFollower
    ) -> None:
        if self._context.until_end:
            await watch.look_last(connection)
        if self._stops_after_rows and following.has_read_all:
            await replication_slot.drop(connection, self._slot, ends_reader=True)

    async def _look(
        self, connection: PgConnection
    ) -> tuple[Publication | None, DiscoveredTables, list[CapturedTable]]:
        """Returns publication, tables, and the tables that wait for a key. The publication is read
        first, so that later changes of it are noticed."""
        publication = await published_tables.look(connection, self._publication)
        looked = await self._look_at_tables(connection)
        if not looked.tables:
            about = await excluded_tables.look(connection, self._settings.tables)
            found = [each for each in about.values() if each is not None]
            if (left_out := finding_of(looked.refused)) is not None:
                found.append(left_out)
            raise SourceRejected(
                "no table that matches `tables` can be captured"
                if looked.refused
                else "no table matches `tables`",
                **({"why": "; ".join(each.problem for each in found)} if found else {}),
                hint=" ".join(each.hint for each in found) or "correct `tables` of the source",
            )
        held = held_of(self._resume_from, looked.tables) if self._may_read else []
        looked = looked._replace(tables=[each for each in looked.tables if each not in held])
        self.tables = looked.tables
        return publication, looked, held

    async def _look_at_tables(self, connection: PgConnection) -> DiscoveredTables:
        context = self._context
        return await look(connection, self._settings, context.pipeline, refusal=context.refusal)

    async def _as_they_are_now(
        self, connection: PgConnection, tables: Sequence[CapturedTable]
    ) -> DiscoveredTables:
        """Reads the tables again: a slot waits for open transactions, and tables may get other
        columns meanwhile that the stream does not show. New tables wait for the next run."""
        looked = await self._look_at_tables(connection)
        known = {each.oid for each in tables}
        return looked._replace(tables=[each for each in looked.tables if each.oid in known])

    async def acknowledge(self, positions: Positions) -> None:
        if self._following is None or STREAM not in positions:
            return
        place = parse_lsn(positions[STREAM])
        if not self._following.is_over:
            self._following.confirm(place)
        else:
            with suppress(HeadwaterError):  # the next run confirms as well
                await advance(self._settings, self._slot, place)

    async def control(self, control: Control) -> None:
        if self._following is None:
            self._signals.append(control)
        else:
            await self._following.control(control)

    async def _take_up_signals(self, following: StreamFollower) -> None:
        """Fulfils the signals; one that cannot be fulfilled is logged, and stops nothing."""
        self._following = following
        for signal in self._signals:
            try:
                await following.control(signal)
            except HeadwaterError as error:
                logger.warning("the signal %s is refused: %s", signal.kind, error)
        self._signals = []

    def _find_gone(
        self, before: Publication | None, looked: DiscoveredTables, held: Sequence[CapturedTable]
    ) -> dict[str, str]:
        """Returns parts of removed tables, and of tables whose published changes are left out."""
        streamed = frozenset[TableId]() if before is None else before.covered
        skipped = [each.table for each in looked.refused if each.table in streamed]
        return positions_of_removed(self._resume_from, [*looked.tables, *held], skipped)

    def _watch(
        self,
        looked: DiscoveredTables,
        held: Sequence[CapturedTable],
        entries: str,
        left: Positions,
    ) -> CaptureMonitor:
        watched = [*looked.tables, *held]
        forms = FormWatch.of(self._resume_from, watched, looked.catalog, may_read=self._may_read)
        numbers = {each.table: each.oid for each in watched}
        return CaptureMonitor(
            self._settings,
            self._context,
            self._publication,
            numbers,
            entries,
            forms,
            looked.refused,
            [each.table for each in held],
            coverage.find_left({**self._resume_from, **left}),
        )

    def _reader(self, resume: ResumeCheck) -> RowMapper:
        origin = SourceOrigin(self._context.pipeline, resume.server.database)
        return RowMapper(self._settings, self._context, origin, self._set_aside)

    @property
    def _may_read(self) -> bool:
        return self._settings.snapshot.mode != "never"

    @property
    def _stops_after_rows(self) -> bool:
        return self._settings.snapshot.mode == "initial_only"

    async def _is_done(self, connection: PgConnection) -> bool:
        """Where only rows are to be read, the slot goes when they have been; one that went before
        is lost."""
        if not self._stops_after_rows or STREAM not in self._resume_from:
            return False
        if not coverage.are_all_read(self._resume_from):
            return False
        if await replication_slot.look(connection, self._slot) is not None:
            return False
        await self._tell_of_later(connection)
        return True

    async def _tell_of_later(self, connection: PgConnection) -> None:
        """Reports tables that nobody reads, because the file names them since the end."""
        tables = (await look(connection, self._settings, self._context.pipeline)).tables
        later = [each.table for each in tables if part_of(each.table) not in self._resume_from]
        found = None
        if later:
            found = Diagnostic(
                f"{first_names(later)} match `tables` and are not read: with `initial_only` this"
                " pipeline was through before they came",
                "capture them with another pipeline",
                is_fatal=False,
                left_out=tuple(map(str, later)),
            )
            logger.warning("%s: %s", found.problem, found.hint)
        self._context.report(Remark(NEW_TABLES, found))

    def _say_read(self, tables: Sequence[CapturedTable], positions: Positions) -> None:
        """Reports tables that earlier runs have read, because a report covers one run only."""
        for each in tables:
            said = positions.get(part_of(each.table))
            progress = None if said is None else TableSnapshotProgress.parse(said)
            is_stored = part_of(each.table) in self._resume_from
            if progress is not None and progress.is_done and is_stored:
                rows = progress.rows
                self._context.report(SnapshotProgress(each.table, rows, rows or None, is_done=True))

    async def _connect(self, stack: AsyncExitStack, *, replication: bool = False) -> PgConnection:
        name = replication_slot.reader_name(self._context.pipeline)
        connection = await connect(self._settings, replication=replication, name=name)
        stack.push_async_callback(connection.close)
        return connection

    async def _publish(
        self,
        connection: PgConnection,
        tables: Sequence[CapturedTable],
        held: Sequence[CapturedTable],
        left: Collection[str],
        before: Publication | None,
    ) -> str:
        """Returns its part of the position."""
        names = [each.table for each in tables]
        spared = [part.removeprefix(PREFIX) for part in (*left, *(part_of(t.table) for t in held))]
        done = await manage.keep(
            connection, self._settings, self._publication, names, spared=spared
        )
        now = await published_tables.look(connection, self._publication) if done else before
        return coverage.position_value(now, names)

    def _with_publication(self, resume: ResumeCheck, found: Publication | None) -> ResumeCheck:
        why = coverage.why_lost(self._resume_from, found)
        if resume.start is None or not why:
            return resume
        if not may_begin_again(self._settings):
            raise PositionLost(why, publication=self._publication, hint=LOST_HINT)
        return replace(resume, start=None, lost=why)

    def _back(
        self, found: Publication | None, tables: Sequence[CapturedTable]
    ) -> tuple[list[CapturedTable], list[CapturedTable]]:
        """Tables that came back, and those that are to be emptied and read again, as changes of
        them have been missed. Raises where the file does not say so."""
        back = find_returned(self._resume_from, tables)
        kept = lost_keys.not_awaited(self._resume_from, tables)
        missed = coverage.missed_of(self._resume_from, found, kept)
        if not missed:
            return back, []
        if self._settings.snapshot.mode == "never":
            logger.warning(
                "changes have been missed, as %s were not published", first_names(missed)
            )
            return back, []
        if not may_begin_again(self._settings):
            raise coverage.not_sent(missed, self._publication)
        emptied = [each for each in tables if each.table in missed]
        rekeyed = find_rekeyed(self._resume_from, emptied)
        return [*back, *rekeyed], [each for each in emptied if each not in rekeyed]

    def _restore_keys(
        self, tables: Sequence[CapturedTable], back: Sequence[CapturedTable]
    ) -> KeyHistory:
        keys = KeyHistory.restore(self._resume_from, tables)
        forget_keys(self._resume_from, back, keys)
        return keys

    async def _check_resume(self, line: PgConnection) -> ResumeCheck:
        return await once_free(
            lambda: check_resume(line, self._settings, self._slot, self._resume_from),
            line,
            slot=self._slot,
            reader=replication_slot.reader_name(self._context.pipeline),
            say=self._say_of_slot,
        )

    async def _keep_failover(self, line: PgConnection, resume: ResumeCheck) -> None:
        if resume.start is not None and resume.slot is not None:
            wanted = self._wants_failover(resume)
            await replication_slot.keep_failover(line, resume.slot, wanted=wanted)

    def _wants_failover(self, resume: ResumeCheck) -> bool:
        server = resume.server
        return replication_slot.wants_failover(
            self._settings, server.version, is_standby=server.is_standby
        )

    async def _slot_after_a_look(
        self,
        line: PgConnection,
        connection: PgConnection,
        resume: ResumeCheck,
        reader: RowMapper,
        watch: CaptureMonitor,
    ) -> CreatedSlot:
        """Creates the slot again if a table changed its form meanwhile: its rows may have both
        forms, and only the first one is stored."""
        making = SlotMaker(
            line,
            connection,
            self._slot,
            self._say_of_slot,
            has_failover=self._wants_failover(resume),
            exports=self._settings.snapshot.mode != "never" and reader.hours.are_on,
        )
        while True:
            await watch.forms.look_first(connection)
            created = await making.make()
            if not await watch.forms.look(connection):
                return created

    async def _first(
        self,
        created: CreatedSlot,
        resume: ResumeCheck,
        tables: Sequence[CapturedTable],
        reader: RowMapper,
        told: Positions,
        connection: PgConnection,
    ) -> AsyncGenerator[ChangeBatch, None]:
        """Yields the rows of the initial snapshot, after the position of the stream and the parts
        of the tables."""
        stream = lsn_text(created.consistent_lsn)
        positions = {SERVER: resume.server.part, STREAM: stream, **told}
        if resume.lost:
            yield ChangeBatch(self._truncate(tables, reader, created.consistent_lsn), {})
        if created.snapshot is None:
            yield ChangeBatch((), positions)
            return

        def goes_on() -> bool:
            return reader.hours.are_on and not any(map(asks_for_rest, self._signals))

        rows = initial_batches(reader, created, tables, connection, goes_on=goes_on)
        async with aclosing(rows) as batches:
            async for batch in batches:
                yield replace(batch, positions={**positions, **batch.positions})
                positions = {}

    def _truncate(
        self, tables: Sequence[CapturedTable], reader: RowMapper, lsn: int
    ) -> tuple[TableChanges, ...]:
        now_us = self._context.clock.now_ms() * 1_000
        return tuple(truncate_changes(each.schema, reader.origin, lsn, now_us) for each in tables)

    def _translator(
        self,
        connection: PgConnection,
        looked: DiscoveredTables,
        held: Sequence[CapturedTable],
        keys: KeyHistory,
        names: TableNames,
        reader: RowMapper,
        watch: CaptureMonitor,
    ) -> EventMapper:
        settings, questions = self._settings, LookupConnection(connection, slot=self._slot)
        toast = ToastFiller(
            questions,
            reader.kernels,
            self._context.report,
            has_placeholders=settings.toast == "placeholder",
        )
        return EventMapper(
            reader.origin,
            questions,
            CapturedRelations(
                questions,
                looked.catalog,
                looked.tables,
                keys,
                names,
                watch.forms,
                refused=looked.refused,
                held=held,
                column_names=ColumnNames.restore(self._resume_from),
                may_replace=self._may_read,
                told=watch.refuse,
                refusal=self._context.refusal,
            ),
            toast,
            RepeatedKeys(toast),
            self._context.clock,
            has_messages=settings.has_messages,
            binary=settings.binary,
            set_aside=reader.set_aside,
            counts=TransactionCounts() if settings.has_transactions else None,
        )

    async def _follow(
        self,
        line: PgConnection,
        resume: ResumeCheck,
        translator: EventMapper,
        incremental: IncrementalSnapshot,
        start: int,
        watch: CaptureMonitor,
    ) -> StreamFollower:
        settings, clock = self._settings, self._context.clock
        translator.captures.next_progress = incremental.next_progress
        translator.captures.note_unknown_ids = incremental.note_unknown_ids
        end = resume.server.wal_end if self._context.until_end else None
        if self._stops_after_rows:
            end = start
        stream = await WalStream.start(
            line,
            clock,
            slot=self._slot,
            publications=[self._publication],
            start_at=start,
            receive_bytes=settings.receive_bytes,
            has_messages=settings.has_messages,
            origin=settings.origin,
        )
        if stream.way == "libpq":
            logger.info(
                "the stream is encrypted, so it is read by way of libpq, at the plainer rate"
            )
        return StreamFollower(
            stream,
            translator,
            incremental,
            Heartbeat(settings, self._context, slot=self._slot, watch=watch),
            watch,
            beat=SourceHeartbeat(self._context.pipeline, clock, every_ms=settings.heartbeat_ms),
            server=resume.server.part,
            start=start,
            clock=clock,
            end=end,
            awaits_paused=self._stops_after_rows and not self._context.until_end,
        )


async def _of_lost_keys(
    positions: Positions,
    tables: Sequence[CapturedTable],
    held: Sequence[CapturedTable],
    connection: PgConnection,
) -> dict[str, str]:
    """Returns parts of the position: from where on the rows of these tables may be read."""
    after = await wal_end(connection)
    cured = lost_keys.parts_of_cured(positions, tables, after=after)
    return cured | lost_keys.parts_of_held(positions, held, after=after)
