"""A table under one relation of the stream: its schema, its key, and how its rows are read."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from headwater.connectors.postgres.catalog import CapturedTable
from headwater.connectors.postgres.events.row_keys import KeyColumns, key_of
from headwater.connectors.postgres.schema_history.table_definition import TableForm
from headwater.connectors.postgres.types.column_reader import (
    UNAVAILABLE,
    ColumnPlan,
    with_missing,
    with_nan,
)
from headwater.connectors.postgres.types.type_map import ENUM, TypeMap
from headwater.connectors.postgres.wal.wal_batch import DELETE, Relation, RelationColumn, RowChanges
from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.model.table_schema import TableId, TableSchema
from headwater.core_log.rows.rejects import UNFIT


class NumberedRelation(NamedTuple):
    """The numbers of a relation's columns, and the form before it by which they were found."""

    relation: Relation
    then: TableForm | None
    numbers: tuple[int, ...]
    missing: Mapping[int, str]
    """The values of rows that are older than a column, by its number."""

    @property
    def is_certain(self) -> bool:
        return bool(self.numbers) and all(self.numbers)

    def of(self, relation: Relation) -> tuple[int, ...]:
        return self.numbers if relation == self.relation else ()


@dataclass(frozen=True, slots=True)
class CapturedRelation:
    """Reads changes of one table under one relation."""

    relation: Relation
    schema: TableSchema
    plans: tuple[ColumnPlan, ...]
    """One per column of the schema."""
    places: tuple[int, ...]
    """The index in the relation of each of them."""
    key_places: tuple[int, ...]
    """The indexes in the relation of the key's columns."""
    part_places: tuple[int, ...] = ()
    """Columns of the old row that a partition may send alone, because its replica identity differs
    from that of the partitioned table."""
    keyless_parts: tuple[TableId, ...] = ()
    """Partitions whose replica identity lacks the key, so that it can change unnoticed."""
    has_unique_keys: bool = True
    """Whether the catalog excludes that two rows have the same key at any time."""
    numbers: tuple[int, ...] = ()
    """The numbers of the relation's columns; 0 if one is not certain. Empty if no earlier form is
    known."""

    def read(self, texts: Sequence[pa.StringArray]) -> pa.RecordBatch:
        columns = [
            self._column(plan, texts[place])
            for plan, place in zip(self.plans, self.places, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema.arrow)

    def with_nan(self, part: RowChanges) -> "CapturedRelation":
        """Returns itself, or a copy that reads NaN if the decimals of these changes contain it."""
        texts = [part.rows[place] for place in self.places]
        plans = with_nan(self.plans, texts, self.schema.key)
        if part.old is not None:
            plans = with_nan(plans, [part.old[place] for place in self.places], self.schema.key)
        if plans == self.plans:
            return self
        columns = tuple(plan.column for plan in plans)
        return replace(self, plans=plans, schema=replace(self.schema, columns=columns))

    def plan_at(self, place: int) -> ColumnPlan | None:
        """Returns the plan of a column by its index in the relation; None if it is left out."""
        if place not in self.places:
            return None
        return self.plans[self.places.index(place)]

    def _column(self, plan: ColumnPlan, text: pa.StringArray) -> pa.Array:
        try:
            return plan.read(text)
        except UNFIT as error:
            raise DecodeError(  # no `from`: Arrow's words quote the values
                "the server sent a value that its column's type does not have",
                table=str(self.schema.table),
                column=plan.column.name,
                why=type(error).__name__,
            ) from None

    def null_where_none_may_be(self, part: RowChanges) -> frozenset[str]:
        """Returns columns with a null that are NOT NULL in the catalog: the stream is older than
        the catalog."""
        found = []
        is_row = part.operations != DELETE
        for plan, place in zip(self.plans, self.places, strict=True):
            text = part.rows[place]
            if plan.column.is_nullable or not text.null_count:
                continue
            is_null = text.is_null().to_numpy(zero_copy_only=False) & is_row
            if place in part.unchanged:
                is_null &= ~part.unchanged[place]
            if is_null.any():
                found.append(plan.column.name)
        return frozenset(found)


def table_of(relation: Relation) -> TableId:
    return TableId(relation.namespace, relation.name)


def capture_of(
    relation: Relation,
    table: CapturedTable | None,
    book: TypeMap,
    *,
    key_before: KeyColumns | None = None,
    nullable: Collection[str] = (),
    numbered: NumberedRelation | None = None,
) -> CapturedRelation | None:
    """Returns the key; None if it is not identifiable. The stream decides first: the catalog may be
    newer, or the table dropped."""
    captured = {
        column.name
        for column in relation.columns
        if _plan(column, table, book, is_of_key=False) is not None
    }
    key = key_of(relation, table, captured, key_before)
    if key is None:
        return None
    plans, places = [], []
    numbers = () if numbered is None else numbered.of(relation)
    missing = {} if numbered is None else numbered.missing
    for place, column in enumerate(relation.columns):
        plan = _plan(
            column,
            table,
            book,
            is_of_key=column.name in key,
            number=numbers[place] if numbers else 0,
        )
        if plan is None:
            continue
        if numbers:
            plan = with_missing(plan, missing.get(numbers[place]))
        if column.name in nullable:
            plan = plan._replace(column=replace(plan.column, is_nullable=True))
        plans.append(plan)
        places.append(place)
    columns = tuple(plan.column for plan in plans)
    schema = TableSchema(table_of(relation), columns, key, id=relation.oid)
    by_name = {plan.column.name: place for plan, place in zip(plans, places, strict=True)}
    partitions = () if table is None else table.partitions
    sent = set(key).union(*(each.index_columns for each in partitions))
    return CapturedRelation(
        relation,
        schema,
        tuple(plans),
        tuple(places),
        tuple(by_name[name] for name in key),
        part_places=tuple(
            place
            for place, column in enumerate(relation.columns)
            if partitions and column.name in sent
        ),
        keyless_parts=() if table is None else tuple(table.partitions_without(_now(key, table))),
        has_unique_keys=table is not None and table.has_unique_keys,
        numbers=numbers,
    )


def _now(key: KeyColumns, table: CapturedTable) -> KeyColumns:
    """Returns the key by its present names in the catalog; its columns may have been renamed."""
    names = {column.name for column in table.columns}
    return key if names.issuperset(key) else table.schema.key


def _plan(
    column: RelationColumn,
    table: CapturedTable | None,
    book: TypeMap,
    *,
    is_of_key: bool,
    number: int = 0,
) -> ColumnPlan | None:
    now = (
        next((each for each in table.columns if each.name == column.name), None) if table else None
    )
    if now is not None and now.is_generated:  # a publication may have them since PostgreSQL 18
        return None
    return book.plan(
        column.name,
        column.type_oid,
        column.type_modifier,
        is_nullable=now.is_nullable if now is not None else not is_of_key,
        dimensions=now.dimensions if now is not None and now.dimensions else 1,
        number=number,
    )


def labels_of(rows: pa.RecordBatch, capture: CapturedRelation) -> dict[int, set[str]]:
    """Returns the labels of enums by the types of their columns; lists contain several."""
    found: dict[int, set[str]] = {}
    for plan, place, values in zip(capture.plans, capture.places, rows.columns, strict=True):
        if plan.column.semantic != ENUM:
            continue
        while pa.types.is_list(values.type):
            values = values.flatten()
        names = {*pc.unique(values).drop_null().to_pylist()} - {UNAVAILABLE}
        found.setdefault(capture.relation.columns[place].type_oid, set()).update(names)
    return found


def has_new_labels(part: RowChanges, capture: CapturedRelation) -> bool:
    """Whether an enum has a value that is unknown since its last look-up."""
    for plan, place in zip(capture.plans, capture.places, strict=True):
        if plan.column.semantic != ENUM:
            continue
        labels = pa.array(plan.column.parameters["allowed"].split(","), pa.string())
        values = pc.unique(part.rows[place]).drop_null()
        if not pc.all(pc.is_in(values, labels)).as_py():
            return True
    return False
