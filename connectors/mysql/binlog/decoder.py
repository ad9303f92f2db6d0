"""Decodes the events of a binary log, one after the other, with the rows of the wanted tables."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
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
    RowDecoder,
    RowsEvent,
    inflate_rows,
    table_number_of,
)
from headwater.connectors.mysql.binlog.table_map import TableMap, parse_table_map
from headwater.connectors.mysql.server.gtid_set import GtidSet
from headwater.core_log.foundation.errors import DecodeError

CHECKSUM_CRC32 = 1
FLAGS_AT, IN_USE = 17, 1
PAYLOAD_MAX = 1 << 32
"""Limit of a transaction payload after decompression; the servers allow 4 GiB."""
EVENT_BYTES_MAX = 1 << 30
ORIGINAL_TIME = 1 << 55
TABLES_MAX = 10_000
ZSTD, UNCOMPRESSED = 0, 255
PAYLOAD_END, PAYLOAD_SIZE, PAYLOAD_COMPRESSION, PAYLOAD_RAW_SIZE = range(4)
STANDALONE, PREPARED_XA, COMPLETED_XA = 0x01, 0x40, 0x80
GROUP_COMMIT = 0x02
PASSING = {
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
    _tables: dict[int, RowDecoder | None] = field(default_factory=dict)
    """None for a table whose rows are not wanted."""
    _known: dict[bytes, RowDecoder | None] = field(default_factory=dict)
    """The same by the bytes of their TABLE_MAP, which repeat."""

    def decode(self, event: bytes) -> Iterator[Decoded]:
        """Yields what the event says: nothing, one thing, or the events of a whole payload."""
        header = parse_header(event)
        if header.kind == EventType.FORMAT_DESCRIPTION:
            self._learn_format(event)
            yield Decoded(header, PassingEvent(EventType.FORMAT_DESCRIPTION))
            return
        body = body_of(event, header, has_checksum=self.has_checksum)
        yield from self._decode(header, body)

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

    def _decode(self, header: EventHeader, body: bytes) -> Iterator[Decoded]:
        try:
            kind = EventType(header.kind)
        except ValueError:
            if header.flags & IGNORABLE:
                return
            raise _not_understood(header) from None
        if kind in CHANGES:
            decoder = self._decoder_of(body)
            if decoder is not None:
                yield Decoded(header, decoder.decode(kind, body))
            return
        if kind == EventType.TABLE_MAP:
            if (table := self._learn_table(body)) is not None:
                yield Decoded(header, table)
            return
        if kind == EventType.TRANSACTION_PAYLOAD:
            yield from self._payload(header, body)
            return
        if kind in PASSING:
            yield Decoded(header, PassingEvent(kind))
            return
        found = self._plain(kind, header, body)
        if isinstance(found, Rotate):
            self.forget_tables()
        yield Decoded(header, found)

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
            table = parse_table_map(body, is_mariadb=self.is_mariadb)
            self._known[body] = RowDecoder(table) if self.wants(table) else None
        decoder = self._tables[number] = self._known[body]
        return None if decoder is None else decoder.table

    def choose_again(self) -> None:
        """Asks again of which tables the rows are wanted, from the next TABLE_MAP on."""
        self._known.clear()

    def _plain(self, kind: EventType, header: EventHeader, body: bytes) -> BinlogEvent:
        if kind not in PARSERS:
            raise _not_understood(header)
        return PARSERS[kind](header, ByteReader(body))

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


def _gtid(header: EventHeader, reader: ByteReader, *, has_number: bool) -> Gtid:
    reader.skip(1)
    uuid, number = str(UUID(bytes=reader.take(16))), reader.sint(8)
    committed_us = header.timestamp * 1_000_000
    if reader.left >= 1 + 16 + 7 and reader.byte() == 2:
        reader.skip(16)
        committed_us = reader.uint(7)
        if committed_us & ORIGINAL_TIME:
            committed_us = reader.uint(7)
    return Gtid(uuid, "", number if has_number else 0, committed_us)


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


def _query(reader: ByteReader, *, is_compressed: bool) -> Query:
    thread, _, database_length = reader.uint(4), reader.uint(4), reader.byte()
    reader.uint(2)
    reader.skip(reader.uint(2))
    database = reader.text(database_length)
    reader.skip(1)
    text = reader.rest()
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


PARSERS: Mapping[EventType, Callable[[EventHeader, ByteReader], BinlogEvent]] = {
    EventType.ROTATE: lambda _, reader: _rotate(reader),
    EventType.GTID: lambda header, reader: _gtid(header, reader, has_number=True),
    EventType.ANONYMOUS_GTID: lambda header, reader: _gtid(header, reader, has_number=False),
    EventType.GTID_TAGGED: lambda _, reader: _tagged_gtid(reader),
    EventType.MARIADB_GTID: _mariadb_gtid,
    EventType.QUERY: lambda _, reader: _query(reader, is_compressed=False),
    EventType.MARIADB_QUERY_COMPRESSED: lambda _, reader: _query(reader, is_compressed=True),
    EventType.XID: lambda _, reader: TransactionCommit(),
    EventType.XA_PREPARE: lambda _, reader: _xa_prepare(reader),
    EventType.HEARTBEAT: lambda _, reader: BinlogHeartbeat(reader.text(reader.left)),
    EventType.HEARTBEAT_V2: lambda _, reader: BinlogHeartbeat(""),
    EventType.PREVIOUS_GTIDS: lambda _, reader: PreviousGtids(GtidSet.decode(reader.rest())),
    EventType.INCIDENT: lambda _, reader: _incident(reader),
}
"""The events that are neither rows nor tables nor containers."""
