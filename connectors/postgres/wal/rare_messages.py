"""Reads the rare messages of pgoutput one at a time: relations, truncates and logical messages."""

import struct
from struct import Struct
from typing import Any, NamedTuple

from headwater.connectors.postgres.wal.wal_batch import Relation, RelationColumn
from headwater.core_log.foundation.errors import DecodeError

IDENTITIES = "dnfi"
IS_IDENTITY = 1

_NUMBER, _COUNT, _COLUMN = Struct(">I"), Struct(">H"), Struct(">Ii")
_TRUNCATE, _MESSAGE = Struct(">IB"), Struct(">Bq")


class LogicalMessage(NamedTuple):
    is_transactional: bool
    lsn: int
    prefix: str
    content: bytes


def read_relation(body: bytes) -> Relation:
    reading = _Reading(body)
    oid = reading.numbers(_NUMBER)[0]
    namespace, name = reading.word(), reading.word()
    identity, columns = chr(reading.byte()), list[RelationColumn]()
    for _ in range(reading.numbers(_COUNT)[0]):
        flags, column = reading.byte(), reading.word()
        type_oid, modifier = reading.numbers(_COLUMN)
        columns.append(RelationColumn(column, bool(flags & IS_IDENTITY), type_oid, modifier))
    if identity not in IDENTITIES:
        raise DecodeError("a relation has an unknown replica identity", identity=identity)
    # Tables of `pg_catalog` have an empty schema name in the stream.
    return Relation(oid, namespace or "pg_catalog", name, identity, tuple(columns))


def read_truncate(body: bytes) -> list[int]:
    """Returns the truncated relations."""
    reading = _Reading(body)
    count, _options = reading.numbers(_TRUNCATE)
    return [reading.numbers(_NUMBER)[0] for _ in range(min(count, len(body)))]


def read_message(body: bytes) -> LogicalMessage:
    reading = _Reading(body)
    flags, lsn = reading.numbers(_MESSAGE)
    prefix = reading.word()
    return LogicalMessage(bool(flags & 1), lsn, prefix, reading.piece(reading.numbers(_NUMBER)[0]))


class _Reading:
    """Reads one message forward, and never beyond its end."""

    def __init__(self, body: bytes) -> None:
        self._body, self._at = body, 0

    def numbers(self, layout: Struct) -> tuple[Any, ...]:
        try:
            found = layout.unpack_from(self._body, self._at)
        except struct.error:
            raise DecodeError("a message of the stream ends too early") from None
        self._at += layout.size
        return found

    def byte(self) -> int:
        return self.piece(1)[0]

    def word(self) -> str:
        end = self._body.find(b"\0", self._at)
        if end < 0:
            raise DecodeError("a name in the stream has no end")
        try:
            found = self._body[self._at : end].decode()
        except UnicodeDecodeError:
            raise DecodeError("a name in the stream is not UTF-8") from None
        self._at = end + 1
        return found

    def piece(self, count: int) -> bytes:
        found = self._body[self._at : self._at + count]
        if len(found) < count:
            raise DecodeError("a message of the stream ends too early")
        self._at += count
        return found
