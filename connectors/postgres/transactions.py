"""Debezium's transaction metadata: where in its transaction each event stands, and their ends."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connectors.postgres.notices import notices_of
from connectors.postgres.wal.burst import Burst, Int64s
from core_log.changes import Notices, TableChanges
from core_log.table_schema import TableId

EMPTY = pa.scalar("")


@dataclass(frozen=True, slots=True)
class Placed:
    """Changes with the transaction of the burst that each belongs to."""

    changes: TableChanges
    transactions: Int64s

    def since(self, start: int) -> "Placed":
        """Without those before."""
        count = len(self.transactions) - start
        return Placed(self.changes.slice(start, count), self.transactions[start:])

    @property
    def lsns(self) -> Int64s:
        lsn = self.changes.source["lsn"]
        if isinstance(lsn, pa.Array):
            found: Int64s = lsn.to_numpy()
            return found
        return np.full(len(self.changes), lsn, np.int64)


@dataclass(slots=True)
class _Open:
    """What has been seen of a transaction that a burst has left unfinished."""

    xid: int
    counts: dict[TableId, int] = field(default_factory=dict)


class TransactionCounts:
    """Counts across bursts; a key that changes counts twice, as it makes two events."""

    def __init__(self) -> None:
        self._open: _Open | None = None

    def counted(
        self, burst: Burst, placed: Sequence[Placed], *, now_ms: int
    ) -> tuple[list[TableChanges], Notices | None]:
        """The changes with their `transaction` block, and what begins and ends."""
        sizes = [len(each.changes) for each in placed]
        if not sizes:
            return [], self._told(burst, {}, np.empty(0, np.int64), np.empty(0, np.int64), now_ms)
        tables = list(dict.fromkeys(each.changes.schema.table for each in placed))
        of_table = np.repeat([tables.index(each.changes.schema.table) for each in placed], sizes)
        of_transaction = np.concatenate([each.transactions for each in placed])
        indexes = np.concatenate([_indexes(each.changes) for each in placed])
        lsns = np.concatenate([each.lsns for each in placed])
        total = _ranks([of_transaction], indexes)
        within = _ranks([of_table, of_transaction], indexes)
        if self._open is not None:
            goes_on = of_transaction == 0
            total[goes_on] += sum(self._open.counts.values())
            known = np.array([self._open.counts.get(table, 0) for table in tables])
            within[goes_on] += known[of_table[goes_on]]
        xids = burst.transactions.xids[of_transaction]
        ids = pc.binary_join_element_wise(
            pa.array(xids).cast(pa.string()), pa.array(lsns).cast(pa.string()), ":"
        )
        found, start = [], 0
        for each, size in zip(placed, sizes, strict=True):
            rows = slice(start, start + size)
            block = {
                "id": ids[rows],
                "total_order": pa.array(total[rows] + 1),
                "data_collection_order": pa.array(within[rows] + 1),
            }
            found.append(replace(each.changes, transaction=block))
            start += size
        counts = {
            table: np.bincount(
                of_transaction[of_table == number], minlength=len(burst.transactions.xids)
            )
            for number, table in enumerate(tables)
        }
        order = np.lexsort((indexes, of_transaction))
        return found, self._told(burst, counts, of_transaction[order], lsns[order], now_ms)

    def _told(
        self,
        burst: Burst,
        counts: dict[TableId, np.ndarray[Any, np.dtype[np.int64]]],
        of_transaction: Int64s,
        lsns: Int64s,
        now_ms: int,
    ) -> Notices | None:
        values: list[dict[str, Any]] = []
        transactions = burst.transactions
        firsts = np.searchsorted(of_transaction, np.arange(len(transactions.xids)))
        for number, xid in enumerate(transactions.xids.tolist()):
            here = {table: int(each[number]) for table, each in counts.items() if each[number]}
            is_open = number == 0 and self._open is not None
            if not is_open:
                if not here:
                    continue
                values.append(_begin(f"{xid}:{lsns[firsts[number]]}", now_ms))
                self._open = _Open(xid)
            opened = self._open
            assert opened is not None, "a transaction that has events has begun"
            for table, count in here.items():
                opened.counts[table] = opened.counts.get(table, 0) + count
            end = int(transactions.end_lsns[number])
            if end >= 0:
                values.append(_end(f"{xid}:{end}", opened, now_ms))
                self._open = None
        keys = [{"id": value["id"]} for value in values]
        return notices_of("transaction", keys, values)


def _begin(name: str, now_ms: int) -> dict[str, Any]:
    return {
        "status": "BEGIN",
        "id": name,
        "event_count": None,
        "data_collections": None,
        "ts_ms": now_ms,
    }


def _end(name: str, opened: _Open, now_ms: int) -> dict[str, Any]:
    return {
        "status": "END",
        "id": name,
        "event_count": sum(opened.counts.values()),
        "data_collections": [
            {"data_collection": str(table), "event_count": count}
            for table, count in opened.counts.items()
        ],
        "ts_ms": now_ms,
    }


def _indexes(changes: TableChanges) -> Int64s:
    assert changes.indexes is not None, "changes of the stream are counted"
    found: Int64s = changes.indexes.to_numpy()
    return found


def _ranks(groups: Sequence[Int64s], indexes: Int64s) -> Int64s:
    """Per event how many of its group stand before it; of equal ones the first comes first."""
    order = np.lexsort((indexes, *reversed(groups)))
    is_first = np.zeros(len(order), np.bool_)
    is_first[0] = True
    for group in groups:
        sorted_group = group[order]
        is_first[1:] |= sorted_group[1:] != sorted_group[:-1]
    starts = np.maximum.accumulate(np.where(is_first, np.arange(len(order)), 0))
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order)) - starts
    return ranks
