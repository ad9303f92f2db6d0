"""A table that changes its form several times within one slice has the rows of one form each."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from itertools import count
from random import Random

import pyarrow as pa
import pytest

from headwater.core_log.model.changes import TableChanges
from headwater.core_log.model.table_schema import Column, TableId, TableSchema
from headwater.sinks.sink import Slice
from tests.budget import IS_LONG
from tests.sinks.sql.databases import SqlBench
from tests.slices import ScriptedTopic

ATTEMPTS_MAX = 60
NAMES = ("a", "b", "c", "d")
MODES = ("mirror", "append", "scd2", "soft_delete")
SEEDS = range(400 if IS_LONG else 10)
Columns = dict[int, str]
"""The names of a table's columns by their ids."""


class RandomTable:
    """A table whose columns are renamed, dropped and added, and which is made anew at times."""

    def __init__(self, seed: int) -> None:
        self.random, self.ids = Random(seed), count(2)
        self.table_id, self.columns = 1, dict[int, str]()
        self._add()
        self._add()

    def next_form(self) -> TableSchema:
        """Another form, of the same columns for the most part."""
        self.random.choice([self._rename, self._rename, self._drop, self._add, self._make_anew])()
        return self.form()

    def form(self) -> TableSchema:
        key = Column("id", pa.int64(), is_nullable=False, id=1)
        others = [Column(name, pa.string(), id=id) for id, name in self.columns.items()]
        return TableSchema(TableId("public", "orders"), (key, *others), ("id",), id=self.table_id)

    def _free_name(self) -> str | None:
        free = [name for name in NAMES if name not in self.columns.values()]
        return self.random.choice(free) if free else None

    def _rename(self) -> None:
        if self.columns and (name := self._free_name()):
            self.columns[self.random.choice([*self.columns])] = name

    def _drop(self) -> None:
        if self.columns:
            del self.columns[self.random.choice([*self.columns])]

    def _add(self) -> None:
        if name := self._free_name():
            self.columns[next(self.ids)] = name

    def _make_anew(self) -> None:
        self.table_id += 1
        self.columns = {next(self.ids): name for name in self.columns.values()}


async def applied(
    bench: SqlBench, mode: str, forms: Sequence[TableSchema], cuts: set[int]
) -> set[tuple[object, ...]]:
    """The rows, under the columns of the newest form, if slices end behind these forms."""
    name = f"t{mode}{len(cuts)}"
    topic = ScriptedTopic()
    sink = bench.sink(name=name, table=f"{name}_{{table}}", tables={"*.*": {"mode": mode}})
    await sink.committed_offsets([topic.name])
    for number, schema in enumerate(forms):
        if mode == "mirror" and schema.id != forms[max(number - 1, 0)].id:
            topic.append(schema, ("t", {}))  # rows of the former table are gone
        values = {each.name: f"{each.name}{number}" for each in schema.columns[1:]}
        topic.append(schema, ("c", {"id": number, **values}), committed_us=number + 1)
        if number in cuts or number == len(forms) - 1:
            await sink.apply(limited(topic.slice()))
    await sink.close()
    names = forms[-1].names
    return {tuple(row[each] for each in names) for row in await bench.rows(f"public.{name}_orders")}


def limited(part: Slice) -> Slice:
    """The slice, if it is not read too often."""
    attempts, changes = count(1), part.read

    async def read(part: Slice) -> AsyncIterator[TableChanges]:
        assert next(attempts) < ATTEMPTS_MAX, "the slice begins again for ever"
        async for each in changes(part):
            yield each

    return replace(part, read=read)


@pytest.mark.parametrize("bench", ["mariadb", "postgresql"], indirect=True)
@pytest.mark.parametrize("seed", SEEDS)
async def test_forms_of_one_slice_are_as_those_of_many(bench: SqlBench, seed: int) -> None:
    table, random = RandomTable(seed), Random(seed)
    forms = [table.form(), *(table.next_form() for _ in range(random.randint(2, 9)))]
    mode, every = MODES[seed % len(MODES)], set(range(len(forms)))

    one_by_one = await applied(bench, mode, forms, every)
    together = await applied(bench, mode, forms, {0} if seed % 2 else set())

    assert together == one_by_one
