"""Older records have the columns of the newest form, held against a table that was altered."""

import random
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pytest

from headwater.core_log.model.changes import Operation, TableChanges
from headwater.core_log.model.column_history import (
    ColumnHistory,
    missing_text,
    missing_value,
    recall_columns,
)
from headwater.core_log.model.table_schema import Column, TableId, TableSchema

TABLE = TableId("public", "orders")
NAMES = ("a", "b", "c", "d", "e")
KEY = Column("id", pa.int64(), is_nullable=False, id=1)


@dataclass
class Altered:
    """A table that is altered and written to as PostgreSQL does it, and its log."""

    chance: random.Random
    columns: list[Column] = field(default_factory=lambda: [KEY])
    rows: dict[int, dict[int, Any]] = field(default_factory=dict)
    """By key the values by the columns' numbers."""
    forms: list[TableSchema] = field(default_factory=list)
    log: list[tuple[int, dict[str, Any], Operation]] = field(default_factory=list)
    """Per record its form, and the row under the names of then."""
    last_number: int = 1

    @property
    def free(self) -> list[str]:
        return [name for name in NAMES if name not in {each.name for each in self.columns}]

    def alter(self) -> None:
        others = [each for each in self.columns if each.id != KEY.id]
        match self.chance.choice(["rename", "add", "drop", "change places"]):
            case "rename" if others and self.free:
                self._rename({self.chance.choice(others).id: self.chance.choice(self.free)})
            case "change places" if len(others) > 1:
                one, other = self.chance.sample(others, 2)
                self._rename({one.id: other.name, other.id: one.name})
            case "drop" if others:
                gone = self.chance.choice(others)
                self.columns.remove(gone)
            case "add" if self.free:
                self.last_number += 1
                missing = self.chance.choice([None, "7", "0"])
                name = self.chance.choice(self.free)
                self.columns.append(Column(name, pa.int64(), id=self.last_number, missing=missing))
                for row in self.rows.values():
                    row[self.last_number] = None if missing is None else int(missing)

    def _rename(self, names: dict[int, str]) -> None:
        self.columns = [replace(each, name=names.get(each.id, each.name)) for each in self.columns]

    def write(self) -> None:
        form = TableSchema(TABLE, tuple(self.columns), ("id",), id=5)
        form = recall_columns(form, self.forms[-1] if self.forms else None)
        if not self.forms or form != self.forms[-1]:
            self.forms.append(form)
        key = self.chance.randrange(6)
        values = {each.id: self.chance.randrange(100) for each in self.columns}
        row = {each.name: values[each.id] for each in self.columns} | {"id": key}
        operation = self.chance.choice([Operation.UPDATE, Operation.INSERT, Operation.DELETE])
        self.log.append((len(self.forms) - 1, row, operation))
        self.rows.pop(key, None)
        if operation is not Operation.DELETE:
            self.rows[key] = values | {1: key}

    def now(self) -> dict[int, dict[str, Any]]:
        """Without what is null, which a record may as well lack."""
        names = {each.id: each.name for each in self.columns}
        return {
            key: {
                names[number]: value
                for number, value in row.items()
                if number in names and value is not None
            }
            for key, row in self.rows.items()
        }


@pytest.mark.parametrize("seed", range(60))
def test_the_newest_records_are_the_table(seed: int) -> None:
    table = Altered(random.Random(seed))
    table.write()
    for _ in range(30):
        for _ in range(table.chance.randrange(4)):
            table.alter()
        for _ in range(table.chance.randrange(1, 4)):
            table.write()
    views = ColumnHistory(table.forms).views

    found: dict[int, dict[str, Any]] = {}
    for form, row, operation in table.log:
        changes = views[form].apply(of(table.forms[form], row, operation))
        [told] = changes.rows.to_pylist()
        assert changes.rows.schema == changes.schema.arrow
        found.pop(row["id"], None)
        if operation is not Operation.DELETE:
            found[row["id"]] = {
                name: told[name] for name in table.forms[-1].names if told.get(name) is not None
            }

    assert found == table.now()


def of(schema: TableSchema, row: dict[str, Any], operation: Operation) -> TableChanges:
    rows = pa.RecordBatch.from_pylist([row], schema=schema.arrow)
    return TableChanges(schema, rows, pa.array([int(operation)], pa.uint8()), {"ts_us": 0})


def form(*columns: tuple[str, int] | tuple[str, int, str], id: int = 5) -> TableSchema:
    made = [
        Column(name, pa.int64(), id=number, missing=rest[0] if rest else None)
        for name, number, *rest in columns
    ]
    return TableSchema(TABLE, (KEY, *made), ("id",), id=id)


def test_names_of_a_plan_are_kept() -> None:
    """Of a query that was begun before a rename."""
    forms = [form(("a", 2)), form(("b", 2)), form(("b", 2), ("a", 3))]

    assert [each.schema.names for each in ColumnHistory(forms).views] == [
        ("id", "b"), ("id", "b"), ("id", "b", "a"),
    ]  # fmt: skip
    views = ColumnHistory(forms[:2], names={"id", "a"}).views
    assert [each.schema.names for each in views] == [("id", "a"), ("id", "a")]


def test_another_table_of_the_name_and_one_without_ids_go_by_names() -> None:
    forms = [form(("a", 2), id=4), form(("b", 2)), form(("b", 2), ("c", 3, "7"))]
    assert ColumnHistory(forms).view(0).schema == forms[0]
    forms = [form(("a", 0)), form(("b", 0))]
    assert [each.schema for each in ColumnHistory(forms).views] == forms


def test_a_row_before_an_update_is_filled_and_an_unknown_one_is_not() -> None:
    forms = [form(("a", 2)), form(("b", 2), ("c", 3, "7"))]
    changes = of(forms[0], {"id": 1, "a": 2}, Operation.UPDATE)
    fields = list(forms[0].arrow)
    known = pa.array([{"id": 1, "a": 1}], pa.struct(fields))
    view = ColumnHistory(forms).view(0)

    before = view.apply(replace(changes, before=known)).before
    assert before is not None and before.to_pylist() == [{"id": 1, "b": 1, "c": 7}]
    unknown = pa.array([None], pa.struct(fields))
    before = view.apply(replace(changes, before=unknown)).before
    assert before is not None and before.to_pylist() == [None]


def test_a_column_of_the_key_that_took_the_name_of_another_one_has_its_values() -> None:
    """Records of a topic are found by the names in their keys."""
    before = form(("a", 2))
    after = replace(before, columns=(replace(KEY, id=3), *before.columns[1:]))
    changes = of(before, {"id": 7, "a": 1}, Operation.INSERT)

    found = ColumnHistory([before, after]).view(0).apply(changes)

    assert found.rows.to_pylist() == [{"id": 7, "a": 1}]


def test_the_key_keeps_its_values_when_another_column_is_renamed_to_its_name() -> None:
    before = form(("a", 2))
    after = replace(before, columns=(Column("id", pa.int64(), id=2),))
    changes = of(before, {"id": 7, "a": 1}, Operation.INSERT)

    found = ColumnHistory([before, after]).view(0).apply(changes)

    assert found.rows.to_pylist() == [{"id": 7}]


def test_the_default_of_a_new_column_is_kept_with_its_first_form() -> None:
    first, vacuumed = form(("a", 2), ("c", 3, "7")), form(("a", 2), ("c", 3))
    assert recall_columns(first, None) == form(("a", 2), ("c", 3)), "all records have it"
    assert recall_columns(first, form(("a", 2))) == first
    assert recall_columns(vacuumed, first) == first
    assert recall_columns(form(("a", 2, "9"), ("c", 3)), first) == first


def test_a_value_is_kept_as_text_only_where_it_stays_the_same() -> None:
    for value in (pa.scalar(7), pa.scalar(""), pa.scalar(0.1), pa.scalar(1, pa.decimal128(9, 2))):
        text = missing_text(value)
        column = Column("c", value.type, missing=text)
        assert text is not None and missing_value(column) == value
    assert missing_text(pa.scalar([1])) is None
    assert missing_text(pa.scalar(float("nan"))) is None
