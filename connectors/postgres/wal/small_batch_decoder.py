"""Decodes a few small transactions message by message: calls on columns take longer than that."""

from collections.abc import Mapping, Sequence
from struct import Struct

import numpy as np
import pyarrow as pa

from headwater.connectors.postgres.types.datetime import EPOCH_US
from headwater.connectors.postgres.wal.kernels import NULL, TEXT
from headwater.connectors.postgres.wal.messages import (
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


class Unusual(Exception):
    """Raised for a rare or invalid message."""


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
    content: bytes,
    starts: Sequence[int],
    tags: Sequence[int],
    relations: Mapping[int, Relation],
    position: int,
) -> WalBatch:
    """Returns the transactions of whole frames; raises `Unusual` if one is not whole or has
    anything rare or invalid, which is left to the decoder by columns."""
    begun, ends = list[tuple[int, int, int, int]](), list[int]()
    rows, numbers = dict[int, list[list[str | None]]](), dict[int, list[tuple[int, ...]]]()
    index, is_wanted = 0, False
    for start, stop, tag in zip(starts, [*starts[1:], len(content)], tags, strict=True):
        is_open = len(begun) > len(ends)
        if tag == KEEPALIVE and not is_open and stop - start >= _LSN_AT + _KEEPALIVE.size:
            reached, _, wants = _KEEPALIVE.unpack_from(content, start + _LSN_AT)
            position = max(position, reached)
            is_wanted |= wants != 0
        elif tag == BEGIN and not is_open:
            at = _body(start, stop, _BEGIN.size)
            [begin_lsn] = _PLACE.unpack_from(content, start + _LSN_AT)
            begun.append((*_BEGIN.unpack_from(content, at), begin_lsn))
            index = 0
        elif tag == COMMIT and is_open:
            at = _body(start, stop, COMMIT_BYTES)
            end = _COMMIT.unpack_from(content, at)[2]
            ends.append(end)
            position = max(position, end)
        elif tag in (INSERT, UPDATE, DELETE) and is_open:
            at = _body(start, stop, _ROW.size)
            oid, kind, count = _ROW.unpack_from(content, at)
            relation = relations.get(oid)
            kinds = (KEY, OLD) if tag == DELETE else (NEW,)  # an update may contain the row before
            if relation is None or count != len(relation.columns) or kind not in kinds:
                raise Unusual
            rows.setdefault(oid, []).append(_values(content, at + _ROW.size, stop, count))
            [lsn] = _PLACE.unpack_from(content, start + _LSN_AT)
            old_kind = NO_OLD if kind == NEW else kind
            numbers.setdefault(oid, []).append((tag, old_kind, lsn, len(begun) - 1, index))
            index += 1
        else:
            raise Unusual
    if len(begun) > len(ends):
        raise Unusual
    changes = tuple(_changes(relations[oid], rows[oid], numbers[oid]) for oid in sorted(rows))
    return WalBatch(_transactions(begun, ends), changes, position, is_wanted=is_wanted)


def _changes(
    relation: Relation,
    rows: Sequence[Sequence[str | None]],
    numbers: Sequence[tuple[int, ...]],
) -> RowChanges:
    """`numbers`: per row its operation, the kind of its old row, and its place in the stream."""
    operations, old_kinds, lsns, transactions, indexes = np.array(numbers, np.int64).T
    return RowChanges(
        relation,
        operations.astype(np.uint8),
        tuple(pa.array(column, pa.string()) for column in zip(*rows, strict=True)),
        {},
        None,
        old_kinds.astype(np.uint8),
        lsns,
        transactions,
        indexes,
    )


def _transactions(begun: Sequence[tuple[int, int, int, int]], ends: Sequence[int]) -> Transactions:
    numbers = np.array(begun, np.int64).reshape(-1, 4)
    commit_lsns, committed_us, xids, begin_lsns = numbers.T
    end_lsns = np.array(ends, np.int64)
    return Transactions(xids, commit_lsns, end_lsns, committed_us + EPOCH_US, begin_lsns)


def _values(content: bytes, at: int, stop: int, count: int) -> list[str | None]:
    """Returns the values of a row that ends exactly at `stop`."""
    values = list[str | None]()
    for _ in range(count):
        if at >= stop:
            raise Unusual
        mark, at = content[at], at + 1
        if mark == NULL:
            values.append(None)
            continue
        end = at + 4 + _LENGTH.unpack_from(content, at)[0] if at + 4 <= stop else stop + 1
        if mark != TEXT or end > stop:
            raise Unusual
        try:
            values.append(content[at + 4 : end].decode())
        except UnicodeDecodeError:
            raise Unusual from None
        at = end
    if at != stop:
        raise Unusual
    return values


def _body(start: int, stop: int, size: int) -> int:
    """Returns where the content begins, after the letter of its message."""
    at = start + HEAD_BYTES + LETTER_BYTES
    if at + size > stop:
        raise Unusual
    return at
