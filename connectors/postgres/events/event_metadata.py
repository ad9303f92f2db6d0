"""Debezium's metadata of each event: its source, and its place in its transaction."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.connectors.postgres.server.lsn import lsn_text, lsn_texts
from headwater.connectors.postgres.wal.wal_batch import Transactions, WalBatch, WalMessage
from headwater.core_log.foundation.array_types import Int64Array
from headwater.core_log.model.changes import (
    ColumnOrValue,
    EventMessages,
    TableChanges,
    source_times,
)
from headwater.core_log.model.table_schema import TableId

EMPTY = pa.scalar("")
MESSAGE_COLLECTION = "LOGICAL_DECODING_MESSAGE"
"""Debezium's collection name for logical messages; its own events contain the address of an
object."""

TransactionBlock = Mapping[str, Any]
"""The block of one event: the transaction's name, and the event's number in it."""


@dataclass(frozen=True, slots=True)
class SourceOrigin:
    """The fields that all events of a source share."""

    pipeline: str
    database: str
    version: str = version("headwater")

    def block(
        self,
        table: TableId,
        times: Mapping[str, ColumnOrValue],
        *,
        snapshot: ColumnOrValue,
        sequence: ColumnOrValue,
        xid: ColumnOrValue,
        lsn: ColumnOrValue,
    ) -> dict[str, ColumnOrValue]:
        """Returns the block in the order of Debezium's fields."""
        return {
            "version": self.version,
            "connector": "postgresql",
            "name": self.pipeline,
            "ts_ms": times["ts_ms"],
            "snapshot": snapshot,
            "db": self.database,
            "sequence": sequence,
            "ts_us": times["ts_us"],
            "ts_ns": times["ts_ns"],
            "schema": table.namespace,
            "table": table.name,
            "txId": xid,
            "lsn": lsn,
            "xmin": None,
            "origin": None,
            "origin_lsn": None,
        }


class CommitColumns:
    """The transactions of one WAL batch as columns: a constant if all changes are of one."""

    def __init__(
        self, transactions: Transactions, *, last_end: int | None, alone: Sequence[WalMessage] = ()
    ) -> None:
        """`last_end`: the end of the transaction before, if it is known. `alone`: messages outside
        of transactions, each with an end of its own."""
        self._all = transactions
        ends = transactions.end_lsns
        known = -1 if last_end is None else last_end
        ended: Int64Array = np.concatenate((np.array([known], np.int64), ends))
        for message in alone:
            ended[message.behind + 1] = message.lsn
        self._before = ended[:-1]
        self.last_end = max(last_end or -1, int(ended.max()))
        self._texts: pa.StringArray | None = None

    def ended_before(self, place: int) -> int | None:
        """Returns where the transaction before this one ended, if it is known."""
        end = int(self._before[place])
        return None if end < 0 else end

    def names(self, places: Int64Array) -> ColumnOrValue:
        """Returns the commit's LSN as text, with which `headwater.at` begins."""
        if (one := _only(places)) is not None:
            return lsn_text(int(self._all.commit_lsns[one]))
        if self._texts is None:
            self._texts = lsn_texts(self._all.commit_lsns)
        return self._texts.take(pa.array(places))

    def times(self, places: Int64Array) -> dict[str, ColumnOrValue]:
        if (one := _only(places)) is not None:
            return source_times(int(self._all.committed_us[one]))
        return source_times(pa.array(self._all.committed_us[places]))

    def xids(self, places: Int64Array) -> ColumnOrValue:
        if (one := _only(places)) is not None:
            return int(self._all.xids[one])
        return pa.array(self._all.xids[places])

    def sequences(self, places: Int64Array, lsns: pa.Array) -> ColumnOrValue:
        """Returns Debezium's pair of the last commit and the change itself, as a JSON string."""
        one = _only(places)
        if one is not None:
            before: pa.Array | str = _element(int(self._before[one]))
            if len(lsns) == 1:
                return f'[{before},"{lsns[0].as_py()}"]'
        else:
            known = pa.array(self._before)
            named = pc.binary_join_element_wise('"', known.cast(pa.string()), '"', EMPTY)
            before = pc.if_else(pa.array(self._before >= 0), named, "null").take(pa.array(places))
        return pc.binary_join_element_wise("[", before, ',"', lsns.cast(pa.string()), '"]', EMPTY)


def _element(lsn: int) -> str:
    return "null" if lsn < 0 else f'"{lsn}"'


def _only(places: Int64Array) -> int | None:
    """Returns the one transaction of all changes, which are in order; None if there are several."""
    return int(places[0]) if places[0] == places[-1] else None


@dataclass(frozen=True, slots=True)
class PlacedChanges:
    """Changes with their transactions in the WAL batch."""

    changes: TableChanges
    transactions: Int64Array

    def since(self, start: int) -> "PlacedChanges":
        """Returns the changes from that one on."""
        count = len(self.transactions) - start
        return PlacedChanges(self.changes.slice(start, count), self.transactions[start:])

    @property
    def lsns(self) -> Int64Array:
        lsn = self.changes.source["lsn"]
        if isinstance(lsn, pa.Array):
            found: Int64Array = lsn.to_numpy()
            return found
        return np.full(len(self.changes), lsn, np.int64)


@dataclass(slots=True)
class _Open:
    """The state of a transaction that the WAL batch has not finished."""

    xid: int
    counts: dict[TableId, int] = field(default_factory=dict)
    messages: int = 0

    @property
    def total(self) -> int:
        return sum(self.counts.values()) + self.messages


class TransactionEvents(NamedTuple):
    """The events of one table in order: transaction, index in it, and LSN."""

    table: TableId
    transactions: Int64Array
    indexes: Int64Array
    lsns: Int64Array

    @classmethod
    def of(cls, placed: PlacedChanges) -> "TransactionEvents":
        changes = placed.changes
        return cls(changes.schema.table, placed.transactions, _indexes(changes), placed.lsns)


class CountedChanges(NamedTuple):
    """The content of one WAL batch, with its places in the transactions."""

    tables: list[TableChanges]
    messages: Sequence[TransactionBlock | None]
    """The block of each message; None outside of transactions."""
    ends: EventMessages | None
    """Begins and ends of transactions."""


class TransactionCounts:
    """Counts events across WAL batches. A change of key counts twice, because it is two events. A
    logical message counts as the only event of its own collection."""

    def __init__(self) -> None:
        self._open: _Open | None = None

    def count(
        self,
        wal_batch: WalBatch,
        placed: Sequence[PlacedChanges],
        told: Sequence[WalMessage],
        left_out: Sequence[TransactionEvents] = (),
    ) -> CountedChanges:
        """Counts the events. `left_out`: events of rejected rows, which count as well."""
        events_of_rows = [*(TransactionEvents.of(each) for each in placed), *left_out]
        sizes = [len(each.indexes) for each in events_of_rows]
        inside = [each for each in told if each.transaction is not None]
        row_count = sum(sizes)
        tables = list(dict.fromkeys(each.table for each in events_of_rows))
        numbers = np.array([tables.index(each.table) for each in events_of_rows], np.int64)
        of_table = np.repeat(numbers, np.array(sizes, np.int64))
        of_transaction, indexes, lsns = _events(events_of_rows, inside)
        total = _ranks([of_transaction], indexes)
        within = _ranks([of_table, of_transaction[:row_count]], indexes[:row_count])
        if self._open is not None:
            goes_on = of_transaction == 0
            total[goes_on] += self._open.total
            known = np.array([self._open.counts.get(table, 0) for table in tables], np.int64)
            within[goes_on[:row_count]] += known[of_table[goes_on[:row_count]]]
        ids = _ids(wal_batch.transactions.xids[of_transaction], lsns)
        found, start = [], 0
        for each, size in zip(placed, sizes, strict=False):
            rows = slice(start, start + size)
            block: dict[str, ColumnOrValue] = {
                "id": ids[rows],
                "total_order": pa.array(total[rows] + 1),
                "data_collection_order": pa.array(within[rows] + 1),
            }
            found.append(replace(each.changes, transaction=block))
            start += size
        blocks = (
            {"id": name, "total_order": place, "data_collection_order": 1}
            for name, place in zip(
                ids[row_count:].to_pylist(), (total[row_count:] + 1).tolist(), strict=True
            )
        )
        messages = [None if each.transaction is None else next(blocks) for each in told]
        width = len(wal_batch.transactions.xids)
        counts = {
            table: np.bincount(of_transaction[:row_count][of_table == number], minlength=width)
            for number, table in enumerate(tables)
        }
        of_messages = np.bincount(of_transaction[row_count:], minlength=width)
        return CountedChanges(found, messages, self._describe(wal_batch, counts, of_messages))

    def _describe(
        self,
        wal_batch: WalBatch,
        counts: dict[TableId, Int64Array],
        of_messages: Int64Array,
    ) -> EventMessages | None:
        values: list[dict[str, Any]] = []
        transactions = wal_batch.transactions
        for number, xid in enumerate(transactions.xids.tolist()):
            committed_ms = int(transactions.committed_us[number]) // 1_000
            here = {table: int(each[number]) for table, each in counts.items() if each[number]}
            is_open = number == 0 and self._open is not None
            if not is_open:
                if not here and not of_messages[number]:
                    continue
                begin_lsn = int(transactions.begin_lsns[number])
                values.append(_begin(f"{xid}:{begin_lsn}", committed_ms))
                self._open = _Open(xid)
            opened = self._open
            assert opened is not None, "a transaction that has events has begun"
            for table, count in here.items():
                opened.counts[table] = opened.counts.get(table, 0) + count
            opened.messages += int(of_messages[number])
            end = int(transactions.end_lsns[number])
            if end >= 0:
                values.append(_end(f"{xid}:{end}", opened, committed_ms))
                self._open = None
        keys = [{"id": value["id"]} for value in values]
        return EventMessages.of("transaction", keys, values) if keys else None


def _events(
    rows: Sequence[TransactionEvents], inside: Sequence[WalMessage]
) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Yields the events of all rows and then messages: transaction, index in it, and LSN."""
    told = [(each.transaction or 0, each.index, each.lsn) for each in inside]
    of_messages = np.array(told, np.int64).reshape(-1, 3).T
    of_transaction = [*(each.transactions for each in rows), of_messages[0]]
    indexes = [*(each.indexes for each in rows), of_messages[1]]
    lsns = [*(each.lsns for each in rows), of_messages[2]]
    return np.concatenate(of_transaction), np.concatenate(indexes), np.concatenate(lsns)


def _ids(xids: Int64Array, lsns: Int64Array) -> pa.StringArray:
    """Returns the id of each event: Debezium's differ between the events of one transaction."""
    texts = (pa.array(each).cast(pa.string()) for each in (xids, lsns))
    return pc.binary_join_element_wise(*texts, ":")


def _begin(name: str, committed_ms: int) -> dict[str, Any]:
    return {
        "status": "BEGIN",
        "id": name,
        "event_count": None,
        "data_collections": None,
        "ts_ms": committed_ms,
    }


def _end(name: str, opened: _Open, committed_ms: int) -> dict[str, Any]:
    return {
        "status": "END",
        "id": name,
        "event_count": opened.total,
        "data_collections": [
            *(
                {"data_collection": str(table), "event_count": count}
                for table, count in opened.counts.items()
            ),
            *[{"data_collection": MESSAGE_COLLECTION, "event_count": 1}] * opened.messages,
        ],
        "ts_ms": committed_ms,
    }


def _indexes(changes: TableChanges) -> Int64Array:
    assert changes.indexes is not None, "changes of the stream are counted"
    found: Int64Array = changes.indexes.to_numpy()
    return found


def _ranks(groups: Sequence[Int64Array], indexes: Int64Array) -> Int64Array:
    """Returns how many events of its group are before each one; equal ones keep their order."""
    if not len(indexes):
        return np.empty(0, np.int64)
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
