"""Reads Avro records of events and of flat rows as changes."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.foundation.array_types import Int64Array
from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.model.changes import OP_CODES, Operation, TableChanges, concat_changes
from headwater.core_log.rows.avro.schema import fit, row_columns
from headwater.core_log.rows.avro.writer import spread
from headwater.core_log.rows.converters.row import RowConverters, refuse
from headwater.core_log.rows.json.flat_codec import ADDED, OPERATION, TIME_US

OPERATIONS = pa.array(OP_CODES[: Operation.TRUNCATE], pa.string())
DecodedPart = tuple[Int64Array, TableChanges]
"""Indices of records, and their content."""


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
