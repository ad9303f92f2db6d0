"""A column that is known to be the same one keeps its values, and a new one gets those it has."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import replace
from itertools import count, product
from typing import Any

import pyarrow as pa
import pytest

from headwater.core_log.foundation.errors import RebuildNeeded, SchemaRefused, TableFailed
from headwater.core_log.model.changes import TableChanges
from headwater.core_log.model.table_schema import Column, TableId, TableSchema
from headwater.sinks.sink import Slice
from headwater.sinks.sql.dialects.dialect import run
from headwater.sinks.sql.state_tables import StoredColumns, StoredOffsets
from tests.budget import IS_LONG, PATIENCE_S
from tests.sinks.sql.databases import SqlBench
from tests.slices import ScriptedTopic, failing

MODES = ("mirror", "soft_delete", "append", "scd2")


def form(*columns: tuple[Any, ...], id: int = 5) -> TableSchema:
    """Columns as name, number, and the value of older rows."""
    made = [
        Column(name, kind, id=number, missing=rest[0] if rest else None)
        for name, kind, number, *rest in columns
    ]
    key = Column("id", pa.int64(), is_nullable=False, id=1)
    return TableSchema(TableId("public", "orders"), (key, *made), ("id",), id=id)


def text(name: str, number: int) -> tuple[Any, ...]:
    return name, pa.string(), number


BEFORE = form(text("a", 2), text("gone", 3))
AFTER = form(text("b", 2), ("price", pa.decimal128(9, 2), 4, "7.50"), ("c", pa.int64(), 5))


@pytest.mark.parametrize("mode", MODES)
async def test_a_renamed_column_and_one_with_a_default(bench: SqlBench, mode: str) -> None:
    topic, sink = ScriptedTopic(), bench.sink(tables={"*.*": {"mode": mode}})
    await sink.committed_offsets([topic.name])
    topic.append(BEFORE, *(("c", {"id": each, "a": f"v{each}", "gone": "x"}) for each in (1, 2, 3)))
    topic.append(BEFORE, ("d", {"id": 3}))
    await sink.apply(topic.slice())
    topic.append(AFTER, ("c", {"id": 4, "b": "v4", "c": 1}))
    part = topic.slice()
    with pytest.raises(OSError):
        await sink.apply(failing(part, OSError("the line broke")))
    await sink.close()
    sink = bench.sink(tables={"*.*": {"mode": mode}})
    await sink.committed_offsets([topic.name])
    await sink.apply(part)
    topic.append(AFTER, ("u", {"id": 2, "b": "w2", "price": 1}))
    await sink.apply(topic.slice())
    await sink.close()

    rows = await bench.rows("public.orders")
    found = {(row["id"], row["b"], None if row["price"] is None else str(row["price"]))
             for row in rows}  # fmt: skip
    now = {(1, "v1", "7.50"), (2, "w2", "1.00"), (4, "v4", None)}
    more: dict[str, set[tuple[Any, ...]]] = {
        "soft_delete": {(3, "v3", "7.50")},
        "append": {(2, "v2", "7.50"), (3, "v3", "7.50"), (3, None, None)},
    }
    assert found == now | more.get(mode, set())
    assert all("a" not in row for row in rows)


async def test_a_name_that_comes_again_is_another_column(bench: SqlBench) -> None:
    topic, sink = ScriptedTopic(), bench.sink()
    await sink.committed_offsets([topic.name])
    topic.append(form(text("a", 2), text("x", 3)), ("c", {"id": 1, "a": "1", "x": "old"}))
    await sink.apply(topic.slice())
    topic.append(form(text("a", 2)), ("c", {"id": 2, "a": "2"}))
    await sink.apply(topic.slice())
    topic.append(form(text("a", 2), (*text("x", 4), "new")), ("c", {"id": 3, "x": "3"}))
    await sink.apply(topic.slice())
    await sink.close()

    found = {row["id"]: row["x"] for row in await bench.rows("public.orders")}
    assert found == {1: "new", 2: "new", 3: "3"}


@pytest.mark.parametrize("mode", MODES)
async def test_a_column_that_came_under_its_new_name_without_an_id_is_not_renamed(
    bench: SqlBench, mode: str
) -> None:
    """While the stream is behind, a column may have no id; its table is read again."""
    topic, sink = ScriptedTopic(), bench.sink(tables={"*.*": {"mode": mode}})
    await sink.committed_offsets([topic.name])
    topic.append(form(text("a", 2)), ("c", {"id": 1, "a": "1"}), ("c", {"id": 2, "a": "2"}))
    await sink.apply(topic.slice())
    topic.append(form(text("b", 0)), ("u", {"id": 1, "b": "one"}))
    await sink.apply(topic.slice())
    topic.append(form(text("b", 2)), ("u", {"id": 2, "b": "two"}))
    await sink.apply(topic.slice())
    topic.append(form(text("c", 2)), ("c", {"id": 3, "c": "three"}))
    await sink.apply(topic.slice())
    await sink.close()

    rows = await bench.rows("public.orders")
    assert {(1, "one"), (2, "two"), (3, "three")} <= {(row["id"], row["c"]) for row in rows}
    assert all("b" not in row for row in rows)


RENAMES = {
    "another name": ("ab", "xb"),
    "a name that a new column gets at once": ("ab", "xba"),
    "two change places": ("ab", "ba"),
    "one after the other": ("ab", "bx"),
    "three in a ring": ("abc", "bca"),
    "the name of one that is gone": ("abc", "ca"),
}


MOVES = (
    [*product(RENAMES, ("mirror", "scd2"))]
    if IS_LONG
    else [("three in a ring", "mirror"), ("a name that a new column gets at once", "scd2")]
)


class EndAtStep:
    """The process ends before one of the steps that change a target."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
        self.left = number
        monkeypatch.setattr("headwater.sinks.sql.target.run", self._run)
        monkeypatch.setattr(StoredColumns, "write", self._stepping(StoredColumns.write))
        monkeypatch.setattr(StoredOffsets, "replace", self._stepping(StoredOffsets.replace))

    def _run(self, connection: Any, statement: str) -> None:
        if statement.startswith(("ALTER", "UPDATE")):
            self.step()
        run(connection, statement)

    def _stepping(self, work: Callable[..., Any]) -> Callable[..., Any]:
        def step_first(*given: Any, **named: Any) -> Any:
            self.step()
            return work(*given, **named)

        return step_first

    def step(self) -> None:
        self.left -= 1
        if self.left == -1:
            raise OSError("the process has ended")


@pytest.mark.crash
@pytest.mark.parametrize(("case", "mode"), MOVES)
async def test_names_that_move_between_columns_whenever_the_process_ends(
    bench: SqlBench, case: str, mode: str
) -> None:
    """Each letter is the name of a column. Rows of the former form come in the same slice."""
    formers, news = RENAMES[case]
    former = form(*(text(name, 2 + at) for at, name in enumerate(formers)))
    new = form(*(text(name, 2 + at) for at, name in enumerate(news)))
    now = {
        1: {name: f"1{2 + at}" if at < len(formers) else None for at, name in enumerate(news)},
        2: {name: f"2{2 + at}" if at < len(formers) else None for at, name in enumerate(news)},
        3: {name: f"3{2 + at}" for at, name in enumerate(news)},
    }
    for number in count():
        topic = ScriptedTopic(f"shop.public.{number}")
        first, second = (
            replace(each, table=TableId("public", f"t{number}")) for each in (former, new)
        )
        sink = bench.sink(tables={"*.*": {"mode": mode}})
        await sink.committed_offsets([topic.name])
        topic.append(first, ("c", values(first, 1)))
        await sink.apply(topic.slice())
        topic.append(first, ("c", values(first, 2)))
        topic.append(second, ("c", values(second, 3)))
        part = topic.slice()
        with pytest.MonkeyPatch.context() as monkeypatch:
            end = EndAtStep(monkeypatch, number)
            with suppress(OSError, TableFailed):
                await sink.apply(part)
        if end.left < 0:
            await sink.close()
            sink = bench.sink(tables={"*.*": {"mode": mode}})
            await sink.committed_offsets([topic.name])
            await sink.apply(part)
        await sink.close()

        rows = await bench.rows(f"public.t{number}")
        found = {row["id"]: {name: row[name] for name in news} for row in rows}
        assert found == now, f"the process ended before step {number}"
        if end.left >= 0:
            return


async def test_a_default_is_filled_in_when_another_change_follows_in_the_same_slice(
    bench: SqlBench,
) -> None:
    """Where DDL commits by itself, the slice begins again behind each change."""
    topic, sink = ScriptedTopic(), bench.sink(tables={"*.*": {"mode": "scd2"}})
    await sink.committed_offsets([topic.name])
    topic.append(form(text("a", 2)), ("c", {"id": 1, "a": "one"}))
    await sink.apply(topic.slice())
    price, more = ("price", pa.decimal128(9, 2), 4, "7.50"), ("more", pa.int64(), 5)
    topic.append(form(text("a", 2), price), ("c", {"id": 2, "a": "two", "price": 2}))
    topic.append(form(text("b", 2), price, more), ("c", {"id": 3, "b": "three", "more": 3}))
    await sink.apply(topic.slice())
    await sink.close()

    rows = {row["id"]: (row["b"], row["price"]) for row in await bench.rows("public.orders")}
    assert {id: (b, str(price or "")) for id, (b, price) in rows.items()} == {
        1: ("one", "7.50"),
        2: ("two", "2.00"),
        3: ("three", ""),
    }


@pytest.mark.parametrize("mode", ["mirror", "append"])
async def test_a_column_that_gets_its_id_and_another_name_in_one_slice_keeps_its_values(
    bench: SqlBench, mode: str
) -> None:
    """While the stream is behind, a column may have no id."""
    topic, sink = ScriptedTopic(), bench.sink(tables={"*.*": {"mode": mode}})
    await sink.committed_offsets([topic.name])
    topic.append(form(), ("c", {"id": 1}))
    await sink.apply(topic.slice())
    topic.append(form(text("a", 0)), ("c", {"id": 2, "a": "two"}))
    topic.append(form(text("a", 2)), ("c", {"id": 3, "a": "three"}))
    topic.append(form(text("b", 2)), ("c", {"id": 4, "b": "four"}))
    async with asyncio.timeout(PATIENCE_S):
        await sink.apply(topic.slice())
    await sink.close()

    rows = {row["id"]: row["b"] for row in await bench.rows("public.orders")}
    assert rows == {1: None, 2: "two", 3: "three", 4: "four"}


@pytest.mark.parametrize("bench", ["mariadb"], indirect=True)
async def test_a_name_that_changes_while_the_slice_begins_again_is_taken_once(
    bench: SqlBench,
) -> None:
    """The source may go on meanwhile, and older forms have the present names from then on."""
    topic, sink = ScriptedTopic(), bench.sink()
    await sink.committed_offsets([topic.name])
    topic.append(form(text("a", 2)), ("c", {"id": 1, "a": "one"}))
    await sink.apply(topic.slice())
    await sink.close()
    was, now, attempts = ScriptedTopic(), ScriptedTopic(), count(1)
    for each, name in ((was, "a"), (now, "b")):
        each.append(form(text("a", 2)), ("c", {"id": 1, "a": "one"}))
        each.append(form(text(name, 2)), ("c", {"id": 2, name: "two"}))
        each.append(form(text(name, 2), text("x", 3)), ("c", {"id": 3, name: "three", "x": "x"}))
    former, present = was.slice(start=topic.sliced), now.slice(start=topic.sliced)

    async def read(_: Slice) -> AsyncIterator[TableChanges]:
        number = next(attempts)
        assert number < 10, "the slice begins again for ever"
        async for changes in (former if number == 1 else present).changes():
            yield changes

    sink = bench.sink()
    await sink.committed_offsets([topic.name])
    await sink.apply(replace(present, read=read))
    await sink.close()

    rows = {row["id"]: (row["b"], row["x"]) for row in await bench.rows("public.orders")}
    assert rows == {1: ("one", None), 2: ("two", None), 3: ("three", "x")}


JSON, UUID = "io.debezium.data.Json", "io.debezium.data.Uuid"


@pytest.mark.parametrize("mode", ["mirror", "scd2"])
@pytest.mark.parametrize(
    ("was", "value"),
    [
        (Column("a", pa.list_(pa.int32()), id=2), [1, 2]),
        (Column("a", pa.string(), semantic=JSON, id=2), '{"a": 1}'),
        (Column("a", pa.string(), semantic=UUID, id=2), "6d0f4e0c-5c0a-4f3b-8d8e-2f1f6c1f0a11"),
    ],
    ids=["list", "JSON", "UUID"],
)
async def test_any_text_is_taken_where_only_some_were_before(
    bench: SqlBench, was: Column, value: Any, mode: str
) -> None:
    topic, sink = ScriptedTopic(), bench.sink(tables={"*.*": {"mode": mode}})
    await sink.committed_offsets([topic.name])
    before = form()
    before = replace(before, columns=(*before.columns, was))
    topic.append(before, ("c", {"id": 1, "a": value}))
    await sink.apply(topic.slice())
    topic.append(form(text("a", 2)), ("c", {"id": 2, "a": "no JSON, no UUID"}))
    topic.append(form(text("b", 2)), ("c", {"id": 3, "b": "and renamed"}))
    await sink.apply(topic.slice())
    await sink.close()

    rows = {row["id"]: row["b"] for row in await bench.rows("public.orders")}
    assert rows.pop(1) is not None, "the former value stays, as its text"
    assert rows == {2: "no JSON, no UUID", 3: "and renamed"}


async def test_a_type_that_the_user_has_chosen_stays(bench: SqlBench) -> None:
    topic = ScriptedTopic()
    sink = bench.sink(tables={"*.*": {"mode": "mirror", "types": {"a": "JSON"}}})
    await sink.committed_offsets([topic.name])
    topic.append(form(text("a", 2)), ("c", {"id": 1, "a": '{"a": 1}'}))
    await sink.apply(topic.slice())
    topic.append(form(text("a", 2), ("n", pa.int64(), 3)), ("c", {"id": 2, "a": "[2]", "n": 2}))
    async with asyncio.timeout(PATIENCE_S):
        await sink.apply(topic.slice())
    await sink.close()

    assert {row["id"] for row in await bench.rows("public.orders")} == {1, 2}


async def test_a_uuid_that_becomes_json_needs_a_new_table(bench: SqlBench) -> None:
    topic, sink = ScriptedTopic(), bench.sink()
    await sink.committed_offsets([topic.name])
    uuid, json = (Column("a", pa.string(), semantic=each, id=2) for each in (UUID, JSON))
    before, after = (replace(form(), columns=(*form().columns, each)) for each in (uuid, json))
    topic.append(before, ("c", {"id": 1, "a": "6d0f4e0c-5c0a-4f3b-8d8e-2f1f6c1f0a11"}))
    await sink.apply(topic.slice())
    topic.append(after, ("c", {"id": 2, "a": '{"a": 1}'}))
    if bench.kind == "postgresql":
        with pytest.raises(RebuildNeeded, match="another one than the target's"):
            await sink.apply(topic.slice())
    else:
        await sink.apply(topic.slice())
        assert len(await bench.rows("public.orders")) == 2
    await sink.close()


def values(schema: TableSchema, id: int) -> dict[str, Any]:
    return {"id": id} | {each.name: f"{id}{each.id}" for each in schema.columns[1:]}


@pytest.mark.parametrize("is_at_once", [False, True])
@pytest.mark.parametrize("mode", MODES)
async def test_a_column_gets_the_name_of_one_that_is_gone(
    bench: SqlBench, mode: str, is_at_once: bool
) -> None:
    """A history still has that one."""
    topic, sink = ScriptedTopic(), bench.sink(tables={"*.*": {"mode": mode}})
    await sink.committed_offsets([topic.name])
    topic.append(form(text("a", 2), text("b", 3)), ("c", {"id": 1, "a": "one", "b": "gone"}))
    await sink.apply(topic.slice())
    if not is_at_once:
        topic.append(form(text("a", 2)), ("c", {"id": 2, "a": "two"}))
        await sink.apply(topic.slice())
    topic.append(form(text("b", 2)), ("c", {"id": 3, "b": "three"}))
    part = topic.slice()
    with pytest.raises(OSError):
        await sink.apply(failing(part, OSError("the line broke")))
    await sink.close()
    sink = bench.sink(tables={"*.*": {"mode": mode}})
    await sink.committed_offsets([topic.name])
    await sink.apply(part)
    await sink.close()

    rows = await bench.rows("public.orders")
    found = {(row["id"], row["b"]) for row in rows}
    assert found == {(1, "one"), (3, "three")} | (set() if is_at_once else {(2, "two")})
    assert all("a" not in row for row in rows)


@pytest.mark.parametrize("mode", MODES)
async def test_a_column_gets_the_name_of_one_that_was_made_for_no_row(
    bench: SqlBench, mode: str
) -> None:
    """MySQL and MariaDB commit DDL at once, and the rows may be those of another form by the next
    attempt."""
    topic, sink = ScriptedTopic(), bench.sink(tables={"*.*": {"mode": mode}})
    await sink.committed_offsets([topic.name])
    topic.append(form(text("a", 2)), ("c", {"id": 1, "a": "one"}))
    await sink.apply(topic.slice())
    await sink.close()
    bench.execute("ALTER TABLE orders ADD COLUMN b int")
    topic.append(form(text("b", 2)), ("c", {"id": 2, "b": "two"}))
    sink = bench.sink(tables={"*.*": {"mode": mode}})
    await sink.committed_offsets([topic.name])
    await sink.apply(topic.slice())
    await sink.close()

    rows = await bench.rows("public.orders")
    assert {(row["id"], row["b"]) for row in rows} == {(1, "one"), (2, "two")}
    assert all("a" not in row for row in rows)


async def test_a_column_that_got_another_name_for_no_row_is_not_made_anew(bench: SqlBench) -> None:
    """Rows that are there would lack its values."""
    topic, sink = ScriptedTopic(), bench.sink()
    await sink.committed_offsets([topic.name])
    topic.append(form(text("a", 2)), ("c", {"id": 1, "a": "one"}))
    await sink.apply(topic.slice())
    await sink.close()
    bench.execute("ALTER TABLE orders RENAME COLUMN a TO b")
    topic.append(form(text("c", 2)), ("c", {"id": 2, "c": "two"}))
    sink = bench.sink()
    await sink.committed_offsets([topic.name])

    with pytest.raises(RebuildNeeded, match="is missing"):
        await sink.apply(topic.slice())
    await sink.close()


async def test_a_policy_that_forbids_columns_to_come_or_go_forbids_renames(
    bench: SqlBench,
) -> None:
    topic = ScriptedTopic()
    sink = bench.sink(schema_changes={"drop_column": "fail"})
    await sink.committed_offsets([topic.name])
    topic.append(form(text("a", 2)), ("c", {"id": 1, "a": "1"}))
    await sink.apply(topic.slice())
    topic.append(form(text("b", 2)), ("c", {"id": 2, "b": "2"}))

    with pytest.raises(SchemaRefused, match="has gone"):
        await sink.apply(topic.slice())
    await sink.close()
    assert await bench.rows("public.orders") == [{"id": 1, "a": "1"}]


async def test_a_drop_takes_the_ids_along(bench: SqlBench) -> None:
    topic, sink = ScriptedTopic(), bench.sink()
    await sink.committed_offsets([topic.name])
    topic.append(BEFORE, ("c", {"id": 1, "a": "1"}))
    await sink.apply(topic.slice())
    assert "_headwater_columns" in bench.all_tables()

    assert "table _headwater_columns" in await sink.drop()
    await sink.close()

    assert not bench.all_tables()


@pytest.mark.slow
async def test_a_renamed_column_of_a_table_that_was_made_anew(bench: SqlBench) -> None:
    """Its topic is emptied, and the target has the ids of both tables."""
    topic, sink = ScriptedTopic(), bench.sink()
    await sink.committed_offsets([topic.name])
    topic.append(form(text("a", 2), id=5), ("c", {"id": 1, "a": "1"}))
    await sink.apply(topic.slice())
    topic.append(form(text("a", 2), id=6), ("u", {"id": 1, "a": "one"}))
    await sink.apply(topic.slice())
    topic.append(form(text("b", 2), id=6), ("c", {"id": 2, "b": "two"}))
    await sink.apply(topic.slice())
    await sink.close()

    rows = await bench.rows("public.orders")
    assert {(row["id"], row["b"]) for row in rows} == {(1, "one"), (2, "two")}


SLICES = {
    "renamed and back": [[text("b", 2)], [text("a", 2)]],
    "renamed twice": [[text("b", 2)], [text("c", 2)]],
    "renamed, and another one with its first name": [
        [text("b", 2)],
        [text("b", 2), (*text("a", 3), "new")],
        [text("a", 2)],
    ],
    "with the name of another one, and back": [
        [text("a", 2), text("b", 3)],
        [text("b", 2)],
        [text("a", 2), text("b", 4)],
    ],
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", SLICES)
async def test_a_column_with_several_names_within_a_slice(
    bench: SqlBench, mode: str, name: str
) -> None:
    """Where DDL commits by itself, each attempt comes one form further."""
    topic, sink = ScriptedTopic(), bench.sink(tables={"*.*": {"mode": mode}})
    await sink.committed_offsets([topic.name])
    topic.append(form(text("a", 2)), ("c", {"id": 1, "a": "one"}), ("c", {"id": 2, "a": "two"}))
    await sink.apply(topic.slice())
    wanted, changed = {(1, "one"), (2, "two")}, set[tuple[Any, ...]]()
    for number, columns in enumerate(SLICES[name], 3):
        named = next(each[0] for each in columns if each[2] == 2)
        topic.append(
            form(*columns),
            ("c", {"id": number, named: f"c{number}"}),
            ("u", {"id": 1, named: f"u{number}"}),
            committed_us=1_800_000_000_000_000 + number,
        )
        wanted = {row for row in wanted if row[0] != 1}
        wanted |= {(1, f"u{number}"), (number, f"c{number}")}
        changed |= {(1, f"u{number}")}
    async with asyncio.timeout(PATIENCE_S):
        await sink.apply(topic.slice())
    topic.append(form(*SLICES[name][-1]), ("c", {"id": 9, named: "nine"}))
    await sink.apply(topic.slice())
    await sink.close()

    rows = {(row["id"], row[named]) for row in await bench.rows("public.orders")}
    more = changed | {(1, "one")} if mode in ("append", "scd2") else set()
    assert rows == wanted | more | {(9, "nine")}
