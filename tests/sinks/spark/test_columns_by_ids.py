"""A column that is known to be the same one keeps its values, and a new one gets those it has."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.core_log.foundation.errors import RebuildNeeded, SchemaRefused
from headwater.core_log.model.table_schema import Column, TableId, TableSchema
from tests.sinks.spark.targets import LakeBench
from tests.slices import ScriptedTopic

SETTINGS: dict[str, dict[str, Any]] = {
    "mirror": {},
    "soft_delete": {"deletes": "soft"},
    "append": {"mode": "append"},
    "scd2": {"mode": "scd2"},
}


def form(*columns: tuple[Any, ...]) -> TableSchema:
    """Columns as name, type, number, and the value of older rows."""
    made = [
        Column(name, kind, id=number, missing=rest[0] if rest else None)
        for name, kind, number, *rest in columns
    ]
    key = Column("id", pa.int64(), is_nullable=False, id=1)
    return TableSchema(TableId("public", "orders"), (key, *made), ("id",), id=5)


def text(name: str, number: int, *rest: str) -> tuple[Any, ...]:
    return name, pa.string(), number, *rest


BEFORE = form(text("a", 2), text("gone", 3))
AFTER = form(text("b", 2), ("price", pa.decimal128(9, 2), 4, "7.50"), ("c", pa.int64(), 5))


def bench_of(path: Path, format: str = "delta", **table: Any) -> LakeBench:
    deletes = table.pop("deletes", "hard")
    chosen = {"deletes": deletes, "format": format, "tables": {"*": {"file_rows": 2, **table}}}
    return LakeBench(str(path / "lake"), chosen=chosen)


async def put(bench: LakeBench, topic: ScriptedTopic) -> None:
    sink = bench.sink()
    await sink.committed_offsets([topic.name])
    await sink.apply(topic.slice())
    await sink.close()


@pytest.mark.parametrize("format", ["delta", "iceberg"])
@pytest.mark.parametrize("mode", SETTINGS)
async def test_a_renamed_column_and_one_with_a_default(
    tmp_path: Path, mode: str, format: str
) -> None:
    bench, topic = bench_of(tmp_path, format, **SETTINGS[mode]), ScriptedTopic()
    topic.append(BEFORE, *(("c", {"id": each, "a": f"v{each}", "gone": "x"}) for each in (1, 2, 3)))
    topic.append(BEFORE, ("d", {"id": 3}))
    await put(bench, topic)
    topic.append(AFTER, ("c", {"id": 4, "b": "v4", "c": 1}))
    await put(bench, topic)
    topic.append(AFTER, ("u", {"id": 2, "b": "w2", "price": 1}))
    await put(bench, topic)

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


@pytest.mark.slow
@pytest.mark.parametrize("format", ["delta", "iceberg"])
async def test_names_change_places_and_come_again(tmp_path: Path, format: str) -> None:
    bench, topic = bench_of(tmp_path, format), ScriptedTopic()
    topic.append(form(text("a", 2), text("b", 3)), ("c", {"id": 1, "a": "one", "b": "two"}))
    await put(bench, topic)
    topic.append(form(text("b", 2), text("a", 3)), ("c", {"id": 2, "a": "x", "b": "y"}))
    await put(bench, topic)
    assert {row["id"]: (row["a"], row["b"]) for row in await bench.rows("public.orders")} == {
        1: ("two", "one"),
        2: ("x", "y"),
    }

    topic.append(form(text("c", 2), text("a", 3), text("b", 4, "new")), ("c", {"id": 3, "b": "z"}))
    await put(bench, topic)
    found = {row["id"]: (row["a"], row["b"], row["c"]) for row in await bench.rows("public.orders")}
    assert found == {1: ("two", "new", "one"), 2: ("x", "new", "y"), 3: (None, "z", None)}


async def test_forms_that_come_in_one_slice(tmp_path: Path) -> None:
    bench, topic = bench_of(tmp_path), ScriptedTopic()
    topic.append(form(text("a", 2)), ("c", {"id": 1, "a": "one"}))
    await put(bench, topic)
    topic.append(form(text("b", 2), text("d", 3, "old")), ("c", {"id": 2, "b": "two"}))
    topic.append(form(text("c", 2), text("b", 3), text("a", 4)), ("c", {"id": 3, "c": "three"}))
    await put(bench, topic)

    found = {row["id"]: (row["a"], row["b"], row["c"]) for row in await bench.rows("public.orders")}
    assert found[1] == (None, "old", "one")
    assert found[3] == (None, None, "three")


@pytest.mark.parametrize("format", ["delta", "iceberg"])
@pytest.mark.parametrize("mode", SETTINGS)
async def test_a_column_gets_the_name_of_one_that_is_gone(
    tmp_path: Path, mode: str, format: str
) -> None:
    """A history still has that one."""
    bench, topic = bench_of(tmp_path, format, **SETTINGS[mode]), ScriptedTopic()
    topic.append(form(text("a", 2), text("b", 3)), ("c", {"id": 1, "a": "one", "b": "gone"}))
    await put(bench, topic)
    topic.append(form(text("a", 2)), ("c", {"id": 2, "a": "two"}))
    await put(bench, topic)
    topic.append(form(text("b", 2)), ("c", {"id": 3, "b": "three"}))
    await put(bench, topic)

    rows = await bench.rows("public.orders")
    assert {(row["id"], row["b"]) for row in rows} == {(1, "one"), (2, "two"), (3, "three")}
    assert all("a" not in row for row in rows)


@pytest.mark.parametrize(
    ("mode", "format"),
    [
        *((mode, format) for mode in SETTINGS for format in ("delta", "iceberg")),
        ("append", "parquet"),
    ],
)
async def test_another_list_of_the_same_name_begins_empty(
    tmp_path: Path, mode: str, format: str
) -> None:
    bench, topic = bench_of(tmp_path, format, **SETTINGS[mode]), ScriptedTopic()
    tags = pa.list_(pa.int32())
    topic.append(form(("tags", tags, 2)), ("c", {"id": 1, "tags": [1, 2]}))
    await put(bench, topic)
    topic.append(form(("tags", tags, 3)), ("c", {"id": 2, "tags": [3]}))
    await put(bench, topic)

    found = {row["id"]: row["tags"] for row in await bench.rows("public.orders")}
    assert found == {1: None, 2: [3]}


async def test_a_column_gets_the_name_of_one_that_is_gone_in_one_slice(tmp_path: Path) -> None:
    bench, topic = bench_of(tmp_path, mode="append"), ScriptedTopic()
    topic.append(form(text("a", 2), text("b", 3)), ("c", {"id": 1, "a": "one", "b": "gone"}))
    await put(bench, topic)
    topic.append(form(text("a", 2), text("d", 4, "old")), ("c", {"id": 2, "a": "two"}))
    topic.append(form(text("b", 2), text("d", 4)), ("c", {"id": 3, "b": "three"}))
    topic.append(form(text("d", 2)), ("c", {"id": 4, "d": "four"}))
    await put(bench, topic)

    rows = await bench.rows("public.orders")
    found = {row["id"]: row["d"] for row in rows}
    assert (found[1], found[4]) == ("one", "four")


async def test_a_column_that_divides_the_table_needs_a_new_one(tmp_path: Path) -> None:
    bench, topic = bench_of(tmp_path, partition_by=["a"]), ScriptedTopic()
    topic.append(form(text("a", 2)), ("c", {"id": 1, "a": "one"}))
    await put(bench, topic)
    topic.append(form(text("b", 2)), ("c", {"id": 2, "b": "two"}))

    with pytest.raises(RebuildNeeded, match="in place"):
        await put(bench, topic)


async def test_a_policy_that_forbids_columns_to_come_or_go_forbids_renames(tmp_path: Path) -> None:
    bench, topic = bench_of(tmp_path), ScriptedTopic()
    bench.policy["add_column"] = "fail"
    topic.append(form(text("a", 2)), ("c", {"id": 1, "a": "one"}))
    await put(bench, topic)
    topic.append(form(text("b", 2)), ("c", {"id": 2, "b": "two"}))

    with pytest.raises(SchemaRefused, match="has come"):
        await put(bench, topic)
    assert await bench.rows("public.orders") == [{"id": 1, "a": "one"}]
