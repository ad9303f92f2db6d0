"""What readers of topics hand on: rows with their places among the records that were given."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from headwater.core_log.model.table_schema import TableId, TableSchema
from headwater.core_log.records.arrow_codec import RecordColumns
from headwater.core_log.rows.schema_text import schema_to_json
from headwater.core_log.rows.settings import WireSettings


@dataclass(frozen=True, slots=True)
class TopicBatch:
    """Neighbouring records of one schema; `places` are theirs among those that were given."""

    schema: TableSchema
    rows: pa.RecordBatch
    operations: pa.UInt8Array
    places: pa.Int64Array
    committed_us: pa.Int64Array | None = None
    """Where the records themselves say it."""


class DecodedBatches(NamedTuple):
    portions: list[TopicBatch]
    rejected: Mapping[int, str]
    """Reasons by the places of the records."""


class TopicReader(Protocol):
    """Reads one topic. What it has learnt of the schema is part of the source's position."""

    table: TableId
    schema: TableSchema | None

    def decode(self, columns: RecordColumns, *, partition: int) -> DecodedBatches: ...
    def learnt(self) -> str:
        """Empty where there is nothing to be remembered."""
        ...


def text_of(schema: TableSchema, wire: WireSettings) -> str:
    return json.dumps(schema_to_json(schema, wire), ensure_ascii=True, separators=(",", ":"))


def without(count: int, rejected: Mapping[int, str]) -> pa.Int64Array:
    """The places that are left."""
    return pa.array(np.delete(np.arange(count), list(rejected)).astype(np.int64))
