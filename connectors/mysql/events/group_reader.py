"""Follows the groups of the binary log: which rows are committed, and what statements change."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import repeat
from typing import NamedTuple

from headwater.connectors.mysql.binlog.decoder import (
    BinlogEvent,
    Decoded,
    Gtid,
    LogIncident,
    MariadbGtid,
    PassingEvent,
    PreviousGtids,
    Query,
    Rotate,
    TransactionCommit,
    XaPrepare,
)
from headwater.connectors.mysql.binlog.event import EventHeader, EventType
from headwater.connectors.mysql.binlog.rows import RowsEvent
from headwater.connectors.mysql.binlog.simple_groups import SimpleGroups
from headwater.connectors.mysql.binlog.table_map import TableMap
from headwater.connectors.mysql.binlog.transport import NEWER_HINT
from headwater.connectors.mysql.events.held_rows import HeldRows, MemoryBudget
from headwater.connectors.mysql.events.row_buffer import (
    EventPlace,
    MysqlOrigin,
    RowBuffer,
    truncation_of,
)
from headwater.connectors.mysql.position import CREATED, NOWHERE, BinlogPosition, xa_parts
from headwater.connectors.mysql.schema_history.mysql_statement import (
    MysqlStatement,
    StatementKind,
    read_statement,
)
from headwater.connectors.mysql.schema_history.stream_forms import (
    NOT_WHOLE,
    OTHER_FORM,
    StreamForms,
)
from headwater.connectors.mysql.server.catalog import MysqlTable
from headwater.connectors.mysql.server.gtid_set import GtidSet, MariadbGtids
from headwater.connectors.mysql.server.server_identity import FilePosition
from headwater.core_log.foundation.errors import PositionLost, SourceRejected
from headwater.core_log.model.changes import TableChanges
from headwater.core_log.model.table_schema import TableId

BATCH_BYTES = 4 << 20
"""Bytes of rows per batch; a larger transaction is emitted in several, the last with a position."""
LEFT = "it could not be captured for a while"
NOT_ROWS = "changes were logged as statements (binlog_format)"
ROLLED_BACK = "a transaction was rolled back after its rows were logged"
UNKNOWN_XA = "an XA transaction was committed whose rows were logged before the first position"


@dataclass(slots=True)
class _Prepared:
    """A prepared XA transaction: its rows, and the position just before it."""

    before: BinlogPosition
    rows: HeldRows


class StoredLogFile(NamedTuple):
    """The file of the stored position on the same server, and when it was created."""

    name: str
    created: int
    """The second; 0 if it is not known."""


NO_FILE = StoredLogFile("", 0)


@dataclass(slots=True)
class BinlogGroupReader:
    """The state along the stream. `feed` takes events; between groups the rows can be taken."""

    origin: MysqlOrigin
    position: BinlogPosition
    tables: Mapping[TableId, MysqlTable]
    """The captured tables in their present form."""
    captures: Callable[[TableId], bool]
    charsets: Mapping[int, str]
    is_mariadb: bool
    has_gtids: bool = True
    """Whether every new transaction of the server has a GTID."""
    folds_names: bool = False
    """Whether names of tables are the same in any letter case, and stored in small letters."""
    stops_at: FilePosition | None = None
    """No event is taken behind this place until it is None again."""
    skips: BinlogPosition | None = None
    """Groups up to there were emitted before: only prepared XA transactions are read of them."""
    stored: StoredLogFile = NO_FILE
    file: str = ""
    created: int = 0
    """The second in which that file was created."""
    is_open: bool = False
    """Whether a group has begun and not ended."""
    suspects: dict[TableId, str] = field(default_factory=dict)
    """Tables to be looked at again in the catalogue at the end of the group, and why."""
    prepared: dict[str, _Prepared] = field(default_factory=dict)
    forms: StreamForms = field(init=False)
    _gtid: Gtid | MariadbGtid | None = None
    _gtid_text: str | None = None
    _begun: FilePosition = NOWHERE
    """Where the first event of the group ends."""
    _commit: str = ""
    _is_skipped: bool = False
    _has_begun: bool = False
    _xa: str = ""
    _budget: MemoryBudget = field(default_factory=MemoryBudget)
    _xa_rows: HeldRows | None = None
    _decided: Iterator[tuple[RowsEvent, EventPlace]] | None = None
    """Rows of an XA transaction that is being committed, whose group stays open."""
    _decided_end: int = 0
    _thread: int | None = None
    _group: int = 0
    """Number of the group that is read."""
    _group_tables: set[TableId] = field(default_factory=set)
    _begins: BinlogPosition = field(init=False)
    """Where the stream begins: before all prepared XA transactions that are still to be read."""
    _buffer: RowBuffer = field(init=False)
    _done: list[TableChanges] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._buffer, self._begins = RowBuffer(self.origin), self.position.copy()
        self.created = self.stored.created
        self.forms = StreamForms(self.charsets, self.is_mariadb)

    @property
    def has_rows(self) -> bool:
        return bool(self._buffer.byte_count or self._done)

    @property
    def holds_rows(self) -> bool:
        """Whether rows of earlier events wait for the end of their transaction."""
        return self.has_rows or bool(self.prepared)

    @property
    def is_full(self) -> bool:
        """Whether the rows so far are enough for a batch."""
        return self._buffer.byte_count >= BATCH_BYTES

    @property
    def is_at_stop(self) -> bool:
        if self.stops_at is None or self.is_open:
            return False
        return self.position.place.order >= self.stops_at.order

    def wants(self, table: TableMap) -> bool:
        return self.captures(TableId(table.database, table.name))

    def feed(self, decoded: Decoded) -> None:
        header, event = decoded
        match event:
            case TableMap():
                return
            case RowsEvent():
                self._rows(decoded, event)
            case Gtid() | MariadbGtid():
                self._begin(event, header.end_position)
            case TransactionCommit():
                self._end(header.end_position)
            case Query():
                self._query(decoded, event)
            case _:
                self._rare(header, event)

    def takes(self, groups: SimpleGroups) -> bool:
        """Whether these transactions may be fed together."""
        is_between = not (self.is_open or self.suspects or self._decided)
        has_all_to_read = self.stops_at is None and self.skips is None
        if not (is_between and has_all_to_read) or self.position.gtids is None:
            return False
        name = groups.layout.table.id
        table = self.tables.get(name)
        if table is None or table.problem or not self.forms.has_key(table):
            return False
        return self.forms.of(groups.layout, table) == (table, "")

    def feed_groups(self, groups: SimpleGroups) -> None:
        """Takes transactions that `takes` has allowed."""
        table, gtids, count = self.tables[groups.layout.table.id], groups.gtids, len(groups.rows)
        begins = [self.position.place.position, *groups.ends]
        positions = [known or begin for known, begin in zip(groups.positions, begins, strict=False)]
        places = list(
            map(
                EventPlace, gtids, gtids, groups.committed_us, repeat(self.file), positions,
                groups.threads, groups.server_ids,
            )
        )  # fmt: skip
        events = list(map(RowsEvent, repeat(groups.layout), groups.rows))
        self._write(table)
        self._buffer.add_groups(table, events, places, self._group + 1)
        self._group += count
        self._thread = None
        _add_gtids(self.position.gtids, groups)
        self._move_to(groups.ends[-1])

    def _rare(self, header: EventHeader, event: BinlogEvent) -> None:
        match event:
            case XaPrepare():
                self._prepare(event, header.end_position)
            case PassingEvent() if event.kind == EventType.FORMAT_DESCRIPTION:
                self._learn_file(header)
            case PreviousGtids():
                self._learn_gtids(event)
                self._move_to(header.end_position)
            case Rotate():
                self.file = event.file
                if not self.is_open:
                    self._move_to(event.position)
            case LogIncident():
                raise SourceRejected(
                    "the server says that its binary log lacks changes",
                    why=event.message,
                    hint="write `position_mismatch: resnapshot` into the source, after the server"
                    " was mended",
                )
            case _ if not (self.is_open or header.is_artificial):
                self._move_to(header.end_position)

    def add_decided(self) -> bool:
        """Adds rows of an XA transaction that is committed, up to a batch; returns whether none are
        left. It has to be called behind each `feed`."""
        if self._decided is None:
            return True
        for event, place in self._decided:
            self._add(event, place)
            if self.is_full:
                return False
        self._decided = None
        self._end(self._decided_end)
        return True

    def take(self) -> list[TableChanges]:
        """Returns the changes so far, each once."""
        found, self._done = [*self._done, *self._buffer.take()], []
        return found

    def parts(self) -> dict[str, str]:
        """Returns the position between two groups."""
        oldest = min(
            (each.before for each in self.prepared.values()),
            key=lambda each: each.place.order,
            default=None,
        )
        if self.skips is None:
            return {**self.position.parts(), CREATED: str(self.created), **xa_parts(oldest)}
        created = str(self.stored.created)
        return {**self.skips.parts(), CREATED: created, **xa_parts(self._begins)}

    def _learn_file(self, header: EventHeader) -> None:
        """A stream says when its file was created, also if it begins in its middle."""
        name, created = self.stored
        if self.file == name and created not in (0, header.timestamp):
            raise PositionLost(
                "the file of the binary log in which our position is was created anew",
                file=name,
                hint=NEWER_HINT,
            )
        self.created = header.timestamp
        if not (self.is_open or header.is_artificial):
            self._move_to(header.end_position)

    def _learn_gtids(self, previous: PreviousGtids) -> None:
        """A new file says which transactions are in the files before it: from here on a position
        has GTIDs."""
        is_between = not (self.is_open or self.prepared or self.skips)
        if self.position.gtids is None and self.has_gtids and is_between:
            self.position.gtids = previous.gtids.copy()

    def _move_to(self, position: int) -> None:
        if self.file and position:
            self.position.place = FilePosition(self.file, position)
            for name in self.forms.left_by(self.position.place) if self.forms.leaving else ():
                self.suspects.setdefault(name, LEFT)

    def _begin(self, gtid: Gtid | MariadbGtid, end_position: int) -> None:
        if not gtid.number and self.position.gtids is not None:
            raise SourceRejected(
                "a transaction of the binary log has no GTID",
                hint="SET GLOBAL gtid_mode = ON, step by step as MySQL's manual says",
            )
        self.is_open, self._gtid, self._commit, self._thread = True, gtid, "", None
        self._begun = FilePosition(self.file, end_position)
        self._group += 1
        self._group_tables.clear()
        self._is_skipped = self._was_emitted(gtid)
        self._has_begun, self._xa = False, ""
        if isinstance(gtid, MariadbGtid):
            self._has_begun = not gtid.is_standalone
            if gtid.prepared_xid is not None:
                self._xa = gtid.prepared_xid.decode()

    def _was_emitted(self, gtid: Gtid | MariadbGtid) -> bool:
        if self.skips is None:
            return False
        known = self.skips.gtids
        if known is None:
            return self._begun.order <= self.skips.place.order
        if isinstance(gtid, Gtid):
            assert isinstance(known, GtidSet), "MySQL's positions are sets"
            return known.has((gtid.uuid, gtid.tag), gtid.number)
        assert isinstance(known, MariadbGtids), "MariaDB's positions are numbers of domains"
        return known.has(gtid.domain, gtid.number)

    def _rows(self, decoded: Decoded, event: RowsEvent) -> None:
        if self._is_skipped and not self._xa:
            return
        place = self._place(decoded)
        if self._xa:
            if self._xa_rows is None:
                self._xa_rows = HeldRows(self._budget)
            self._xa_rows.add(event, place, size=decoded.header.size)
        else:
            self._add(event, place)

    def _place(self, decoded: Decoded) -> EventPlace:
        gtid, header = self._gtid, decoded.header
        if gtid is None:
            raise SourceRejected(
                "rows of the binary log belong to no transaction",
                hint="headwater doctor",
            )
        start = header.end_position - header.size
        position = start if header.end_position else self.position.place.position
        if not self._commit:
            self._gtid_text = gtid.text if gtid.number else None
            has_place = self.position.gtids is None or self._gtid_text is None
            self._commit = str(self._begun) if has_place else gtid.text
        return EventPlace(
            self._commit,
            self._gtid_text,
            gtid.committed_us,
            self.file,
            position,
            self._thread,
            header.server_id,
        )

    def _add(self, event: RowsEvent, place: EventPlace) -> None:
        name = event.table.id
        table = self.tables.get(name)
        if table is None:
            self.suspects.setdefault(name, "")
            return
        if table.problem:
            return
        self._group_tables.add(name)
        form, why = self.forms.of(event.layout, table)
        if why and not (why == OTHER_FORM and self.forms.is_expected(name, self._begun)):
            self.suspects[name] = why
        if event.has_unapplied_json:
            self.suspects[name] = NOT_WHOLE
        elif form is not None and self.forms.has_key(form):
            self._write(form)
            self._buffer.add(form, event, place, self._group)

    def _write(self, form: MysqlTable) -> None:
        """Rows of two forms of a table keep their order."""
        if self.forms.written.get(form.table) is not form:
            self._done += self._buffer.take()
            self.forms.write(form)

    def _query(self, decoded: Decoded, query: Query) -> None:
        statement = read_statement(query.text, query.database)
        self._thread = None if self.is_mariadb else query.thread
        end = decoded.header.end_position
        match statement.kind:
            case StatementKind.BEGIN:
                self._has_begun = True
            case StatementKind.XA_START:
                self._has_begun, self._xa = True, statement.xid
            case StatementKind.COMMIT:
                self._end(end)
            case StatementKind.XA_COMMIT | StatementKind.XA_ROLLBACK:
                self._decide(decoded, statement)
            case StatementKind.ROLLBACK | StatementKind.ROLLBACK_TO:
                self._suspect(self._group_tables, ROLLED_BACK)
                if statement.kind is StatementKind.ROLLBACK:
                    self._end(end)
            case StatementKind.SAVEPOINT | StatementKind.XA_END:
                pass
            case _:
                self._statement(decoded, statement, query)
                if not self._has_begun:
                    self._end(end)

    def _statement(self, decoded: Decoded, statement: MysqlStatement, query: Query) -> None:
        """DDL, or a change of rows that was logged as a statement, which may fire any trigger."""
        if self._is_skipped or statement.kind is StatementKind.HARMLESS:
            return
        if statement.kind is StatementKind.ROWS:
            self._suspect(self.tables, NOT_ROWS)
            return
        if statement.kind is StatementKind.TRUNCATE and query.is_readable:
            is_named = statement.may_name if self.folds_names else statement.names_exactly
            for name in filter(is_named, self.tables):
                self._truncate(name, decoded)
            return
        named = [name for name in self.tables if statement.may_name(name) or not query.is_readable]
        self._suspect(named, f"DDL: {' '.join(query.text.split())[:200]}")
        for each in statement.names:
            name = TableId(each.qualifier or statement.database, each.text)
            if self.folds_names:
                name = TableId(name.namespace.lower(), name.name.lower())
            if name not in self.tables and self.captures(name):
                self.suspects.setdefault(name, "")

    def _truncate(self, name: TableId, decoded: Decoded) -> None:
        form = self.forms.written.get(name, self.tables[name])
        if self.tables[name].problem or not self.forms.has_key(form):
            return
        self._done += self._buffer.take()
        self._done.append(truncation_of(form, self.origin, self._place(decoded)))

    def _suspect(self, names: Iterable[TableId], why: str) -> None:
        for name in names:
            self.suspects[name] = why

    def _prepare(self, event: XaPrepare, end: int) -> None:
        xid, rows = event.xid.decode(), self._xa_rows or HeldRows(self._budget)
        self._xa, self._xa_rows = "", None
        if event.is_one_phase:
            self._commit_held(rows, None, end)
        else:
            self.prepared[xid] = _Prepared(self.position.copy(), rows)
            self._end(end)

    def _decide(self, decoded: Decoded, statement: MysqlStatement) -> None:
        held, end = self.prepared.pop(statement.xid, None), decoded.header.end_position
        is_committed = not self._is_skipped and statement.kind is StatementKind.XA_COMMIT
        if held is None:
            if is_committed:
                self._suspect(self.tables, UNKNOWN_XA)
            self._end(end)
        elif is_committed:
            self._commit_held(held.rows, self._place(decoded), end)
        else:
            held.rows.forget()
            self._end(end)

    def _commit_held(self, rows: HeldRows, place: EventPlace | None, end: int) -> None:
        """The rows get GTID and time of their commit, if that is a group of its own."""
        if self._is_skipped:
            rows.forget()
            self._end(end)
            return
        self._decided_end = end
        self._decided = (
            (event, logged) if place is None else (event, _decided_at(logged, place))
            for event, logged in rows.take()
        )

    def _end(self, end_position: int) -> None:
        gtid = self._gtid
        if self.position.gtids is None:
            pass  # the place is all that counts
        elif isinstance(gtid, Gtid):
            assert isinstance(self.position.gtids, GtidSet), "MySQL's positions are sets"
            source = (gtid.uuid, gtid.tag)
            self.position.gtids.add(source, gtid.number, gtid.number + 1)
        elif isinstance(gtid, MariadbGtid):
            assert isinstance(self.position.gtids, MariadbGtids), "MariaDB's are numbers"
            self.position.gtids.add(gtid.domain, gtid.server_id, gtid.number)
        self.is_open, self._gtid, self._has_begun = False, None, False
        self._move_to(end_position)
        if self.skips is not None and self._has_passed(self.skips):
            self.skips = None

    def _has_passed(self, other: BinlogPosition) -> bool:
        """Whether all groups of the other position were read again."""
        ours, theirs = self.position.gtids, other.gtids
        if theirs is None:
            return self.position.place.order >= other.place.order
        if isinstance(ours, GtidSet) and isinstance(theirs, GtidSet):
            return theirs.is_within(ours)
        assert isinstance(ours, MariadbGtids) and isinstance(theirs, MariadbGtids), "of one kind"
        return theirs.is_within(ours)


def _add_gtids(known: GtidSet | MariadbGtids | None, groups: SimpleGroups) -> None:
    first, second = groups.source
    if isinstance(known, MariadbGtids):
        assert isinstance(first, int) and isinstance(second, int), "a domain and a server"
        known.add(first, second, groups.numbers[-1])
        return
    assert isinstance(known, GtidSet) and isinstance(first, str) and isinstance(second, str)
    begin = end = groups.numbers[0]
    for number in groups.numbers:
        if number != end:
            known.add((first, second), begin, end)
            begin = number
        end = number + 1
    known.add((first, second), begin, end)


def _decided_at(logged: EventPlace, place: EventPlace) -> EventPlace:
    return logged._replace(commit=place.commit, gtid=place.gtid, committed_us=place.committed_us)
