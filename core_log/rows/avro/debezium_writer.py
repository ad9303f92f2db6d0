"""Debezium's envelope as an Avro record."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.model.changes import OP_CODES, ColumnOrValue, Operation, TableChanges
from headwater.core_log.rows.avro.writer import (
    FIRST_BRANCH,
    NOTHING,
    SECOND_BRANCH,
    AvroPart,
    constant,
    value_parts,
)
from headwater.core_log.rows.connect_schema import (
    FLAG,
    NUMBER,
    SMALL_NUMBER,
    source_schema,
    transaction_schema,
)

KINDS = {NUMBER: pa.int64(), FLAG: pa.bool_(), SMALL_NUMBER: pa.int32()}
ONE_LETTER = b"\x02"


def envelope_parts(
    changes: TableChanges, row: Sequence[AvroPart], before: pa.Array | None, *, now_us: int
) -> list[AvroPart]:
    """Returns the envelope's parts. `before` holds encoded rows before updates, null if there is
    none."""
    return [
        *_images(changes, row, before),
        *_block_parts(changes.source, source_schema(changes.source)),
        *_transaction(changes.transaction),
        ONE_LETTER,
        pa.array(OP_CODES, pa.string()).cast(pa.binary()).take(changes.operations),
        *(constant(pa.int64(), time, is_optional=True)
          for time in (now_us // 1_000, now_us, now_us * 1_000)),
    ]  # fmt: skip


def _images(
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
