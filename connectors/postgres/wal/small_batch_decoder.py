"""Decodes a few small transactions message by message: calls on columns take longer than that."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from struct import Struct

import numpy as np
import pyarrow as pa

from headwater.connectors.postgres.types.datetime import EPOCH_US
from headwater.connectors.postgres.wal.kernels import NULL, TEXT
from headwater.connectors.postgres.wal.message_columns import (
    BEGIN,
    COMMIT,
    COMMIT_BYTES,
    DELETE,
    HEAD_BYTES,
    INSERT,
    KEEPALIVE,
    KEY,
    LETTER_BYTES,
    NEW,
    OLD,
    OUT_OF_STEP,
    UPDATE,
    MessageColumns,
)
from headwater.connectors.postgres.wal.wal_batch import (
    NO_OLD,
    Relation,
    RowChanges,
    Transactions,
    WalBatch,
)
from headwater.core_log.foundation.array_types import UInt8Array
from headwater.core_log.foundation.errors import DecodeError

FEW_FRAMES = 24

_PLACE, _LENGTH = Struct(">q"), Struct(">I")
_BEGIN, _COMMIT, _KEEPALIVE = Struct(">qqI"), Struct(">Bqqq"), Struct(">qqB")
_ROW = Struct(">IBH")
_LSN_AT = 6
"""In a frame, for WAL data and keepalives alike."""


class _Unusual(Exception):
    """Raised for a rare or invalid message."""


@dataclass(slots=True)
class _Rows:
    """The rows of one relation."""

    relation: Relation
    values: list[list[str | None]]
    operations: bytearray = field(default_factory=bytearray)
    old_kinds: bytearray = field(default_factory=bytearray)
    lsns: list[int] = field(default_factory=list)
    transactions: list[int] = field(default_factory=list)
    indexes: list[int] = field(default_factory=list)

    def changes(self) -> RowChanges:
        return RowChanges(
            self.relation,
            np.frombuffer(self.operations, np.uint8),
            tuple(pa.array(column, pa.string()) for column in self.values),
            {},
            None,
            np.frombuffer(self.old_kinds, np.uint8),
            np.array(self.lsns, np.int64),
            np.array(self.transactions, np.int64),
            np.array(self.indexes, np.int64),
        )


def whole_of_few(tags: UInt8Array, is_open: bool) -> tuple[int, bool]:
    """Returns the number of frames up to which all transactions are whole, and whether one is open
    after the last."""
    whole = 0
    for count, tag in enumerate(tags.tolist(), start=1):
        if tag in (BEGIN, COMMIT):
            if is_open == (tag == BEGIN):
                raise DecodeError(OUT_OF_STEP)
            is_open = not is_open
        if not is_open:
            whole = count
    return whole, is_open


def few_transactions(
    stretch: MessageColumns, relations: Mapping[int, Relation], position: int
) -> WalBatch | None:
    """Returns the transactions; None if one is not whole, or has anything rare or invalid, which is
    left to the decoder by columns."""
    try:
        return _Reading(stretch, relations, position).wal_batch()
    except _Unusual:
        return None


class _Reading:
    def __init__(
        self, stretch: MessageColumns, relations: Mapping[int, Relation], position: int
    ) -> None:
        self._relations, self._position = relations, position
        self._starts, self._tags = stretch.starts.tolist(), stretch.tags.tolist()
        self._stops: list[int] = stretch.stops.tolist()
        self._content = stretch.buffer[: self._stops[-1]].tobytes()
        self._begun = list[tuple[int, int, int, int]]()
        self._ends = list[int]()
        self._rows = dict[int, _Rows]()
        self._index = 0
        self._is_wanted = False

    def wal_batch(self) -> WalBatch:
        for start, stop, tag in zip(self._starts, self._stops, self._tags, strict=True):
            is_open = len(self._begun) > len(self._ends)
            if tag == KEEPALIVE and not is_open and stop - start >= _LSN_AT + _KEEPALIVE.size:
                reached, _, wants = _KEEPALIVE.unpack_from(self._content, start + _LSN_AT)
                self._position = max(self._position, reached)
                self._is_wanted |= wants != 0
            elif tag == BEGIN and not is_open:
                at = _body(start, stop, _BEGIN.size)
                [begin_lsn] = _PLACE.unpack_from(self._content, start + _LSN_AT)
                self._begun.append((*_BEGIN.unpack_from(self._content, at), begin_lsn))
                self._index = 0
            elif tag == COMMIT and is_open:
                at = _body(start, stop, COMMIT_BYTES)
                end = _COMMIT.unpack_from(self._content, at)[2]
                self._ends.append(end)
                self._position = max(self._position, end)
            elif tag in (INSERT, UPDATE, DELETE) and is_open:
                self._row(start, stop, tag)
            else:
                raise _Unusual
        if len(self._begun) > len(self._ends):
            raise _Unusual
        return WalBatch(
            self._transactions(),
            tuple(self._rows[oid].changes() for oid in sorted(self._rows)),
            self._position,
            is_wanted=self._is_wanted,
        )

    def _transactions(self) -> Transactions:
        begun = np.array(self._begun, np.int64).reshape(-1, 4)
        commit_lsns, committed_us, xids, begin_lsns = begun.T
        ends = np.array(self._ends, np.int64)
        return Transactions(xids, commit_lsns, ends, committed_us + EPOCH_US, begin_lsns)

    def _row(self, start: int, stop: int, tag: int) -> None:
        content, at = self._content, _body(start, stop, _ROW.size)
        oid, kind, count = _ROW.unpack_from(content, at)
        relation = self._relations.get(oid)
        kinds = (KEY, OLD) if tag == DELETE else (NEW,)  # an update may contain the row before it
        if relation is None or count != len(relation.columns) or kind not in kinds:
            raise _Unusual
        values, at = list[str | None](), at + _ROW.size
        for _ in range(count):
            if at >= stop:
                raise _Unusual
            mark, at = content[at], at + 1
            if mark == NULL:
                values.append(None)
                continue
            end = at + 4 + _LENGTH.unpack_from(content, at)[0] if at + 4 <= stop else stop + 1
            if mark != TEXT or end > stop:
                raise _Unusual
            try:
                values.append(content[at + 4 : end].decode())
            except UnicodeDecodeError:
                raise _Unusual from None
            at = end
        if at != stop:
            raise _Unusual
        rows = self._rows.get(oid)
        if rows is None:
            rows = self._rows[oid] = _Rows(relation, [[] for _ in values])
        for column, value in zip(rows.values, values, strict=True):
            column.append(value)
        rows.operations.append(tag)
        rows.old_kinds.append(NO_OLD if kind == NEW else kind)
        rows.lsns.append(_PLACE.unpack_from(content, start + _LSN_AT)[0])
        rows.transactions.append(len(self._begun) - 1)
        rows.indexes.append(self._index)
        self._index += 1


def _body(start: int, stop: int, size: int) -> int:
    """Returns where the content begins, after the letter of its message."""
    at = start + HEAD_BYTES + LETTER_BYTES
    if at + size > stop:
        raise _Unusual
    return at
