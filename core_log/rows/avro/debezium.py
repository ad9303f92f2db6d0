"""Debezium's events, and flat rows, as Avro records: read as changes, and written."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.foundation.array_types import Int64Array
from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.model.changes import (
    OP_CODES,
    ColumnOrValue,
    Operation,
    TableChanges,
    concat_changes,
)
from headwater.core_log.rows.avro.schema import fit, row_columns
from headwater.core_log.rows.avro.writer import (
    FIRST_BRANCH,
    NOTHING,
    SECOND_BRANCH,
    AvroPart,
    constant,
    spread,
    value_parts,
)
from headwater.core_log.rows.connect_schema import (
    FLAG,
    NUMBER,
    SMALL_NUMBER,
    source_schema,
    transaction_schema,
)
from headwater.core_log.rows.converters.row import RowConverters, refuse
from headwater.core_log.rows.json.flat_codec import ADDED, OPERATION, TIME_US

OPERATIONS = pa.array(OP_CODES[: Operation.TRUNCATE], pa.string())
DecodedPart = tuple[Int64Array, TableChanges]
"""Indices of records, and their content."""
KINDS = {NUMBER: pa.int64(), FLAG: pa.bool_(), SMALL_NUMBER: pa.int32()}
ONE_LETTER = b"\x02"


def read_events(events: pa.StructArray, forms: RowConverters) -> TableChanges:
    fields = _members(events, needed=("before", "after", "source", "op"))
    source = _members(fields["source"], needed=())
    operations = pc.index_in(fields["op"], OPERATIONS).cast(pa.uint8())
    is_deleted = pc.equal(operations, int(Operation.DELETE))
    row = pc.if_else(is_deleted, fields["before"], fields["after"])
    committed_us = source.get("ts_us", pa.nulls(len(events), pa.int64()))
    if "ts_ms" in source:
        committed_us = pc.coalesce(committed_us, pc.multiply(source["ts_ms"], 1_000))
    refuse(
        {
            "`op` is none of r, c, u and d": operations.is_null(),
            "the row is missing": row.is_null(),
            "the time of the commit is missing": committed_us.is_null(),
        }
    )
    rows = _rows(row, forms)
    forms.refuse_nulls(rows, is_deleted)
    images = pc.if_else(is_deleted, pa.scalar(None, row.type), fields["before"])
    return TableChanges(
        forms.schema, rows, operations, {"ts_us": committed_us}, before=_images(images, forms)
    )


def read_flat(found: pa.StructArray, forms: RowConverters) -> TableChanges:
    fields = _members(found, needed=tuple(ADDED))
    operations = pc.index_in(fields[OPERATION], OPERATIONS).cast(pa.uint8())
    refuse(
        {
            "`__op` is none of r, c, u and d": operations.is_null(),
            "the time of the commit is missing": fields[TIME_US].is_null(),
        }
    )
    rows = _rows(found, forms, may_have=tuple(ADDED))
    forms.refuse_nulls(rows, pc.equal(operations, int(Operation.DELETE)))
    return TableChanges(forms.schema, rows, operations, {"ts_us": fields[TIME_US]})


def in_order(parts: Sequence[DecodedPart], forms: RowConverters) -> TableChanges:
    """Merges the parts of each schema into the order of the records; most topics have one part."""
    if not parts:
        nothing = pa.RecordBatch.from_pylist([], schema=forms.schema.arrow)
        times = {"ts_us": pa.array([], pa.int64())}
        return TableChanges(forms.schema, nothing, pa.array([], pa.uint8()), times)
    if len(parts) == 1:
        return parts[0][1]
    order = pa.array(np.argsort(np.concatenate([indices for indices, _ in parts])))
    return concat_changes([each for _, each in parts]).take(order)


def _members(column: pa.Array, *, needed: Sequence[str]) -> dict[str, pa.Array]:
    if not pa.types.is_struct(column.type):
        raise DecodeError("the schema of these records is not an event's")
    found = {each.name: part for each, part in zip(column.type, column.flatten(), strict=True)}
    if missing := [name for name in needed if name not in found]:
        raise DecodeError("the schema of these records lacks fields", fields=missing)
    return found


def _rows(
    found: pa.StructArray, forms: RowConverters, *, may_have: Sequence[str] = ()
) -> pa.RecordBatch:
    columns = row_columns(found, forms.schema.names, may_have=may_have)
    return forms.from_wire(columns, len(found), unpack=fit)


def _images(images: pa.StructArray, forms: RowConverters) -> pa.StructArray | None:
    is_there = images.is_valid()
    if not pc.any(is_there).as_py():
        return None
    rows = _rows(images.filter(is_there), forms)
    return spread(rows.to_struct_array(), is_there)


def envelope_parts(
    changes: TableChanges, row: Sequence[AvroPart], before: pa.Array | None, *, now_us: int
) -> list[AvroPart]:
    """Returns the envelope's parts. `before` holds encoded rows before updates, null if there is
    none."""
    return [
        *_image_parts(changes, row, before),
        *_block_parts(changes.source, source_schema(changes.source)),
        *_transaction(changes.transaction),
        ONE_LETTER,
        pa.array(OP_CODES, pa.string()).cast(pa.binary()).take(changes.operations),
        *(constant(pa.int64(), time, is_optional=True)
          for time in (now_us // 1_000, now_us, now_us * 1_000)),
    ]  # fmt: skip


def _image_parts(
    changes: TableChanges, row: Sequence[AvroPart], before: pa.Array | None
) -> list[AvroPart]:
    if changes.is_truncate:
        return [FIRST_BRANCH * 2]
    operations = changes.operations
    if before is None and len(pc.unique(operations)) == 1:
        if operations[0].as_py() == Operation.DELETE:
            return [SECOND_BRANCH, *row, FIRST_BRANCH]
        return [FIRST_BRANCH + SECOND_BRANCH, *row]
    none, some = (pa.scalar(each, pa.binary()) for each in (FIRST_BRANCH, SECOND_BRANCH))
    nothing = pa.scalar(b"", pa.binary())
    is_deleted = pc.equal(operations, int(Operation.DELETE))
    opening: Any = none
    if before is not None:
        known = pc.binary_join_element_wise(some, before.fill_null(b""), NOTHING)
        opening = pc.if_else(before.is_valid(), known, none)
    opening = pc.if_else(is_deleted, nothing, opening)
    return [opening, SECOND_BRANCH, *row, pc.if_else(is_deleted, none, nothing)]


def _block_parts(block: Mapping[str, ColumnOrValue], schema: Mapping[str, Any]) -> list[AvroPart]:
    parts: list[AvroPart] = []
    for (_, value), field in zip(block.items(), schema["fields"], strict=True):
        kind = KINDS.get(field["type"], pa.string())
        if "default" in field:  # its own type is the union's first branch then
            parts += _write_default(value, kind)
        elif isinstance(value, pa.Array):
            parts += value_parts(value.cast(kind), is_optional=field["optional"])
        else:
            parts.append(constant(kind, value, is_optional=field["optional"]))
    return parts


def _write_default(value: ColumnOrValue, kind: pa.DataType) -> list[AvroPart]:
    if value is None:
        return [SECOND_BRANCH]
    if not isinstance(value, pa.Array):
        return [FIRST_BRANCH, constant(kind, value, is_optional=False)]
    return [FIRST_BRANCH, *value_parts(value.cast(kind).fill_null("false"), is_optional=False)]


def _transaction(block: Mapping[str, ColumnOrValue] | None) -> list[AvroPart]:
    if block is None:
        return [FIRST_BRANCH]
    schema = transaction_schema()
    ordered = {field["field"]: block[field["field"]] for field in schema["fields"]}
    return [SECOND_BRANCH, *_block_parts(ordered, schema)]
