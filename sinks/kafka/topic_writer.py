"""Topics of the other cluster for tables, and record batches for changes."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import version

import numpy as np
import pyarrow as pa

from headwater.core_log.foundation.errors import SinkRejected
from headwater.core_log.model.changes import ColumnOrValue, TableChanges, source_times
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.model.table_schema import TableId
from headwater.core_log.records import arrow_codec
from headwater.core_log.records.batch_header import Batch
from headwater.core_log.records.partitioner import partitions_of
from headwater.core_log.rows.codec import RowCodec

ILLEGAL = re.compile(r"[^a-zA-Z0-9._-]")


@dataclass(slots=True)
class TopicWriter:
    """One topic of the target."""

    topic: str
    table: TableId
    partition_count: int
    codec: RowCodec
    compression: int
    batch_bytes_max: int
    turn: int = 0
    """The next partition for tables without a key, whose batches rotate."""

    def encode(
        self, changes: TableChanges, *, pipeline: str, now_ms: int
    ) -> Iterator[tuple[TopicPartition, Batch]]:
        """Encodes changes. A truncate goes into every partition, as in our own log."""
        described = with_source(changes, pipeline)
        encoded = self.codec.encode(described, now_us=now_ms * 1_000)
        if changes.is_truncate and changes.truncated_where:
            raise SinkRejected(
                "a truncate of one part of a table has no form in a topic",
                hint="exclude this table, or give each part a topic of its own",
                table=str(changes.schema.table),
            )
        if changes.is_truncate:
            places = [(number, None) for number in range(self.partition_count)]
        else:
            places = list(self._spread(encoded.keys))
        for partition, rows in places:
            keys, values = encoded.keys, encoded.values
            if rows is not None:
                keys, values = keys.take(rows), values.take(rows)
            for batch in arrow_codec.encode(
                keys,
                values,
                timestamps_ms=now_ms,
                compression=self.compression,
                batch_bytes_max=self.batch_bytes_max,
            ):
                yield TopicPartition(self.topic, partition), batch

    def _spread(self, keys: pa.BinaryArray) -> Iterator[tuple[int, pa.Array | None]]:
        if self.partition_count == 1:
            yield 0, None
            return
        if keys.null_count:
            yield self.turn % self.partition_count, None
            self.turn += 1
            return
        places = partitions_of(keys, self.partition_count)
        for partition in np.unique(places).tolist():
            yield partition, pa.array(np.flatnonzero(places == partition))


def topic_name(template: str, *, pipeline: str, table: TableId) -> str:
    if not table.namespace:
        template = template.replace("{schema}.", "").replace("{schema}", "")
    names = {"pipeline": pipeline, "schema": table.namespace, "table": table.name}
    filled = re.sub(r"\{(pipeline|schema|table)\}", lambda found: names[found[1]], template)
    return ILLEGAL.sub("_", filled)


def with_source(changes: TableChanges, pipeline: str) -> TableChanges:
    """Fills the `source` block. The log returns only the time of it; other known fields are
    added."""
    table = changes.schema.table
    source: dict[str, ColumnOrValue] = {
        "version": _version(),
        "connector": "headwater",
        "name": pipeline,
        **source_times(changes.committed_us),
        "snapshot": "false",
        "db": table.namespace,
        "sequence": None,
        "schema": table.namespace,
        "table": table.name,
    }
    return replace(changes, source=source)


@cache
def _version() -> str:
    return version("headwater")
