"""Parts of the transforms after the log: steps, columns put in place, rejections."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Generic, Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.foundation.errors import (
    ConfigError,
    HeadwaterError,
    TransformFailed,
    TransformRejected,
)
from headwater.core_log.foundation.name_patterns import Patterns
from headwater.core_log.model.changes import Operation, TableChanges
from headwater.core_log.model.table_schema import Column, TableId, TableSchema
from headwater.pipelines.file.spec import TransformRule


class TransformStep(Protocol):
    """One thing that is done to the changes of one schema."""

    @property
    def schema(self) -> TableSchema:
        """The table as it is afterwards."""
        ...

    def apply(self, changes: TableChanges) -> TableChanges:
        """Never handed a truncate. Raises RecordsRejected for rows that are to blame."""
        ...


def is_operation(changes: TableChanges, *operations: Operation) -> pa.BooleanArray:
    return pc.is_in(changes.operations, value_set=pa.array(operations, pa.uint8()))


def with_columns(
    changes: TableChanges, schema: TableSchema, columns: Mapping[str, pa.Array]
) -> TableChanges:
    """The same changes with these columns in place of, or beside, their own; the rows before them
    no longer look like the table and are left out."""
    arrays = [
        columns[name] if name in columns else changes.rows.column(name) for name in schema.names
    ]
    rows = pa.RecordBatch.from_arrays(arrays, schema=schema.arrow)
    return replace(changes, schema=schema, rows=rows, before=None)


def put_columns(schema: TableSchema, added: Sequence[Column]) -> TableSchema:
    """Each in the place of the column of its name, or at the end."""
    columns = {column.name: column for column in schema.columns}
    return replace(schema, columns=tuple((columns | {each.name: each for each in added}).values()))


T = TypeVar("T")

SCHEMAS_PER_TABLE_MAX = 8
"""A table's schemas come one after the other; a replay goes through the old ones once."""


class BySchema(Generic[T]):
    """A schema cannot be hashed, but most often it is the very object of the batch before."""

    def __init__(self, work_out: Callable[[TableSchema], T]) -> None:
        self._work_out = work_out
        self._known: dict[TableId, list[tuple[TableSchema, T]]] = {}

    def of(self, schema: TableSchema) -> T:
        known = self._known.setdefault(schema.table, [])
        for place, (seen, result) in enumerate(known):
            if seen is schema or seen == schema:
                if place:
                    known.insert(0, known.pop(place))
                return result
        result = self._work_out(schema)
        known.insert(0, (schema, result))
        del known[SCHEMAS_PER_TABLE_MAX:]
        return result


def rejection(problem: str, changes: TableChanges, reasons: Mapping[int, str]) -> HeadwaterError:
    """The error for the rows at these places: by their offsets, where they have some."""
    if changes.log_partition is None or changes.log_offsets is None:
        return TransformFailed(
            problem,
            table=str(changes.schema.table),
            rows=sorted(reasons)[:20],
            why=min(reasons.items())[1],
        )
    return TransformRejected(
        problem,
        topic=changes.log_partition.topic,
        partition=changes.log_partition.partition,
        reasons={changes.log_offsets[row].as_py(): reason for row, reason in reasons.items()},
    )


def at_table(error: ConfigError, schema: TableSchema) -> ConfigError:
    """A mistake of the file as it is met at a table, which can then be stopped alone."""
    facts = {"table": str(schema.table)} | error.facts
    return ConfigError(error.problem, hint=error.hint, **facts)


WILD = re.compile(r"[*?/!\\]")


class RuleTables:
    """The tables of one rule."""

    def __init__(self, rule: TransformRule) -> None:
        self._patterns = Patterns(rule.table)
        self._is_exact = not any(WILD.search(text) for text in rule.table)

    def match(self, table: TableId) -> bool:
        return self._patterns.matches(str(table))

    def present(self, wanted: Iterable[str], schema: TableSchema, *, use: str) -> list[str]:
        """Those of the wanted columns that the table has. A rule that names its table has to name
        its columns right, since a mistyped mask would hide nothing; one for many tables applies
        wherever there is such a column."""
        names = set(schema.names)
        wanted = list(wanted)
        if self._is_exact and (missing := [name for name in wanted if name not in names]):
            raise no_column(missing[0], schema, use=use)
        return [name for name in wanted if name in names]


def no_column(name: str, schema: TableSchema, *, use: str) -> ConfigError:
    return ConfigError(
        "the table does not have this column",
        hint=near(name, schema.names) or f"the table has {', '.join(schema.names)}",
        table=str(schema.table),
        column=name,
        use=use,
    )


def near(name: str, known: Collection[str], *, likeness: float = 0.6) -> str:
    """A guess at what was meant, or nothing."""
    from difflib import get_close_matches

    found = get_close_matches(name, known, n=1, cutoff=likeness)
    return f"did you mean {found[0]}?" if found else ""
