"""Columns of the stream get the numbers that they have in the catalogue, or none at all."""

from contextlib import aclosing
from random import Random

import pytest

from headwater.connectors.postgres.schema_history.column_numbers import NumberedColumn, numbers_of
from headwater.connectors.postgres.schema_history.table_definition import Attribute, TableForm
from headwater.connectors.postgres.wal.wal_batch import Relation, RelationColumn
from headwater.core_log.model.changes import Positions
from headwater.core_log.model.table_schema import TableSchema
from tests.connectors.postgres.snapshot.table_log import source_of
from tests.databases import Guest

OID = 7
TYPES = (20, 25)


class Table:
    """A table as the catalogue keeps it, through DDL at random."""

    def __init__(self, random: Random) -> None:
        self._random, self._transaction = random, 1
        self.columns = [
            NumberedColumn(1, "id", 20, 1, is_there=True),
            NumberedColumn(2, "a", 25, 1, is_there=True),
            NumberedColumn(3, "b", 25, 1, is_there=True),
        ]

    @property
    def live(self) -> list[NumberedColumn]:
        return [each for each in self.columns if each.is_there]

    def form(self) -> TableForm:
        found = [Attribute(*each[:3], -1, each.changed_in, None, False, None) for each in self.live]
        return TableForm(OID, False, "p", False, {}, (1,), True, tuple(found))

    def relation(self) -> Relation:
        columns = [RelationColumn(each.name, each.number == 1, each.type_oid, -1)
                   for each in self.live]  # fmt: skip
        return Relation(OID, "public", "t", "d", tuple(columns))

    def alter(self) -> None:
        self._transaction += 1
        names = {each.name for each in self.live}
        free = [name for name in "abcd" if name not in names]
        kind = self._random.choice(["add", "drop", "rename", "touch"])
        others = self.live[1:]
        if kind == "add" and free:
            name, type_oid = self._random.choice(free), self._random.choice(TYPES)
            number = len(self.columns) + 1
            self.columns.append(NumberedColumn(number, name, type_oid, self._transaction, True))
        elif others and (kind != "rename" or free):
            column = self._random.choice(others)
            changed = column._replace(changed_in=self._transaction)
            if kind == "drop":
                changed = changed._replace(name="........", type_oid=0, is_there=False)
            elif kind == "rename":
                changed = changed._replace(name=self._random.choice(free))
            self.columns[column.number - 1] = changed


@pytest.mark.slow
def test_no_column_gets_the_number_of_another_whatever_was_done_to_the_table() -> None:
    random, told = Random(16), 0

    for _ in range(20_000):
        table = Table(random)
        for _ in range(random.randrange(3)):
            table.alter()
        then = table.form()
        for _ in range(random.randrange(4)):
            table.alter()
        relation, truth = table.relation(), tuple(each.number for each in table.live)
        for _ in range(random.randrange(4)):
            table.alter()
        found = numbers_of(relation, then, table.columns, is_whole=True)
        told += found == truth
        assert all(each in (0, true) for each, true in zip(found, truth, strict=True))

    assert told > 10_000


def test_a_relation_without_a_stored_form_has_no_column_numbers() -> None:
    table = Table(Random(16))

    assert numbers_of(table.relation(), None, table.columns, is_whole=True) == ()


async def schemas_after(guest: Guest, positions: Positions) -> tuple[list[TableSchema], Positions]:
    source, found, reached = source_of(guest, until_end=True), list[TableSchema](), dict(positions)
    async with aclosing(source.changes(dict(positions))) as batches:
        async for batch in batches:
            found += [changes.schema for changes in batch.tables]
            reached |= batch.positions
    return found, reached


@pytest.mark.parametrize("between", [[], ["ALTER TABLE t DROP c", "ALTER TABLE t ADD c text"]])
async def test_rows_that_are_read_and_changes_have_the_same_ids(
    guest: Guest, between: list[str]
) -> None:
    guest.execute("CREATE TABLE t (id int PRIMARY KEY, a text, b text)")
    guest.execute("ALTER TABLE t DROP a", "INSERT INTO t VALUES (1, 'b')")
    guest.publish("t")
    [read], positions = await schemas_after(guest, {})

    guest.execute("INSERT INTO t VALUES (2, 'c')", "ALTER TABLE t RENAME b TO c")
    guest.execute("INSERT INTO t VALUES (3, 'd')")
    changed, positions = await schemas_after(guest, positions)
    guest.execute(*between, "INSERT INTO t VALUES (4, 'e')")
    last, _ = await schemas_after(guest, positions)

    assert [(each.name, each.id) for each in read.columns] == [("id", 1), ("b", 3)]
    assert {(each.name, each.id) for schema in changed for each in schema.columns} == {
        ("id", 1), ("b", 3), ("c", 3),
    }  # fmt: skip
    found = {(each.name, each.id) for schema in last for each in schema.columns}
    assert found - {("c", 0)} == {("id", 1), ("c", 4 if between else 3)}
