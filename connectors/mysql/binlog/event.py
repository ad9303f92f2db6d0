"""The frame of an event: its header, its type, and its checksum."""

import struct
from enum import IntEnum
from typing import NamedTuple
from zlib import crc32

from headwater.core_log.foundation.errors import DecodeError

HEADER_BYTES, CRC_BYTES = 19, 4
HEADER = struct.Struct("<IBIIIH")
IGNORABLE, ARTIFICIAL = 0x80, 0x20
"""Flags: a reader that does not know the event may skip it; the server made it for this reader."""


class EventType(IntEnum):
    QUERY = 2
    STOP = 3
    ROTATE = 4
    INTVAR = 5
    RAND = 13
    USER_VAR = 14
    FORMAT_DESCRIPTION = 15
    XID = 16
    BEGIN_LOAD_QUERY = 17
    EXECUTE_LOAD_QUERY = 18
    TABLE_MAP = 19
    WRITE_ROWS_V1 = 23
    UPDATE_ROWS_V1 = 24
    DELETE_ROWS_V1 = 25
    INCIDENT = 26
    HEARTBEAT = 27
    IGNORABLE = 28
    ROWS_QUERY = 29
    WRITE_ROWS = 30
    UPDATE_ROWS = 31
    DELETE_ROWS = 32
    GTID = 33
    ANONYMOUS_GTID = 34
    PREVIOUS_GTIDS = 35
    TRANSACTION_CONTEXT = 36
    VIEW_CHANGE = 37
    XA_PREPARE = 38
    PARTIAL_UPDATE_ROWS = 39
    TRANSACTION_PAYLOAD = 40
    HEARTBEAT_V2 = 41
    GTID_TAGGED = 42
    MARIADB_ANNOTATE_ROWS = 160
    MARIADB_BINLOG_CHECKPOINT = 161
    MARIADB_GTID = 162
    MARIADB_GTID_LIST = 163
    MARIADB_START_ENCRYPTION = 164
    MARIADB_QUERY_COMPRESSED = 165
    MARIADB_WRITE_ROWS_COMPRESSED_V1 = 166
    MARIADB_UPDATE_ROWS_COMPRESSED_V1 = 167
    MARIADB_DELETE_ROWS_COMPRESSED_V1 = 168
    MARIADB_WRITE_ROWS_COMPRESSED = 169
    MARIADB_UPDATE_ROWS_COMPRESSED = 170
    MARIADB_DELETE_ROWS_COMPRESSED = 171


KIND_AT = 4
COMPRESSED = {
    bytes([each])
    for each in EventType
    if each is EventType.TRANSACTION_PAYLOAD or each >= EventType.MARIADB_QUERY_COMPRESSED
}


def is_compressed(event: bytes) -> bool:
    """Whether more comes out of the event than its size says."""
    return event[KIND_AT : KIND_AT + 1] in COMPRESSED


class EventHeader(NamedTuple):
    timestamp: int
    """Seconds since 1970."""
    kind: int
    server_id: int
    size: int
    end_position: int
    """Position after it in its file; 0 if the event is in no file by itself."""
    flags: int

    @property
    def is_artificial(self) -> bool:
        return bool(self.flags & ARTIFICIAL)


def parse_header(event: bytes) -> EventHeader:
    """Returns the header of a whole event."""
    if len(event) < HEADER_BYTES:
        raise DecodeError("an event of the binary log is shorter than its header", bytes=len(event))
    header = EventHeader._make(HEADER.unpack_from(event))
    if header.size != len(event):
        raise DecodeError(
            "an event of the binary log has another size than its header says",
            type=header.kind,
            bytes=len(event),
            said=header.size,
        )
    return header


def body_of(event: bytes, header: EventHeader, *, has_checksum: bool) -> bytes:
    """Returns the event without header and checksum, which is verified."""
    if not has_checksum:
        return event[HEADER_BYTES:]
    end = len(event) - CRC_BYTES
    if end < HEADER_BYTES:
        raise DecodeError("an event of the binary log has no room for its checksum")
    if crc32(event[:end]) != int.from_bytes(event[end:], "little"):
        raise DecodeError(
            "the checksum of an event of the binary log does not match",
            type=header.kind,
            position=header.end_position,
        )
    return event[HEADER_BYTES:end]
