"""The layout of a lake table: the source's columns, Headwater's columns, and their changes."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.foundation.errors import RebuildNeeded, RecordsRejected, SchemaRefused
from headwater.core_log.model.changes import Operation, TableChanges
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.model.table_schema import Column, TableId, TableSchema
from headwater.core_log.rows.rejects import scalar_class
from headwater.sinks.column_ids import ColumnIds
from headwater.sinks.evolution import EvolutionAction, EvolutionStep, holds, may_rename, steps
from headwater.sinks.object_names import (
    COMMITTED_AT,
    OFFSET,
    OP,
    OWN,
    PARTITION,
    TOPIC,
    own_columns,
)
from headwater.sinks.spark.column_types import MOMENT, lake_type, put
from headwater.sinks.spark.settings import LakeTableSettings, Mode
from headwater.sinks.type_conversion import find_changed

OWN_COLUMNS = own_columns(MOMENT)
EVENT_COLUMNS = {
    OP: pa.int32(),
    TOPIC: pa.string(),
    PARTITION: pa.int32(),
    OFFSET: pa.int64(),
    COMMITTED_AT: pa.int64(),
}
"""Columns of an event besides its row: `Operation`, topic, partition, offset, microseconds."""
EVENT_NAMES: Mapping[Mode, tuple[str, ...]] = {
    "mirror": (OP, OFFSET),
    "soft_delete": (OP, OFFSET, COMMITTED_AT),
    "append": tuple(EVENT_COLUMNS),
    "scd2": (OP, OFFSET, COMMITTED_AT),
}
"""The event columns that each mode needs."""
REBUILD = "headwater rebuild PIPELINE/TABLE --swap makes the table anew"


@dataclass(frozen=True, slots=True)
class LakeTableLayout:
    """The layout of a table as it is written now. It is pickled for executors."""

    table: TableId
    mode: Mode
    key: tuple[str, ...]
    columns: pa.Schema
    """The source's columns with their lake types."""
    skipped: frozenset[str] = frozenset()
    """Columns of the source that the policy leaves out."""
    partition_by: tuple[str, ...] = ()
    file_rows: int = 500_000
    ignores_deletes: bool = False
    loose: frozenset[str] = frozenset()
    """Columns whose lake type does not hold all values of the source's present type. Values that
    would become other values are rejected."""
    forgotten: frozenset[str] = frozenset()
    """Columns removed since the files were written; values under such names in files are
    ignored."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Columns to their names when the files were written."""
    filled: Mapping[str, Column] = field(default_factory=dict)
    """Columns added since, with one value for all rows of the files."""
    absent: frozenset[str] = frozenset()
    """Columns of the table that the source does not have any more."""
    held: ColumnIds = field(default_factory=ColumnIds)
    """The ids of the columns."""

    @property
    def compared(self) -> list[str]:
        """Returns the columns by which a re-read row is compared with the table's."""
        return [name for name in self.columns.names if name not in self.absent]

    @property
    def schema(self) -> pa.Schema:
        """Returns the Arrow schema of the table's rows."""
        return _concat(self.columns, OWN_COLUMNS[self.mode])

    @property
    def events(self) -> pa.Schema:
        """Returns the Arrow schema of changes before they are merged."""
        return _concat(self.columns, self._event_columns)

    @property
    def _event_columns(self) -> dict[str, pa.DataType]:
        return {name: EVENT_COLUMNS[name] for name in EVENT_NAMES[self.mode]}

    def conform(self, changes: TableChanges) -> pa.RecordBatch:
        """Returns the changes under the table's columns; null if they lack a column.

        Raises `RecordsRejected` for values that the lake cannot hold.
        """
        partition, offsets = changes.log_partition, changes.log_offsets
        assert partition is not None and offsets is not None, (
            "changes that were read have a log position"
        )
        count, held = len(changes), set(changes.rows.schema.names)
        columns = [
            self._put(changes, field) if field.name in held else pa.nulls(count, field.type)
            for field in self.columns
        ]
        about: dict[str, Callable[[], pa.Array]] = {
            OP: lambda: changes.operations.cast(pa.int32()),
            TOPIC: lambda: pa.repeat(pa.scalar(partition.topic), count),
            PARTITION: lambda: pa.repeat(pa.scalar(partition.partition, pa.int32()), count),
            OFFSET: lambda: offsets,
            COMMITTED_AT: lambda: changes.committed_us,
        }
        own = [about[name]() for name in EVENT_NAMES[self.mode]]
        return pa.RecordBatch.from_arrays([*columns, *own], schema=self.events)

    def _put(self, changes: TableChanges, field: pa.Field) -> pa.Array:
        column = changes.rows.column(field.name)
        if field.name in self.loose:
            return self._put_unchanged(changes, column, field)
        try:
            return put(column, field.type)
        except pa.ArrowInvalid:
            places = np.arange(len(column)).tolist()
            bad = [at for at in places if not _fits(column.slice(at, 1), field)]
            raise _rejected_error(changes, bad, field) from None

    def _put_unchanged(self, changes: TableChanges, column: pa.Array, field: pa.Field) -> pa.Array:
        if self.mode != "append" and field.name not in self.key:
            # A deleted row needs only its key.
            is_gone = pc.equal(changes.operations, int(Operation.DELETE))
            column = pc.if_else(is_gone, pa.scalar(None, column.type), column)
        bad = find_changed(column, field.type, by=put)
        if bad:
            raise _rejected_error(changes, bad, field)
        is_empty = column.null_count == len(column)
        return pa.nulls(len(column), field.type) if is_empty else put(column, field.type)


def shape(
    schema: TableSchema,
    settings: LakeTableSettings,
    present: pa.Schema | None,
    *,
    policy: Mapping[str, str],
    may_drop: bool,
    is_iceberg: bool = False,
) -> tuple[LakeTableLayout, bool]:
    """Returns the layout for `schema` if the table has the columns `present`, and whether files
    must be rewritten."""
    mode: Mode = settings.mode if schema.key else "append"
    _check_names(schema)
    _check_division(schema, settings)
    wanted = [(each.name, lake_type(each.type, is_iceberg=is_iceberg)) for each in schema.columns]
    layout = LakeTableLayout(
        schema.table,
        mode,
        schema.key,
        pa.schema(wanted),
        partition_by=tuple(name for name in settings.partition_by if name in schema.names),
        file_rows=settings.file_rows,
        ignores_deletes=mode == "mirror" and settings.deletes == "ignore",
    )
    if present is None:
        return layout, False
    return _evolve(layout, schema, present, policy, may_drop=may_drop, is_iceberg=is_iceberg)


def outgrown(
    schemas: Sequence[TableSchema], layout: LakeTableLayout, *, is_iceberg: bool
) -> frozenset[str]:
    """Returns columns of the shadow that cannot hold all values of their later types."""
    kept = {field.name: field.type for field in layout.columns}
    return frozenset(
        column.name
        for schema in schemas
        for column in schema.columns
        if column.name in kept
        and not holds(kept[column.name], lake_type(column.type, is_iceberg=is_iceberg))
    )


def _evolve(
    layout: LakeTableLayout,
    schema: TableSchema,
    present: pa.Schema,
    policy: Mapping[str, str],
    *,
    may_drop: bool,
    is_iceberg: bool,
) -> tuple[LakeTableLayout, bool]:
    own = {name for name in present.names if name.startswith(OWN)}
    if own != OWN_COLUMNS[layout.mode].keys():
        raise SchemaRefused(
            "the table was made for another mode",
            table=str(schema.table),
            mode=layout.mode,
            hint=REBUILD,
        )
    there = [Column(field.name, field.type) for field in present if field.name not in own]
    policy = dict(policy)
    if policy.get("drop_column", "evolve") == "evolve" and (
        layout.mode != "mirror" or not may_drop
    ):
        policy["drop_column"] = "lenient"  # existing rows stay readable
    columns = tuple(
        replace(each, type=lake_type(each.type, is_iceberg=is_iceberg)) for each in schema.columns
    )
    taken = steps(
        schema.table,
        present=there,
        wanted=TableSchema(schema.table, columns, schema.key),
        policy=policy,
    )
    kept, skipped, loose = {each.name: each.type for each in there}, set[str](), set[str]()
    needs_rewriting = False
    for step in taken:
        match step:
            case EvolutionStep(action=EvolutionAction.ADD, becomes=Column() as column):
                kept[column.name] = column.type
            case EvolutionStep(action=EvolutionAction.SKIP):
                skipped.add(step.column)
            case EvolutionStep(action=EvolutionAction.DROP):
                del kept[step.column]
                needs_rewriting = True
            case EvolutionStep(action=EvolutionAction.WIDEN, becomes=Column() as column):
                kept[column.name] = column.type
                needs_rewriting = True
            case EvolutionStep(action=EvolutionAction.STAY, kind="widen_type" | "change_type"):
                loose.add(step.column)
    return (
        replace(
            layout,
            columns=pa.schema(list(kept.items())),
            skipped=frozenset(skipped),
            loose=frozenset(loose),
        ),
        needs_rewriting,
    )


def _check_names(schema: TableSchema) -> None:
    folded = [name.casefold() for name in schema.names]
    for name, short in zip(schema.names, folded, strict=True):
        if folded.count(short) > 1:
            raise SchemaRefused(
                "two columns have the same name for readers of the lake",
                table=str(schema.table),
                column=name,
                hint="rename one of them with `transform: rename`",
            )
        if short.startswith(OWN) or not name:
            raise SchemaRefused(
                "a column's name cannot be used in the target",
                table=str(schema.table),
                column=name,
                hint="rename it with `transform: rename`",
            )


def _check_division(schema: TableSchema, settings: LakeTableSettings) -> None:
    for name in settings.partition_by:
        if name in schema.names:
            kind = schema.column(name).type
            tests = (pa.types.is_integer, pa.types.is_string, pa.types.is_date, pa.types.is_boolean)
            if not any(test(kind) for test in tests):
                raise SchemaRefused(
                    "a partition column must be text, an integer, a date or a boolean",
                    table=str(schema.table),
                    column=name,
                    type=str(kind),
                    hint="remove the column from `partition_by`, or `add` a column with its date",
                )


def _concat(columns: pa.Schema, more: Mapping[str, pa.DataType]) -> pa.Schema:
    return pa.schema([*columns, *(pa.field(name, kind) for name, kind in more.items())])


def _rejected_error(changes: TableChanges, bad: Sequence[int], field: pa.Field) -> RecordsRejected:
    assert changes.log_offsets is not None and changes.log_partition is not None
    column = changes.rows.column(field.name)
    why = f"column {field.name!r} does not fit into {field.type}: the value is "
    partition: TopicPartition = changes.log_partition
    return RecordsRejected(
        "the records have values that do not fit the lake's types",
        topic=partition.topic,
        partition=partition.partition,
        reasons={changes.log_offsets[at].as_py(): why + scalar_class(column[at]) for at in bad},
    )


def _fits(value: pa.Array, field: pa.Field) -> bool:
    try:
        put(value, field.type)
    except pa.ArrowInvalid:
        return False
    return True


@dataclass(slots=True)
class AlteredColumns:
    """Columns followed through the layouts of an offset range, starting at the table's files."""

    held: ColumnIds
    renamed: dict[str, str] = field(default_factory=dict)
    """Current names to the names in the files."""
    filled: dict[str, Column] = field(default_factory=dict)
    left: frozenset[str] = frozenset()
    """Names in the files that belong to no column now, or to another one."""

    def rename(
        self,
        schema: TableSchema,
        present: pa.Schema,
        *,
        policy: Mapping[str, str],
        partition_by: Collection[str],
    ) -> pa.Schema:
        """Returns the table's columns, under their names in this layout."""
        renames = (
            self.held.find_renames(schema, {name: name for name in schema.names})
            if may_rename(policy)
            else {}
        )
        renames = {old: new for old, new in renames.items() if old in present.names}
        kept = self.held.find_kept(schema)
        taken = {new for new in renames.values() if new in present.names and new not in renames}
        for old, new in renames.items():
            is_taken, divides = new in taken & kept, {old, new} & {*partition_by}
            if is_taken or divides:
                raise RebuildNeeded(
                    "a column cannot be renamed in place",
                    table=str(schema.table),
                    column=old,
                    becomes=new,
                    why="it divides the table" if divides else "the name is taken",
                    hint=REBUILD,
                )
        filled = {name: each for name, each in self.filled.items() if name not in taken}
        self.filled = {renames.get(name, name): each for name, each in filled.items()}
        for name in taken:
            self.renamed.pop(name, None)
        in_files = {new: self.renamed.pop(old, old) for old, new in renames.items()}
        self.renamed |= {new: old for new, old in in_files.items() if new not in self.filled}
        self.left |= set(renames) - set(renames.values())
        return pa.schema(
            [
                each.with_name(renames.get(each.name, each.name))
                for each in present
                if each.name not in taken  # readers of the log do not have its values either
            ]
        )

    def learn(self, schema: TableSchema, *, skipped: Collection[str], is_new: bool) -> None:
        """Takes over the columns of this layout; `is_new`: the table had no files before."""
        names = {name: name for name in schema.names if name not in skipped}
        if not is_new:
            self.filled |= self.held.find_fills(schema, names)
        self.held = self.held.with_schema(schema, names)
