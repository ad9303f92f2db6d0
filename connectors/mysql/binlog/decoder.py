"""Decodes the events of a binary log, one after the other, with the rows of the wanted tables."""

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from functools import lru_cache
from io import BytesIO
from typing import NamedTuple, Protocol, TypeAlias
from uuid import UUID

import zstandard

from headwater.connectors.mysql.binlog.byte_reader import ByteReader
from headwater.connectors.mysql.binlog.event import (
    CRC_BYTES,
    HEADER_BYTES,
    IGNORABLE,
    EventHeader,
    EventType,
    body_of,
    parse_header,
)
from headwater.connectors.mysql.binlog.rows import (
    CHANGES,
    NUMBER_BYTES,
    RowDecoder,
    RowsEvent,
    RowsLayout,
    inflate_rows,
    table_number_of,
)
from headwater.connectors.mysql.binlog.table_map import (
    TableMap,
    YearSign,
    parse_table_map,
    year_sign,
)
from headwater.connectors.mysql.server.gtid_set import GtidSet
from headwater.core_log.foundation.errors import DecodeError

CHECKSUM_CRC32 = 1
FLAGS_AT, IN_USE = 17, 1
VERSION_BYTES = 50
PAYLOAD_MAX = 1 << 32
"""Limit of a transaction payload after decompression; the servers allow 4 GiB."""
EVENT_BYTES_MAX = 1 << 30
ORIGINAL_TIME = 1 << 55
TABLES_MAX = 10_000
ZSTD, UNCOMPRESSED = 0, 255
PAYLOAD_END, PAYLOAD_SIZE, PAYLOAD_COMPRESSION, PAYLOAD_RAW_SIZE = range(4)
KNOWN = {int(each) for each in EventType}
STANDALONE, PREPARED_XA, COMPLETED_XA = 0x01, 0x40, 0x80
GROUP_COMMIT = 0x02
PASSING: Set[int] = {
    EventType.STOP,
    EventType.INTVAR,
    EventType.RAND,
    EventType.USER_VAR,
    EventType.IGNORABLE,
    EventType.ROWS_QUERY,
    EventType.TRANSACTION_CONTEXT,
    EventType.VIEW_CHANGE,
    EventType.MARIADB_ANNOTATE_ROWS,
    EventType.MARIADB_BINLOG_CHECKPOINT,
    EventType.MARIADB_GTID_LIST,
}
"""Events without rows and without a place of their own."""


class Rotate(NamedTuple):
    file: str
    position: int


class Gtid(NamedTuple):
    """The begin of a group of MySQL; no number if it has none."""

    uuid: str
    tag: str
    number: int
    committed_us: int

    @property
    def text(self) -> str:
        return ":".join([self.uuid, *([self.tag] if self.tag else []), str(self.number)])


class MariadbGtid(NamedTuple):
    """The begin of a group of MariaDB."""

    domain: int
    server_id: int
    number: int
    committed_us: int
    is_standalone: bool
    """One statement follows and nothing else."""
    prepared_xid: bytes | None = None
    decided_xid: bytes | None = None

    @property
    def text(self) -> str:
        return f"{self.domain}-{self.server_id}-{self.number}"


class Query(NamedTuple):
    database: str
    text: str
    thread: int
    is_readable: bool = True
    """Whether its text is in UTF-8, so that names in it can be compared."""


class TransactionCommit(NamedTuple):
    """The end of a transaction."""


class XaPrepare(NamedTuple):
    xid: bytes
    is_one_phase: bool


class BinlogHeartbeat(NamedTuple):
    file: str


class LogIncident(NamedTuple):
    """The server says that its log lacks changes."""

    message: str


class PreviousGtids(NamedTuple):
    gtids: GtidSet


class PassingEvent(NamedTuple):
    """An event without changes; it only has an end."""

    kind: EventType


BinlogEvent: TypeAlias = (
    Rotate
    | Gtid
    | MariadbGtid
    | Query
    | TransactionCommit
    | XaPrepare
    | BinlogHeartbeat
    | LogIncident
    | PreviousGtids
    | PassingEvent
    | RowsEvent
    | TableMap
)


class Decoded(NamedTuple):
    header: EventHeader
    event: BinlogEvent


class Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


def all_rows(_: TableMap) -> bool:
    return True


@dataclass(slots=True)
class BinlogDecoder:
    """The state between events: the checksum algorithm, and the tables by number."""

    is_mariadb: bool
    has_checksum: bool = False
    """Whether the next event has a checksum; the FORMAT_DESCRIPTION event says it."""
    wants: Callable[[TableMap], bool] = all_rows
    """Whether the rows of a table are decoded."""
    _version: str = ""
    _year: YearSign = YearSign.LOGGED
    _tables: dict[int, RowDecoder | None] = field(default_factory=dict)
    """None for a table whose rows are not wanted."""
    _known: dict[bytes, RowDecoder | None] = field(default_factory=dict)
    """The same by the bytes of their TABLE_MAP, which repeat."""

    def decode(self, event: bytes) -> Iterable[Decoded]:
        """Returns what the event says: nothing, one thing, or the events of a whole payload."""
        header = parse_header(event)
        if header.kind == EventType.FORMAT_DESCRIPTION:
            self._learn_format(event)
            return (Decoded(header, PassingEvent(EventType.FORMAT_DESCRIPTION)),)
        return self._decode(header, body_of(event, header, has_checksum=self.has_checksum))

    def forget_tables(self) -> None:
        """Numbers of tables are only valid in their group and file."""
        self._tables.clear()

    def _learn_format(self, event: bytes) -> None:
        if len(event) < HEADER_BYTES + 57 + CRC_BYTES + 1:
            raise DecodeError("the format description of the binary log is too short")
        version = int.from_bytes(event[HEADER_BYTES : HEADER_BYTES + 2], "little")
        if version != 4:
            raise DecodeError("the binary log has an unknown version", version=version)
        algorithm = event[-CRC_BYTES - 1]
        if algorithm not in (0, CHECKSUM_CRC32):
            raise DecodeError("the binary log has an unknown checksum", algorithm=algorithm)
        self.has_checksum = algorithm == CHECKSUM_CRC32
        flags = event[FLAGS_AT] & ~IN_USE  # set while the file is open, without a new checksum
        event = event[:FLAGS_AT] + bytes([flags]) + event[FLAGS_AT + 1 :]
        body_of(event, parse_header(event), has_checksum=self.has_checksum)
        self.forget_tables()
        written = event[HEADER_BYTES + 2 : HEADER_BYTES + 2 + VERSION_BYTES]
        self._version = written.rstrip(b"\0").decode("ascii", "replace")
        year = year_sign(self._version, is_mariadb=self.is_mariadb)
        if year is not self._year:
            self._known.clear()
            self._year = year

    def _decode(self, header: EventHeader, body: bytes) -> Iterable[Decoded]:
        kind = header.kind
        if kind in CHANGES:
            decoder = self._decoder_of(body)
            return () if decoder is None else (Decoded(header, decoder.decode(kind, body)),)
        if kind == EventType.TABLE_MAP:
            table = self._learn_table(body)
            return () if table is None else (Decoded(header, table),)
        if kind in PARSERS:
            found = PARSERS[kind](header, body)
            if kind == EventType.ROTATE:
                self.forget_tables()
            return (Decoded(header, found),)
        if kind in PASSING:
            return (Decoded(header, PassingEvent(EventType(kind))),)
        if kind == EventType.TRANSACTION_PAYLOAD:
            return self._payload(header, body)
        if header.flags & IGNORABLE and kind not in KNOWN:
            return ()
        raise _not_understood(header)

    def _decoder_of(self, body: bytes) -> RowDecoder | None:
        number = table_number_of(body)
        try:
            return self._tables[number]
        except KeyError:
            raise DecodeError("rows of the binary log have no table", number=number) from None

    def _learn_table(self, body: bytes) -> TableMap | None:
        """Returns the table if its rows are wanted."""
        number = table_number_of(body)
        if len(self._known) > TABLES_MAX:
            self._known.clear()
        if body not in self._known:
            table = parse_table_map(body, is_mariadb=self.is_mariadb, year=self._year)
            is_wanted = self.wants(table)
            if is_wanted and table.has_unsure_signs:
                raise DecodeError(
                    "a table with a column of type YEAR has numbers whose sign is unknown: some"
                    " versions of MySQL write a sign for YEAR and others do not",
                    hint="leave the table out, or read it from a server of version 8.0.29 or newer",
                    table=str(table.id),
                    version=self._version,
                )
            self._known[body] = RowDecoder(table) if is_wanted else None
        decoder = self._tables[number] = self._known[body]
        return None if decoder is None else decoder.table

    def known_layout(self, table: bytes, kind: int, rows: bytes) -> tuple[RowsLayout, int] | None:
        """Returns the layout of a row event behind a TABLE_MAP, and the bytes before its rows, if
        both were seen before and the rows are wanted."""
        decoder = self._known.get(table)
        if decoder is None or rows[:NUMBER_BYTES] != table[:NUMBER_BYTES]:
            return None
        return decoder.known_layout(kind, rows)

    def use_table(self, table: bytes) -> None:
        """Takes a known TABLE_MAP as read."""
        self._tables[table_number_of(table)] = self._known[table]

    def choose_again(self) -> None:
        """Asks again of which tables the rows are wanted, from the next TABLE_MAP on."""
        self._known.clear()

    def _payload(self, header: EventHeader, body: bytes) -> Iterator[Decoded]:
        """The events inside have no checksums and no positions."""
        reader = ByteReader(body)
        compression, raw_size, size = ZSTD, 0, reader.left
        while (kind := reader.lenenc()) != PAYLOAD_END:
            part = ByteReader(reader.take(reader.lenenc()))
            if kind == PAYLOAD_COMPRESSION:
                compression = part.lenenc()
            elif kind == PAYLOAD_RAW_SIZE:
                raw_size = part.lenenc()
            elif kind == PAYLOAD_SIZE:
                size = part.lenenc()
        data = reader.take(min(size, reader.left))
        if compression not in (ZSTD, UNCOMPRESSED) or raw_size > PAYLOAD_MAX:
            raise DecodeError(
                "a compressed transaction of the binary log cannot be opened",
                compression=compression,
                bytes=raw_size,
            )
        try:
            for event in _events_of(data, is_compressed=compression == ZSTD):
                inner = parse_header(event)
                yield from self._decode(inner, event[HEADER_BYTES:])
        except zstandard.ZstdError:
            raise DecodeError(
                "a compressed transaction of the binary log cannot be opened",
                position=header.end_position,
            ) from None


def _events_of(data: bytes, *, is_compressed: bool) -> Iterator[bytes]:
    """Yields whole events; no more than one of them is in memory."""
    stream: Readable = BytesIO(data)
    if is_compressed:
        opener = zstandard.ZstdDecompressor()
        stream = opener.stream_reader(BytesIO(data), read_across_frames=True)
    while head := _read(stream, HEADER_BYTES):
        if len(head) < HEADER_BYTES:
            raise DecodeError("a compressed transaction of the binary log ends inside of an event")
        size = int.from_bytes(head[9:13], "little")
        if not HEADER_BYTES <= size <= EVENT_BYTES_MAX:
            raise DecodeError(
                "an event of a compressed transaction has no possible size", size=size
            )
        body = _read(stream, size - HEADER_BYTES)
        if len(body) < size - HEADER_BYTES:
            raise DecodeError("a compressed transaction of the binary log ends inside of an event")
        yield head + body


def _read(stream: Readable, count: int) -> bytes:
    parts: list[bytes] = []
    while count and (part := stream.read(min(count, 1 << 20))):
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def _not_understood(header: EventHeader) -> DecodeError:
    return DecodeError(
        "an event of the binary log has a type that is not supported, and it may hold changes",
        type=header.kind,
        position=header.end_position,
        hint="upgrade Headwater, or turn off the feature of the server that writes this event",
    )


NUMBER_END, TIMES_AT, TIME_BYTES = 25, 42, 7
"""In a GTID event: flags, uuid, number, the kind of two more numbers, those, one or two times."""


@lru_cache(1_024)
def _uuid_text(raw: bytes) -> str:
    return str(UUID(bytes=raw))


def _gtid(header: EventHeader, body: bytes, *, has_number: bool) -> Gtid:
    if len(body) < NUMBER_END:
        ByteReader(body).skip(NUMBER_END)  # fails
    number = int.from_bytes(body[17:NUMBER_END], "little", signed=True)
    committed_us = header.timestamp * 1_000_000
    if len(body) >= TIMES_AT + TIME_BYTES and body[NUMBER_END] == 2:
        committed_us = int.from_bytes(body[TIMES_AT : TIMES_AT + TIME_BYTES], "little")
        if committed_us & ORIGINAL_TIME:
            original = ByteReader(body, TIMES_AT + TIME_BYTES)
            committed_us = original.uint(TIME_BYTES)
    return Gtid(_uuid_text(body[1:17]), "", number if has_number else 0, committed_us)


(
    _FLAGS, _UUID, _NUMBER, _TAG, _PARENT, _SEQUENCE, _IMMEDIATE, _ORIGINAL, _LENGTH, _SERVER,
    _ORIGINAL_SERVER,
) = range(11)  # fmt: skip


def _tagged_gtid(reader: ByteReader) -> Gtid:
    reader.varint()
    size = reader.varint()
    reader.varint()
    reader = ByteReader(reader.data, reader.pos, min(reader.end, max(size, reader.pos)))
    uuid, tag, number, immediate, original = bytes(16), "", 0, 0, None
    while reader.left:
        field_number = reader.varint()
        if field_number == _UUID:
            uuid = bytes(reader.varint() & 0xFF for _ in range(16))
        elif field_number == _TAG:
            tag = reader.text(reader.varint())
        elif field_number in (_NUMBER, _PARENT, _SEQUENCE):
            value = reader.signed_varint()
            number = value if field_number == _NUMBER else number
        elif field_number in (_IMMEDIATE, _ORIGINAL, _FLAGS, _LENGTH, _SERVER, _ORIGINAL_SERVER):
            value = reader.varint()
            immediate = value if field_number == _IMMEDIATE else immediate
            original = value if field_number == _ORIGINAL else original
        else:
            break
    return Gtid(str(UUID(bytes=uuid)), tag, number, immediate if original is None else original)


def _mariadb_gtid(header: EventHeader, reader: ByteReader) -> MariadbGtid:
    number, domain, flags = reader.uint(8), reader.uint(4), reader.byte()
    if flags & GROUP_COMMIT:
        reader.uint(8)
    xid = None
    if flags & (PREPARED_XA | COMPLETED_XA):
        format_id, sizes = reader.take(4), reader.take(2)
        xid = xid_of(format_id, reader.take(sizes[0]), reader.take(sizes[1]))
    return MariadbGtid(
        domain,
        header.server_id,
        number,
        header.timestamp * 1_000_000,
        bool(flags & STANDALONE),
        xid if flags & PREPARED_XA else None,
        xid if flags & COMPLETED_XA else None,
    )


def xid_of(format_id: bytes, transaction: bytes, branch: bytes) -> bytes:
    """Returns one value per XA transaction, in the form of the server's own statements."""
    number = int.from_bytes(format_id, "little")
    return f"X'{transaction.hex()}',X'{branch.hex()}',{number}".encode()


def _xa_prepare(reader: ByteReader) -> XaPrepare:
    is_one_phase, format_id = bool(reader.byte()), reader.take(4)
    lengths = reader.uint(4), reader.uint(4)
    return XaPrepare(
        xid_of(format_id, reader.take(lengths[0]), reader.take(lengths[1])), is_one_phase
    )


QUERY_HEAD = struct.Struct("<IIBHH")
"""Thread, seconds, length of the database's name, error, length of the status variables."""


def _query(body: bytes, *, is_compressed: bool) -> Query:
    if len(body) < QUERY_HEAD.size:
        ByteReader(body).skip(QUERY_HEAD.size)  # fails
    thread, _, database_length, _, status_length = QUERY_HEAD.unpack_from(body)
    reader = ByteReader(body, QUERY_HEAD.size)
    reader.skip(status_length)
    database = reader.text(database_length)
    reader.skip(1)
    text = body[reader.pos :]
    if is_compressed:
        text = inflate_rows(text)
    try:
        return Query(database, text.decode(), thread)
    except UnicodeDecodeError:
        return Query(database, text.decode("latin-1"), thread, is_readable=False)


def _rotate(reader: ByteReader) -> Rotate:
    position = reader.uint(8)
    return Rotate(reader.text(reader.left), position)


def _incident(reader: ByteReader) -> LogIncident:
    reader.uint(2)
    return LogIncident(reader.text(reader.byte()) if reader.left else "")


_COMMIT = TransactionCommit()
PARSERS: Mapping[int, Callable[[EventHeader, bytes], BinlogEvent]] = {
    EventType.ROTATE: lambda _, body: _rotate(ByteReader(body)),
    EventType.GTID: lambda header, body: _gtid(header, body, has_number=True),
    EventType.ANONYMOUS_GTID: lambda header, body: _gtid(header, body, has_number=False),
    EventType.GTID_TAGGED: lambda _, body: _tagged_gtid(ByteReader(body)),
    EventType.MARIADB_GTID: lambda header, body: _mariadb_gtid(header, ByteReader(body)),
    EventType.QUERY: lambda _, body: _query(body, is_compressed=False),
    EventType.MARIADB_QUERY_COMPRESSED: lambda _, body: _query(body, is_compressed=True),
    EventType.XID: lambda _, body: _COMMIT,
    EventType.XA_PREPARE: lambda _, body: _xa_prepare(ByteReader(body)),
    EventType.HEARTBEAT: lambda _, body: BinlogHeartbeat(ByteReader(body).text(len(body))),
    EventType.HEARTBEAT_V2: lambda _, body: BinlogHeartbeat(""),
    EventType.PREVIOUS_GTIDS: lambda _, body: PreviousGtids(GtidSet.decode(body)),
    EventType.INCIDENT: lambda _, body: _incident(ByteReader(body)),
}
"""The events that are neither rows nor tables nor containers."""
