"""The current rows among very many changes, found by their keys alone."""

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.foundation.array_types import Int64Array
from headwater.core_log.rows.digests import Digests, digests_of
from headwater.sinks.fold import newest_of_digests

ROW, DELETE, TRUNCATE = 0, 1, 2


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
