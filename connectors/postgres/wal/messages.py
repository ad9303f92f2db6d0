"""The messages of pgoutput: fields of many at once, and rare messages one at a time."""

import struct
from dataclasses import dataclass
from struct import Struct
from typing import Any, NamedTuple

import numpy as np

from headwater.connectors.postgres.types.datetime import EPOCH_US
from headwater.connectors.postgres.wal.kernels import FOREIGN
from headwater.connectors.postgres.wal.wal_batch import Relation, RelationColumn, Transactions
from headwater.core_log.foundation.array_types import BoolArray, Int64Array, UInt8Array
from headwater.core_log.foundation.errors import DecodeError

FRAME_BYTES_MAX = 1 << 30  # the server cannot build a larger message
HEAD_BYTES, LETTER_BYTES = 30, 1
OUT_OF_STEP = "transactions of the stream do not follow one another"

BEGIN, COMMIT, INSERT, UPDATE, DELETE, TRUNCATE, RELATION, MESSAGE, TYPE, ORIGIN = b"BCIUDTRMYO"
KEEPALIVE, NEW, KEY, OLD = b"kNKO"
NOTICE, PARAMETER = (FOREIGN | each for each in b"NS")
COMMIT_END, COMMIT_BYTES = 9, 25
"""In a commit, after its letter: flags, its LSN, the LSN after it, its time."""

LEAST_BYTES = np.full(256, FRAME_BYTES_MAX, np.int64)
"""Shortest length of a frame, by tag."""
IDENTITIES = "dnfi"
IS_IDENTITY = 1

_NUMBER, _COUNT, _COLUMN = Struct(">I"), Struct(">H"), Struct(">Ii")
_TRUNCATE, _MESSAGE = Struct(">IB"), Struct(">Bq")


for _tag, _least in {
    BEGIN: 20, COMMIT: COMMIT_BYTES, INSERT: 7, UPDATE: 7, DELETE: 7, TRUNCATE: 5, RELATION: 9,
    MESSAGE: 14, TYPE: 6, ORIGIN: 9,
}.items():  # fmt: skip
    LEAST_BYTES[_tag] = HEAD_BYTES + LETTER_BYTES + _least
LEAST_BYTES[KEEPALIVE] = 23
LEAST_BYTES[[NOTICE, PARAMETER]] = 5


def _among(tags: bytes) -> BoolArray:
    found = np.zeros(256, np.bool_)
    found[list(tags)] = True
    return found


IS_ROW, IS_RARE = _among(b"IUD"), _among(b"RTM")
NEEDS_TRANSACTION, IS_COUNTED = _among(b"RYO"), _among(b"IUDT")
IS_END = np.arange(256) >= FOREIGN
IS_END[[NOTICE, PARAMETER]] = False  # they may arrive at any time


@dataclass(frozen=True, slots=True)
class OpenTransactionState:
    """A transaction that the next WAL batch continues."""

    xid: int
    commit_lsn: int
    committed_us: int
    begin_lsn: int
    counted: int


class MessageColumns:
    """Whole frames, and their fields column by column."""

    def __init__(self, buffer: UInt8Array, starts: Int64Array, tags: UInt8Array, stop: int) -> None:
        self.buffer, self.starts, self.tags = buffer, starts, tags
        self.stops = np.append(starts[1:], stop)
        self._numbers = np.ndarray((len(buffer) - 3,), ">u4", buffer, 0, (1,))
        self._longs = np.ndarray((len(buffer) - 7,), ">i8", buffer, 0, (1,))

    def check(self) -> None:
        if (self.stops - self.starts < LEAST_BYTES[self.tags]).any():
            raise DecodeError("a message of the stream is too short, or was not asked for")

    def goes_on(self, was_open: bool, counted: BoolArray) -> BoolArray:
        """Whether a transaction is open after each frame."""
        begins, commits = self.tags == BEGIN, self.tags == COMMIT
        depth = int(was_open) + np.cumsum(begins) - np.cumsum(commits)
        if ((NEEDS_TRANSACTION[self.tags] | counted) & (depth != 1)).any():
            raise DecodeError(OUT_OF_STEP)
        return np.asarray(depth == 1)

    def transactions(self, carried: OpenTransactionState | None) -> tuple[Transactions, Int64Array]:
        """Returns the transactions, and per frame the one it belongs to or the last one before."""
        begins, commits = np.flatnonzero(self.tags == BEGIN), np.flatnonzero(self.tags == COMMIT)
        heads, tails = self.starts[begins] + HEAD_BYTES + 1, self.starts[commits] + HEAD_BYTES + 1
        xids = self._numbers[heads + 16].astype(np.int64)
        commit_lsns = self._longs[heads].astype(np.int64)
        committed_us = self._longs[heads + 8].astype(np.int64) + EPOCH_US
        begin_lsns = self.lsns(begins)
        if carried is not None:
            xids = np.append(carried.xid, xids)
            commit_lsns = np.append(carried.commit_lsn, commit_lsns)
            committed_us = np.append(carried.committed_us, committed_us)
            begin_lsns = np.append(carried.begin_lsn, begin_lsns)
        end_lsns = np.full(len(xids), -1, np.int64)
        end_lsns[: len(commits)] = self._longs[tails + COMMIT_END]
        opened = np.cumsum(self.tags == BEGIN) - (1 if carried is None else 0)
        return Transactions(xids, commit_lsns, end_lsns, committed_us, begin_lsns), opened

    def has_index(self) -> BoolArray:
        """Whether the frame has an index in its transaction."""
        counted = IS_COUNTED[self.tags]
        messages = np.flatnonzero(self.tags == MESSAGE)
        counted[messages] = self.buffer[self.starts[messages] + HEAD_BYTES + 1] & 1
        return counted

    def counted_before(
        self, counted: BoolArray, opened: Int64Array, carried: OpenTransactionState | None
    ) -> Int64Array:
        """Returns how many of its transaction came before each frame."""
        running: Int64Array = np.cumsum(counted) - counted
        bases: Int64Array = running[self.tags == BEGIN]
        if carried is not None:
            bases = np.append(-carried.counted, bases)
        if not len(bases):
            return running
        return np.asarray(running - bases[np.maximum(opened, 0)], np.int64)

    def keepalives(self, is_open: BoolArray) -> tuple[list[int], bool]:
        """Returns the server's latest position, and whether it wants an answer."""
        places = self.starts[(self.tags == KEEPALIVE) & ~is_open] + 6
        reached = [int(self._longs[places[-1]])] if len(places) else []
        return reached, bool((self.buffer[places + 16] != 0).any())

    def by_relation(self, rows: Int64Array) -> list[tuple[int, Int64Array]]:
        oids = self._numbers[self.starts[rows] + HEAD_BYTES + 1].astype(np.int64)
        if (oids == oids[0]).all():
            return [(int(oids[0]), rows)]
        order = np.argsort(oids, kind="stable")
        oids, rows = oids[order], rows[order]
        firsts = np.flatnonzero(np.diff(oids, prepend=-1))
        groups = np.split(rows, firsts[1:])
        return list(zip(oids[firsts].tolist(), groups, strict=True))

    def kinds(self, rows: Int64Array) -> UInt8Array:
        return self.buffer[self.starts[rows] + HEAD_BYTES + 5]

    def shorts(self, places: Int64Array) -> Int64Array:
        high, low = self.buffer[places].astype(np.int64), self.buffer[places + 1]
        return np.asarray((high << 8) | low, np.int64)

    def lsns(self, rows: Int64Array | list[int]) -> Int64Array:
        return self._longs[self.starts[rows] + 6].astype(np.int64)

    def body(self, at: int) -> bytes:
        """Returns the content of one message after its letter."""
        begin = int(self.starts[at]) + HEAD_BYTES + LETTER_BYTES
        return self.buffer[begin : int(self.stops[at])].tobytes()


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
