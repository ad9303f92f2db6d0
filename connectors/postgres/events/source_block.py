"""Debezium's `source` and `transaction` blocks, and the place of each change, as columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.connectors.postgres.server.lsn import lsn_text, lsn_texts
from headwater.connectors.postgres.wal.wal_batch import Transactions, WalMessage
from headwater.core_log.foundation.array_types import Int64Array
from headwater.core_log.model.changes import ColumnOrValue, source_times
from headwater.core_log.model.table_schema import TableId

EMPTY = pa.scalar("")


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
