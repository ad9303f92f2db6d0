"""The changes of a slice that count for a mode, and the current rows: one fold for every sink."""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.foundation.array_types import BoolArray, Int64Array
from headwater.core_log.model.changes import Operation
from headwater.core_log.model.table_schema import TableId
from headwater.core_log.rows.codec import key_values
from headwater.core_log.rows.digests import Digests, digests_of

NONE = -1
"""Stands for no place."""
HAVE_NO_ROW = (Operation.DELETE, Operation.TRUNCATE)
ROW, DELETE, TRUNCATE = 0, 1, 2


class SoftFold(NamedTuple):
    """The effect of a slice on a table that keeps deleted rows."""

    states: Int64Array
    """The places of each key's last state, for keys that have one."""
    ends: Int64Array
    """For each state the place of the delete that ended it, or `NONE`."""
    deletes: Int64Array
    """The first delete of every other key; the deleted state is older than the slice."""


class Versions(NamedTuple):
    """The versions of a slice: by key and time, one per key and commit."""

    row_numbers: Int64Array
    times: Int64Array
    begins: BoolArray
    """Which are the first of their key."""
    ends: BoolArray
    """Which are the last of their key."""


class FormerRows(NamedTuple):
    """The rows that a target has of some keys."""

    are_there: BoolArray
    digests: Digests


def counting(
    mode: str, keys: pa.RecordBatch, deleted: BoolArray, *, ignores_deletes: bool = False
) -> Int64Array | None:
    """Returns the places of changes that `mode` could show, in order; None for all.

    Folding a slice in parts, and then the results, is the same as folding it at once.
    """
    if mode in ("append", "scd2"):
        return None
    if ignores_deletes and deleted.any():
        left = np.flatnonzero(~deleted)
        latest = newest(keys.take(pa.array(left)))
        return left if latest is None else left[latest.to_numpy()]
    if mode == "soft_delete" and deleted.any():
        fold = soft_fold(keys, deleted)
        found = np.concatenate([fold.states, fold.ends[fold.ends != NONE], fold.deletes])
        return None if len(found) == len(deleted) else np.sort(found)
    last = newest(keys)
    return None if last is None else last.to_numpy()


def soft_fold(keys: pa.RecordBatch, deleted: BoolArray) -> SoftFold:
    """Folds changes for `soft_delete`. The first of several deletes after a state counts: the row
    is gone since then."""
    count, nothing = keys.num_rows, np.zeros(0, np.int64)
    if not deleted.any():
        last = newest(keys)
        states = np.arange(count) if last is None else last.to_numpy()
        return SoftFold(states, np.full(len(states), NONE), nothing)
    codes, codes_end = key_codes(keys)
    at = np.arange(count)
    lasts = np.full(codes_end, NONE)
    lasts[codes[~deleted]] = at[~deleted]  # of several values for one place the last one wins
    gone = at[deleted]
    gone = gone[gone > lasts[codes[gone]]][::-1]
    firsts = np.full(codes_end, NONE)
    firsts[codes[gone]] = gone
    states = np.sort(lasts[lasts != NONE])
    found = np.sort(firsts[firsts != NONE])
    return SoftFold(states, firsts[codes[states]], found[lasts[codes[found]] == NONE])


def versions(keys: pa.RecordBatch, committed_us: Int64Array) -> Versions:
    """Folds changes for `scd2`.

    States inside one commit were never visible and are left out. If the source's clock goes back, a
    later change still counts as later.
    """
    codes, _ = key_codes(keys)
    order = np.argsort(codes, kind="stable")
    codes = codes[order]
    times = _never_back(codes, committed_us[order])
    is_last = np.append((codes[1:] != codes[:-1]) | (times[1:] != times[:-1]), True)
    order, codes, times = order[is_last], codes[is_last], times[is_last]
    begins = np.append(True, codes[1:] != codes[:-1])
    ends = np.append(codes[1:] != codes[:-1], True)
    return Versions(order, times, begins, ends)


def find_repeated(
    keys: pa.RecordBatch,
    operations: npt.NDArray[np.integer],
    digests: Digests,
    former: Callable[[Int64Array], FormerRows],
) -> BoolArray | None:
    """Returns which changes are re-read rows with the values of their key's previous change; None
    if no row was re-read.

    `former` returns the target's rows of the changes at some places: each is the first of its key
    in the slice.
    """
    again = operations == Operation.REREAD
    if not again.any():
        return None
    before = _before(keys)
    found: BoolArray = np.zeros(len(again), np.bool_)
    row_numbers = np.flatnonzero(again & (before != NONE))
    earlier = before[row_numbers]
    is_row = ~np.isin(operations[earlier], HAVE_NO_ROW)
    found[row_numbers] = is_row & (digests[earlier] == digests[row_numbers])
    asked = np.flatnonzero(again & (before == NONE))
    if len(asked):
        former_rows = former(asked)
        found[asked] = former_rows.are_there & (former_rows.digests == digests[asked])
    return found


def _before(keys: pa.RecordBatch) -> Int64Array:
    """Returns the place of each change's previous change of the same key, or `NONE`."""
    codes, _ = key_codes(keys)
    order = np.argsort(codes, kind="stable")
    found: Int64Array = np.full(len(codes), NONE)
    follows = codes[order][1:] == codes[order][:-1]
    found[order[1:][follows]] = order[:-1][follows]
    return found


def _never_back(codes: Int64Array, times: Int64Array) -> Int64Array:
    """Returns the running maximum of each key's times."""
    distinct, ranks = np.unique(times, return_inverse=True)
    dense = np.unique(codes, return_inverse=True)[1].reshape(-1) * len(distinct)
    rising = np.maximum.accumulate(ranks.reshape(-1) + dense) - dense
    found: Int64Array = distinct[rising]
    return found


logger = logging.getLogger(__name__)


def warn_of_other_key(table: TableId) -> None:
    logger.warning(
        "deleted rows of %s stay in its old table: they lack columns of the new key, or have "
        "other types",
        table,
    )


def warn_of_other_types(table: TableId, columns: Collection[str]) -> None:
    if columns:
        logger.warning(
            "deleted rows of %s have null in columns of changed type; the values stay in the old "
            "table: %s",
            table,
            ", ".join(sorted(columns)),
        )


Codes = npt.NDArray[np.int64]

CODE_MAX = 1 << 62
GAPS_MAX = 8
"""Codes may be this many times as numerous as rows."""


def key_codes(keys: pa.RecordBatch) -> tuple[Codes, int]:
    """Returns a code for every row, equal for equal keys; all codes are below the second result."""
    if keys.num_columns == 1 and (close := _close_numbers(keys.column(0))) is not None:
        return close
    codes: Codes = np.zeros(keys.num_rows, dtype=np.int64)
    count = 1
    for column in keys.columns:
        encoded: Any = _plain(column).dictionary_encode(null_encoding="encode")
        size = max(len(encoded.dictionary), 1)
        if count > CODE_MAX // size:
            codes, count = _close_gaps(codes)
        codes = codes * size + encoded.indices.to_numpy(zero_copy_only=False)
        count *= size
    if count > GAPS_MAX * keys.num_rows + 1_024:
        codes, count = _close_gaps(codes)
    return codes, count


def newest(keys: pa.RecordBatch) -> pa.Int64Array | None:
    """Returns the places of each key's last row, in order; None if no key repeats."""
    rows = keys.num_rows
    if rows < 2:
        return None
    codes, count = key_codes(keys)
    last: Codes = np.full(count, -1, dtype=np.int64)
    last[codes] = np.arange(rows)  # of several values for one place the last one wins
    last = last[last >= 0]
    return None if len(last) == rows else pa.array(np.sort(last))


def newest_of_digests(digests: Digests, orders: Int64Array | None = None) -> Int64Array:
    """Returns the places of each digest's last row, by `orders` or else by place."""
    if not len(digests):
        return np.zeros(0, np.int64)
    # Equal digests may be in any order: a stable sort takes twice as long.
    row_numbers: Int64Array = (
        np.argsort(digests) if orders is None else np.lexsort((orders, digests))
    )
    ordered = digests[row_numbers]
    is_first = np.append(True, ordered[1:] != ordered[:-1])
    if orders is not None:
        newest: Int64Array = row_numbers[np.append(is_first[1:], True)]
    else:
        newest = np.maximum.reduceat(row_numbers, np.flatnonzero(is_first))
    return newest


def _plain(column: pa.Array) -> pa.Array:
    """Returns lists and structs as text, because Arrow cannot encode them, and one zero."""
    if not pa.types.is_nested(column.type):
        return key_values(column)
    texts = [None if value is None else repr(value) for value in column.to_pylist()]
    return pa.array(texts, pa.string())


def _close_numbers(column: pa.Array) -> tuple[Codes, int] | None:
    """Returns dense numbers, as most keys are, as their own codes."""
    if not len(column) or not pa.types.is_signed_integer(column.type) or column.null_count:
        return None
    values: Codes = column.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    low, high = int(values.min()), int(values.max())
    span = high - low + 1
    return (values - low, span) if span <= GAPS_MAX * len(values) + 1_024 else None


def _close_gaps(codes: Codes) -> tuple[Codes, int]:
    distinct, dense = np.unique(codes, return_inverse=True)
    return dense.reshape(-1).astype(np.int64), len(distinct)


class CurrentRows:
    """Finds the current rows of a change log.

    It needs some thirty bytes per change, independent of the row's width. Read the log once for the
    keys, and again in the same order for the rows.
    """

    def __init__(self) -> None:
        self._digests: list[Digests] = []
        self._origins: list[Digests] = []
        self._orders: list[Int64Array] = []
        self._kinds: list[npt.NDArray[np.int8]] = []
        self._count = 0

    def take(
        self,
        keys: pa.RecordBatch,
        op_codes: pa.Array,
        *,
        orders: pa.Array | None = None,
        origins: pa.RecordBatch | None = None,
    ) -> None:
        """Adds changes; `letters` are Debezium's op codes.

        The change of a key with the highest value of `orders` counts, and a truncate removes what
        is below it of its own origin. Without `orders` and origins the order of arrival counts."""
        rows = keys.num_rows
        kinds = np.zeros(rows, np.int8)
        kinds[np.asarray(_equal(op_codes, "d"))] = DELETE
        kinds[np.asarray(_equal(op_codes, "t"))] = TRUNCATE
        self._kinds.append(kinds)
        self._digests.append(digests_of(keys.columns, rows))
        arrived = np.arange(self._count, self._count + rows)
        self._orders.append(arrived if orders is None else orders.to_numpy())
        self._origins.append(digests_of([] if origins is None else origins.columns, rows))
        self._count += rows

    def of(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Returns the current rows among the same changes; their division into batches may
        differ."""
        are_current, at = self._are_current(), 0
        for batch in batches:
            yield batch.filter(pa.array(are_current[at : at + batch.num_rows]))
            at += batch.num_rows
        assert at == self._count, "a change log that was read twice is the same"

    def _are_current(self) -> npt.NDArray[np.bool_]:
        found = np.zeros(self._count, np.bool_)
        if not self._count:
            return found
        kinds, orders = np.concatenate(self._kinds), np.concatenate(self._orders)
        digests, origins = np.concatenate(self._digests), np.concatenate(self._origins)
        is_left = kinds != TRUNCATE
        for origin in np.unique(origins[~is_left]).tolist():
            mine = origins == origin
            is_left &= ~(mine & (orders <= orders[mine & (kinds == TRUNCATE)].max()))
        rows = np.flatnonzero(is_left)
        newest = rows[newest_of_digests(digests[rows], orders[rows])]
        found[newest[kinds[newest] == ROW]] = True
        return found


def _equal(op_codes: pa.Array, op_code: str) -> pa.BooleanArray:
    return pc.equal(op_codes, op_code).fill_null(False)
