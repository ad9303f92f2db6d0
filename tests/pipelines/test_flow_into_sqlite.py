"""A real database behind the loops: crashes and changes of shape at random, and the table is the
source's."""

import asyncio
import sqlite3
import tempfile
from collections.abc import AsyncGenerator, Sequence
from contextlib import closing, suppress
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import SecretStr

from headwater.core_log.model.changes import (
    ChangeBatch,
    Operation,
    Positions,
    TableChanges,
    source_times,
)
from headwater.core_log.model.table_schema import Column, TableId, TableSchema
from headwater.pipelines.loops.deliver.deliver import deliver
from headwater.sinks.sink import SinkContext
from headwater.sinks.sql.settings import SqlSettings
from headwater.sinks.sql.sink import SqlSink
from tests.memory_log import Crash, Fuse
from tests.pipelines.pipeline_in_memory import PIPELINE, ScriptedSource, World

COLUMNS = ("price", "note", "city")
Shape = frozenset[str]
Step = tuple[Shape, list[tuple[str, int, str]]]
"""One transaction: which columns the table has by then, and changes of rows."""

SHAPES = st.frozensets(st.sampled_from(COLUMNS))
CHANGES = st.tuples(st.sampled_from("cud"), st.integers(1, 4), st.text("ab'\";%é", max_size=4))
STEPS = st.lists(st.tuples(SHAPES, st.lists(CHANGES, min_size=1, max_size=4)), max_size=6)
CRASHES = st.lists(st.tuples(st.integers(1, 70), st.booleans()), max_size=3)
EVOLVE = dict.fromkeys(
    ("add_column", "drop_column", "widen_type", "change_type", "drop_not_null"), "evolve"
)


def changes_of(step: Step, commit: int) -> TableChanges:
    shape, changes = step
    names = [name for name in COLUMNS if name in shape]
    columns = [Column("id", pa.int64(), is_nullable=False)]
    columns += [Column(name, pa.string()) for name in names]
    schema = TableSchema(TableId("public", 'wéird "table"'), tuple(columns), ("id",))
    cells = [None if letter == "d" else value for letter, _, value in changes]
    arrays = [pa.array([key for _, key, _ in changes], pa.int64())]
    arrays += [pa.array(cells, pa.string()) for _ in names]
    operations = {"c": Operation.INSERT, "u": Operation.UPDATE, "d": Operation.DELETE}
    return TableChanges(
        schema=schema,
        rows=pa.RecordBatch.from_arrays(arrays, schema=schema.arrow),
        operations=pa.array([operations[letter] for letter, _, _ in changes], pa.uint8()),
        source={"connector": "script", **source_times(commit * 1_000_000)},
        commits=str(commit),
    )


def fold(steps: Sequence[Step]) -> dict[int, dict[str, str | None]]:
    """Rows by key, with every column the table has in the end; a column that was dropped takes its
    values with it."""
    rows: dict[int, dict[str, str | None]] = {}
    for shape, changes in steps:
        for key in rows:
            rows[key] = {name: rows[key].get(name) for name in shape}
        for letter, key, value in changes:
            if letter == "d":
                rows.pop(key, None)
            else:
                rows[key] = dict.fromkeys(shape, value)
    return rows


class ShapingSource(ScriptedSource):
    def __init__(self, steps: Sequence[Step], fuse: Fuse) -> None:
        super().__init__([], fuse)
        self.steps = steps

    async def changes(self, resume_from: Positions) -> AsyncGenerator[ChangeBatch, None]:
        for number in range(int(resume_from.get("stream", 0)), len(self.steps)):
            self.fuse.before()
            changes = changes_of(self.steps[number], number)
            yield ChangeBatch((changes,), {"stream": str(number + 1)})
            self.fuse.done()


class SqliteWorld(World):
    def __init__(self, steps: Sequence[Step], directory: Path) -> None:
        super().__init__([])
        self.steps, self.directory = steps, directory

    def new_source(self, fuse: Fuse) -> ScriptedSource:
        return ShapingSource(self.steps, fuse)

    async def deliver(self, fuse: Fuse, *, records: int = 1) -> None:
        context = SinkContext(PIPELINE, self.directory, EVOLVE, self.clock)
        url = SecretStr(f"sqlite:///{self.directory}/target.db")
        sink = SqlSink(SqlSettings(url=url), context)
        try:
            await deliver(self.delivery(sink, records=records), until_end=True)
        finally:
            await sink.close()

    def rows(self) -> dict[int, dict[str, str | None]]:
        with closing(sqlite3.connect(self.directory / "target.db")) as database:
            database.row_factory = sqlite3.Row
            try:
                found = database.execute('SELECT * FROM "wéird ""table"""').fetchall()
            except sqlite3.OperationalError:
                return {}
            return {row["id"]: {n: row[n] for n in row.keys() if n != "id"} for row in found}  # noqa: SIM118


@pytest.mark.slow
@settings(deadline=None, max_examples=25)
@given(steps=STEPS, crashes=CRASHES)
def test_the_table_is_the_sources_whatever_crashed_and_however_it_changed(
    steps: list[Step], crashes: list[tuple[int, bool]]
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        world = SqliteWorld(steps, Path(directory))

        for at, after in crashes:
            with suppress(Crash):
                asyncio.run(world.run(Fuse(at, after=after)))
        asyncio.run(world.run(Fuse()))

        expected = fold(steps)
        found = world.rows()
        assert found.keys() == expected.keys()
        for key, row in expected.items():
            assert {name: found[key].get(name) for name in row} == row
