"""Reads JSON objects, one per record, as columns whose types are inferred once and then fixed."""

import io
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.model.table_schema import Column, TableId, TableSchema
from headwater.core_log.records.record_views import RecordColumns
from headwater.core_log.rows.rejects import misfit_in, whole_or_rejected
from headwater.core_log.rows.schema_text import parse_type, schema_to_json, type_text
from headwater.core_log.rows.settings import WireSettings

BLOCK_BYTES_MAX = 1 << 30
NO_ROW = "the value is not JSON object of this table's columns"


def column_types(documents: Sequence[bytes]) -> Mapping[str, pa.DataType]:
    """Returns the types of these objects' fields; text if only nulls were seen. Text stays text,
    even if it looks like a time. If values disagree, the type of most values counts."""
    try:
        return _types_of(b"\n".join(documents))
    except pa.ArrowInvalid:
        votes: dict[str, Counter[pa.DataType]] = {}
        for document in documents:
            for name, kind in _types_of(document).items():
                votes.setdefault(name, Counter())[kind] += 1
        return {name: counts.most_common(1)[0][0] for name, counts in votes.items()}


def _types_of(text: bytes) -> Mapping[str, pa.DataType]:
    table = pj.read_json(io.BytesIO(text), read_options=_options(len(text)), parse_options=_LOOSE)
    kinds = {field.name: _settle(field.type) for field in table.schema}
    return {name: kind for name, kind in kinds.items() if _is_supported(kind)}


def _is_supported(kind: pa.DataType) -> bool:
    """Whether the type's text can be parsed again: a type that is nested too deeply can only be
    written."""
    try:
        return bool(parse_type(type_text(kind)) == kind)
    except DecodeError:
        return False


def as_line(document: Mapping[str, Any]) -> bytes | None:
    """Returns the object on one line; None if it is nested too deeply."""
    try:
        return orjson.dumps(document)
    except orjson.JSONEncodeError:
        return None


def read_rows(documents: pa.BinaryArray, schema: TableSchema) -> pa.RecordBatch:
    """Returns the rows; raises `RowsRejected` for objects with other fields or with values that do
    not fit. A missing field is null."""
    types = {column.name: column.type for column in schema.columns}
    return whole_or_rejected(
        len(documents),
        lambda start, end: _read(documents.slice(start, end - start), schema),
        lambda row: misfit_in(documents[row].as_py(), types) or NO_ROW,
        "rows do not fit their columns",
    )


def widen(known: TableSchema, kinds: Mapping[str, pa.DataType]) -> TableSchema:
    """Returns the columns with the new ones added; existing ones keep their type."""
    added = [Column(name, kind) for name, kind in kinds.items() if name not in known.names]
    return TableSchema(known.table, (*known.columns, *added), known.key) if added else known


def _read(documents: pa.BinaryArray, schema: TableSchema) -> pa.RecordBatch:
    if not len(documents):
        return pa.RecordBatch.from_pylist([], schema=schema.arrow)
    _check_objects(documents)
    lines = pc.replace_substring(documents, b"\n", b" ") if _has_lines(documents) else documents
    text = pc.binary_join(pa.ListArray.from_arrays([0, len(lines)], lines), b"\n")[0].as_buffer()
    options = pj.ParseOptions(explicit_schema=schema.arrow, unexpected_field_behavior="error")
    table = pj.read_json(
        pa.BufferReader(text), read_options=_options(text.size), parse_options=options
    )
    if table.num_rows != len(documents):
        raise ValueError("a record does not hold exactly one object")
    required = [column.name for column in schema.columns if not column.is_nullable]
    if any(table[name].null_count for name in required):
        raise ValueError("a required column is missing")
    [batch] = table.combine_chunks().to_batches()
    return batch


def _check_objects(documents: pa.BinaryArray) -> None:
    """Arrow's parser accepts a bare `null` as a row, and crashes the process if it comes first."""
    others = documents.filter(pc.invert(pc.starts_with(documents, pattern="{")))
    if not all(value.lstrip().startswith(b"{") for value in others.to_pylist()):
        raise ValueError("a record contains no object")


def _has_lines(documents: pa.BinaryArray) -> bool:
    return bool(pc.any(pc.match_substring(documents, "\n")).as_py())


def _options(size: int) -> pj.ReadOptions:
    """Reads all of it as one block, since a block must contain whole lines."""
    if size > BLOCK_BYTES_MAX:
        raise DecodeError("rows are too large to be read together", hint="lower fetch_bytes")
    return pj.ReadOptions(use_threads=False, block_size=max(size + 1, 1 << 16))


_LOOSE = pj.ParseOptions(unexpected_field_behavior="infer")


def _settle(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_null(kind) or pa.types.is_timestamp(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(_settle(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, _settle(each.type)) for each in kind])
    return kind


@dataclass(frozen=True, slots=True)
class TopicBatch:
    """Neighbouring records of one schema; `places` are their indices among the given ones."""

    schema: TableSchema
    rows: pa.RecordBatch
    operations: pa.UInt8Array
    indices: pa.Int64Array
    committed_us: pa.Int64Array | None = None
    """Commit times, if the records contain them."""


class DecodedBatches(NamedTuple):
    batches: list[TopicBatch]
    rejected: Mapping[int, str]
    """Reasons by the indices of the records."""


class TopicReader(Protocol):
    """Reads one topic. The schema that it has inferred is part of the source position."""

    table: TableId
    schema: TableSchema | None

    def decode(self, columns: RecordColumns, *, partition: int) -> DecodedBatches: ...
    def schema_text(self) -> str:
        """Returns the state to store; empty if there is none."""
        ...


def text_of(schema: TableSchema, wire: WireSettings) -> str:
    return json.dumps(schema_to_json(schema, wire), ensure_ascii=True, separators=(",", ":"))


def without(count: int, rejected: Mapping[int, str]) -> pa.Int64Array:
    return pa.array(np.delete(np.arange(count), list(rejected)).astype(np.int64))
