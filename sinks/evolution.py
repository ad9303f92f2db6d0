"""Changes of a target table after a change of the source's schema, by policy."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

import pyarrow as pa

from headwater.core_log.foundation.errors import RebuildNeeded, SchemaRefused
from headwater.core_log.model.table_schema import Column, TableId, TableSchema

INTEGER_BITS = {
    pa.int8(): (True, 7), pa.int16(): (True, 15), pa.int32(): (True, 31), pa.int64(): (True, 63),
    pa.uint8(): (False, 8), pa.uint16(): (False, 16), pa.uint32(): (False, 32),
    pa.uint64(): (False, 64),
}  # fmt: skip
"""Integer types: whether they are signed, and the bits of their largest value."""
DIGITS = {7: 3, 8: 3, 15: 5, 16: 5, 31: 10, 32: 10, 63: 19, 64: 20}
FLOAT_BITS = {pa.float16(): 11, pa.float32(): 24, pa.float64(): 53}
UNITS = ("s", "ms", "us", "ns")


STRICT_TEXTS = ("io.debezium.data.Json", "io.debezium.data.Uuid")
"""Meanings of texts for which some targets have types that take no other text."""


class EvolutionAction(Enum):
    """The change of one column of the target."""

    ADD = "add the column"
    DROP = "drop the column"
    KEEP = "keep the column, null in rows from now on"
    SKIP = "leave the column's values out"
    WIDEN = "give the column the wider type"
    LOOSEN = "let the column be null"
    STAY = "leave the column's type as it is"


ACTIONS: Mapping[str, Mapping[str, EvolutionAction | None]] = {
    "add_column": {
        "evolve": EvolutionAction.ADD,
        "lenient": EvolutionAction.ADD,
        "ignore": EvolutionAction.SKIP,
    },
    "drop_column": {
        "evolve": EvolutionAction.DROP,
        "lenient": EvolutionAction.KEEP,
        "ignore": EvolutionAction.KEEP,
    },
    "widen_type": {
        "evolve": EvolutionAction.WIDEN,
        "lenient": EvolutionAction.WIDEN,
        "ignore": EvolutionAction.STAY,
    },
    "change_type": {"ignore": EvolutionAction.STAY},
    "drop_not_null": {
        "evolve": EvolutionAction.LOOSEN,
        "lenient": EvolutionAction.LOOSEN,
        "ignore": EvolutionAction.STAY,
    },
}
"""Kind of change and policy to action; every other pair is refused.

A renamed column is one removed and one added, unless `may_rename`. A type that does not hold the
former values is never changed in place, because that would be a silent cast: the table is rebuilt
from the log.
"""


@dataclass(frozen=True, slots=True)
class EvolutionStep:
    """One difference between a target table and the schema of the next changes."""

    kind: str
    column: str
    action: EvolutionAction
    becomes: Column | None = None
    """The source's column now; None if it was removed."""


def steps(
    table: TableId,
    *,
    present: Sequence[Column],
    wanted: TableSchema,
    policy: Mapping[str, str],
    comes: TableSchema | None = None,
) -> list[EvolutionStep]:
    """Returns the steps for a table with the columns `present`, in order of their names.

    Raises `SchemaRefused` for a change that this policy, or any policy, does not allow. `comes` is
    the schema of the changes, if the target stores it by other types, which are in `wanted`.
    """
    there = {column.name: column for column in present}
    found: list[EvolutionStep] = []
    for column in wanted.columns:
        old = there.get(column.name)
        if old is None:
            found.append(step_of(table, "add_column", column.name, column, policy))
            continue
        if not holds(old.type, column.type):
            source = column.type if comes is None else comes.column(column.name).type
            is_wider = holds(column.type, old.type) or holds(source, old.type)
            kind = "widen_type" if is_wider else "change_type"
            types = {"stored": str(old.type), "comes": str(column.type)}
            found.append(step_of(table, kind, column.name, column, policy, **types))
        if column.is_nullable and not old.is_nullable and column.name not in wanted.key:
            found.append(step_of(table, "drop_not_null", column.name, column, policy))
    gone = [column.name for column in present if column.name not in wanted.names]
    found += [step_of(table, "drop_column", name, None, policy) for name in gone]
    return found


def may_rename(policy: Mapping[str, str]) -> bool:
    """Returns whether a column is renamed in place if its id shows that it is the same."""
    comes = ACTIONS["add_column"].get(policy.get("add_column", "evolve"))
    goes = ACTIONS["drop_column"].get(policy.get("drop_column", "evolve"))
    return comes is EvolutionAction.ADD and goes is not None


def toward(schema: TableSchema, newest: TableSchema | None) -> TableSchema:
    """Returns `schema` with its columns' final types where the present ones are too narrow. A table
    filled from its beginning is then not altered on the way."""
    if newest is None:
        return schema
    last = {column.name: column.type for column in newest.columns}
    columns = tuple(
        column
        if holds(column.type, last.get(column.name, column.type))
        else replace(newest.column(column.name), is_nullable=column.is_nullable)
        for column in schema.columns
    )
    return replace(schema, columns=columns)


def holds(wide: pa.DataType, narrow: pa.DataType) -> bool:
    """Returns whether every value of `narrow` is, unchanged, a value of `wide`."""
    if wide == narrow:
        return True
    if narrow in INTEGER_BITS:
        return _holds_integer(wide, *INTEGER_BITS[narrow])
    if pa.types.is_decimal(wide) and pa.types.is_decimal(narrow):
        return bool(
            wide.scale >= narrow.scale
            and wide.precision - wide.scale >= narrow.precision - narrow.scale
        )
    if narrow in FLOAT_BITS:
        return FLOAT_BITS.get(wide, 0) >= FLOAT_BITS[narrow]
    if _is_of(wide, narrow, pa.types.is_timestamp):
        return (wide.tz is None) == (narrow.tz is None) and _is_finer(wide, narrow)
    if _is_of(wide, narrow, pa.types.is_time):
        return _is_finer(wide, narrow)
    if _is_text(wide):
        return _is_text(narrow)
    if _is_binary(wide):
        return _is_binary(narrow)
    return False


def is_strict_beside(wide: Column, narrow: Column) -> bool:
    """Returns whether a target's column for `wide` may refuse texts of `narrow`."""
    return wide.semantic in STRICT_TEXTS and wide.semantic != narrow.semantic


def _holds_integer(wide: pa.DataType, is_signed: bool, bits: int) -> bool:
    if wide in INTEGER_BITS:
        wide_is_signed, wide_bits = INTEGER_BITS[wide]
        return wide_bits >= bits and (wide_is_signed or not is_signed)
    if pa.types.is_decimal(wide):
        return bool(wide.precision - wide.scale >= DIGITS[bits])
    return FLOAT_BITS.get(wide, 0) >= bits


def _is_of(wide: pa.DataType, narrow: pa.DataType, test: object) -> bool:
    assert callable(test)
    return bool(test(wide) and test(narrow))


def _is_finer(wide: pa.DataType, narrow: pa.DataType) -> bool:
    return UNITS.index(wide.unit) >= UNITS.index(narrow.unit)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_binary(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


def step_of(
    table: TableId,
    kind: str,
    column: str,
    becomes: Column | None,
    policy: Mapping[str, str],
    **facts: object,
) -> EvolutionStep:
    """Returns the step that the policy chooses; raises `SchemaRefused` if there is none."""
    chosen = policy.get(kind, "evolve")
    action = ACTIONS[kind].get(chosen)
    if action is None:
        raise (RebuildNeeded if chosen == "evolve" else SchemaRefused)(
            PROBLEMS[kind],
            table=str(table),
            column=column,
            **facts,
            policy=f"{kind}: {chosen}",
            hint=HINTS[kind].format(kind=kind),
        )
    return EvolutionStep(kind, column, action, becomes)


PROBLEMS = {
    "add_column": "a column has come that the target does not have",
    "drop_column": "a column has gone that the target still has",
    "widen_type": "a column's type has become wider than the target's",
    "change_type": "a column's type has become another one than the target's",
    "drop_not_null": "a column may be null now, which the target does not allow",
}
ALLOW = "set `schema_changes: {{{kind}: evolve}}` in the pipeline file"
HINTS = dict.fromkeys(PROBLEMS, ALLOW) | {
    "change_type": "headwater rebuild PIPELINE/TABLE --swap makes the table anew with the type it "
    "has now; a `cast` in the pipeline file keeps the old one"
}
