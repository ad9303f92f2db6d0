"""A table of the lake changes with its source, says where it stands, and is made anew beside."""

from datetime import UTC, date, datetime, time
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from core_log.clock import SystemClock
from core_log.errors import Fenced, SchemaRefused, SinkRejected
from core_log.table_schema import TableId
from sinks.sink import Stand
from sinks.spark.cuts import tables_at
from sinks.spark.lake import Lake
from sinks.spark.table import TableState
from tests.contract.sink_suite import ORDERS, by_id, stands
from tests.sinks.spark.targets import LakeBench
from tests.slices import Change, ScriptedTopic, changes_of, schema_of, together

TABLE = TableId("public", "orders")
WIDE = schema_of("public.orders", id=pa.int64(), note=pa.string(), total=pa.int32())


def bench_of(path: Path, **chosen: Any) -> LakeBench:
    return LakeBench(str(path / "lake"), chosen=chosen)


def state_of(bench: LakeBench, table: TableId = TABLE) -> TableState:
    sink = bench.sink()
    state = Lake(sink._settings, sink._context).table(table).load()
    assert state is not None
    return state


async def applied(bench: LakeBench, *topics: ScriptedTopic) -> None:
    sink = bench.sink()
    await sink.applied([topic.name for topic in topics])
    await sink.apply(together(*(topic.slice() for topic in topics)))


def many(first: int, count: int, note: str = "a") -> list[Change]:
    return [("c", {"id": number, "note": note}) for number in range(first, first + count)]


async def test_only_files_are_rewritten_whose_keys_change(tmp_path: Path) -> None:
    bench, topic = bench_of(tmp_path, tables={"*": {"file_rows": 10}}), ScriptedTopic()
    topic.append(ORDERS, *many(0, 100))
    await applied(bench, topic)
    before = {each.path: (each.low, each.high) for each in state_of(bench).files}
    topic.append(ORDERS, ("u", {"id": 55, "note": "b"}), ("d", {"id": 57}), ("d", {"id": 1000}))

    await applied(bench, topic)

    after = {each.path: (each.low, each.high) for each in state_of(bench).files}
    assert len(before) == 10
    assert {before[path] for path in before.keys() - after.keys()} == {(50, 59), (90, 99)}
    assert sorted(after.values()) == sorted(before.values())


async def test_a_file_that_grows_is_divided_and_keys_never_stand_in_two(tmp_path: Path) -> None:
    bench, topic = bench_of(tmp_path, tables={"*": {"file_rows": 10}}), ScriptedTopic()
    for first in (0, 1000, 20):
        topic.append(ORDERS, *many(first, 35))
        await applied(bench, topic)

    files = state_of(bench).files
    bounds = [(int(each.low or 0), int(each.high or 0)) for each in files]
    assert sum(each.rows for each in files) == 90  # ids 20 to 34 came twice
    assert all(each.rows <= 15 for each in files)
    assert all(one[1] < other[0] for one, other in pairwise(sorted(bounds)))


async def test_columns_come_widen_and_go(tmp_path: Path) -> None:
    wider = schema_of("public.orders", id=pa.int64(), note=pa.string(), total=pa.int64())
    bench, topic = bench_of(tmp_path), ScriptedTopic()
    topic.append(WIDE, ("c", {"id": 1, "note": "a", "total": 1}))
    await applied(bench, topic)
    topic.append(wider, ("c", {"id": 2, "note": "b", "total": 1 << 40}))
    await applied(bench, topic)
    widened = by_id(await bench.rows("public.orders"))
    topic.append(schema_of("public.orders", id=pa.int64(), total=pa.int64()), ("c", {"id": 3}))
    await applied(bench, topic)
    narrow = by_id(await bench.rows("public.orders"))
    topic.append(wider, ("c", {"id": 4, "note": "new", "total": 4}))
    await applied(bench, topic)

    assert [(row["id"], row["note"], row["total"]) for row in widened] == [
        (1, "a", 1),
        (2, "b", 1 << 40),
    ]
    assert [row.keys() for row in narrow] == [{"id", "total"}] * 3
    assert {row["id"]: row["note"] for row in await bench.rows("public.orders")} == {
        1: None,
        2: None,
        3: None,
        4: "new",
    }


async def test_a_column_that_goes_and_comes_in_one_slice_forgets_its_values(
    tmp_path: Path,
) -> None:
    bench, topic = bench_of(tmp_path), ScriptedTopic()
    topic.append(ORDERS, ("c", {"id": 1, "note": "old"}))
    await applied(bench, topic)
    topic.append(schema_of("public.orders", id=pa.int64()), ("c", {"id": 2}))
    topic.append(ORDERS, ("c", {"id": 3, "note": "new"}))

    await applied(bench, topic)

    found = {row["id"]: row["note"] for row in await bench.rows("public.orders")}
    assert found == {1: None, 2: None, 3: "new"}


async def test_a_type_that_becomes_another_is_refused_and_nothing_moves(tmp_path: Path) -> None:
    bench, topic = bench_of(tmp_path), ScriptedTopic()
    topic.append(ORDERS, ("c", {"id": 1, "note": "a"}))
    await applied(bench, topic)
    other = schema_of("public.orders", id=pa.int64(), note=pa.int64())
    topic.append(other, ("c", {"id": 2, "note": 5}))

    with pytest.raises(SchemaRefused, match="another one"):
        await applied(bench, topic)

    assert await bench.rows("public.orders") == [{"id": 1, "note": "a"}]


async def test_values_of_every_type_come_back_as_they_were(tmp_path: Path) -> None:
    values: dict[pa.DataType, list[Any]] = {
        pa.bool_(): [True, False],
        pa.int8(): [-128, 127],
        pa.uint8(): [0, 255],
        pa.uint16(): [0, 65_535],
        pa.uint32(): [0, 2**32 - 1],
        pa.uint64(): [0, 2**64 - 1],
        pa.int64(): [-(2**63), 2**63 - 1],
        pa.float32(): [float("inf"), 1.1754943508222875e-38],
        pa.float64(): [float("-inf"), 5e-324],
        pa.decimal128(38, 10): [Decimal("9" * 28 + "." + "9" * 10), Decimal("-0.0000000001")],
        pa.decimal256(60, 3): [Decimal("9" * 57 + ".999"), Decimal("-1.001")],
        pa.decimal128(5, -3): [Decimal("99999E3"), Decimal("-1E3")],
        pa.string(): ["", "ü € \U0001f600 \0"],
        pa.binary(): [b"", b"\0\xff"],
        pa.date32(): [date(1, 1, 1), date(9999, 12, 31)],
        pa.time64("us"): [time(0, 0), time(23, 59, 59, 999_999)],
        pa.time32("ms"): [time(0, 0), time(23, 59, 59, 999_000)],
        pa.timestamp("us"): [datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999_999)],
        pa.timestamp("ms", "UTC"): [datetime(1969, 12, 31, tzinfo=UTC), None],
        pa.timestamp("s"): [datetime(2024, 2, 29), None],
        pa.list_(pa.int16()): [[1, None, -3], []],
        pa.struct([("a", pa.uint8()), ("b", pa.list_(pa.string()))]): [
            {"a": 200, "b": ["x", None]},
            None,
        ],
    }
    columns = {f"c{at}": kind for at, kind in enumerate(values)}
    schema = schema_of("public.things", id=pa.int64(), **columns)
    rows = [
        {"id": number} | {name: values[kind][number] for name, kind in columns.items()}
        for number in (0, 1)
    ]
    rows.append({"id": 2} | dict.fromkeys(columns))
    bench, topic = bench_of(tmp_path), ScriptedTopic("shop.public.things")
    topic.append(schema, *(("c", row) for row in rows))
    await applied(bench, topic)
    topic.append(schema, ("d", {"id": 77}))  # so that the file is read, and written again
    await applied(bench, topic)

    sink = bench.sink()
    async with sink.contents(schema, [topic.name]) as contents:
        batches = [batch async for batch in contents.batches]

    found = pa.Table.from_batches(batches).sort_by("id")
    expected = pa.Table.from_batches([changes_of(schema, *(("c", row) for row in rows)).rows])
    assert contents.columns == schema.names
    assert found.to_pylist() == expected.to_pylist()
    assert found.schema == expected.schema


async def test_a_nanosecond_and_a_moment_far_away_are_kept(tmp_path: Path) -> None:
    schema = schema_of(
        "public.moments", id=pa.int64(), exact=pa.timestamp("ns", "UTC"), far=pa.timestamp("us")
    )
    rows = pa.RecordBatch.from_arrays(
        [
            pa.array([1], pa.int64()),
            pa.array([-1], pa.int64()).cast(schema.arrow.field("exact").type),
            pa.array([2**62], pa.int64()).cast(pa.timestamp("us")),
        ],
        schema=schema.arrow,
    )
    from dataclasses import replace

    bench, topic = bench_of(tmp_path), ScriptedTopic("shop.public.moments")
    topic.append_changes(replace(changes_of(schema, ("c", {"id": 1})), rows=rows))
    await applied(bench, topic)

    async with bench.sink().contents(schema, [topic.name]) as contents:
        [batch] = [batch async for batch in contents.batches]

    assert batch.column("exact").cast(pa.int64()).to_pylist() == [-1]
    assert batch.column("far").cast(pa.int64()).to_pylist() == [2**62]


async def test_a_divided_table_is_read_by_its_values(tmp_path: Path) -> None:
    schema = schema_of("public.orders", id=pa.int64(), country=pa.string(), day=pa.date32())
    bench = bench_of(tmp_path, tables={"*": {"partition_by": ["country", "day"]}})
    topic, day = ScriptedTopic(), date(2024, 1, 31)
    topic.append(
        schema,
        ("c", {"id": 1, "country": "AT", "day": day}),
        ("c", {"id": 2, "country": "DE/x y", "day": day}),
        ("c", {"id": 3, "country": None, "day": None}),
    )
    await applied(bench, topic)
    topic.append(schema, ("u", {"id": 1, "country": "DE/x y", "day": day}))

    await applied(bench, topic)

    assert by_id(await bench.rows("public.orders")) == [
        {"id": 1, "country": "DE/x y", "day": day},
        {"id": 2, "country": "DE/x y", "day": day},
        {"id": 3, "country": None, "day": None},
    ]
    assert {each.partition for each in state_of(bench).files} == {
        ("DE/x y", "2024-01-31"),
        (None, None),
    }


async def test_another_division_is_said_until_the_table_is_rebuilt(tmp_path: Path) -> None:
    bench, topic = bench_of(tmp_path, tables={"*": {"partition_by": "note"}}), ScriptedTopic()
    before = await bench.sink().plan([ORDERS])
    topic.append(ORDERS, *many(0, 5))
    await applied(bench, topic)
    same = await bench.sink().plan([ORDERS])
    bench.chosen = {"tables": {"*": {"mode": "mirror"}}}

    planned, found = await bench.sink().plan([ORDERS]), await bench.sink().examine()

    assert len(before) == len(same) == 1
    assert planned[1].endswith("stays as it is until a rebuild: divided by note, and not undivided")
    [finding] = [each for each in found if "until a rebuild" in each.problem]
    assert finding.cure == "headwater rebuild shop/public.orders --swap" and not finding.is_fatal


async def test_polars_and_duckdb_see_the_same_rows(tmp_path: Path) -> None:
    import duckdb
    import polars

    bench, topic = bench_of(tmp_path), ScriptedTopic()
    topic.append(ORDERS, *many(0, 5))
    await applied(bench, topic)
    topic.append(ORDERS, ("d", {"id": 3}), ("u", {"id": 4, "note": "b"}))
    await applied(bench, topic)

    seen_by_polars = polars.scan_delta(bench.address("public.orders")).sort("id").collect()
    lake = bench.table("public.orders")
    assert lake is not None
    seen_by_duckdb = duckdb.connect().execute("SELECT id, note FROM lake ORDER BY id").fetchall()

    expected = [(0, "a"), (1, "a"), (2, "a"), (4, "b")]
    assert seen_by_polars.rows() == expected == seen_by_duckdb


async def test_a_table_of_another_pipeline_is_left_alone(tmp_path: Path) -> None:
    bench, topic = bench_of(tmp_path), ScriptedTopic()
    topic.append(ORDERS, ("c", {"id": 1, "note": "a"}))
    await applied(bench, topic)
    other = LakeBench(bench.path, pipeline="stranger")

    with pytest.raises(SinkRejected, match="belongs to another pipeline"):
        await other.sink().apply(topic.slice(start={0: 0}))

    assert await bench.rows("public.orders") == [{"id": 1, "note": "a"}]
    assert await other.sink().drop() == []


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
async def test_a_copy_is_filled_beside_and_takes_the_place_in_one_commit(
    kind: str, tmp_path: Path
) -> None:
    bench, topic = bench_of(tmp_path, format=kind), ScriptedTopic()
    topic.append(ORDERS, *many(0, 4))
    await applied(bench, topic)
    before = state_of(bench)
    sink = bench.sink()
    again = LakeBench(bench.path, chosen={"deletes": "soft", "format": kind}).sink()
    shadow = await again.shadow(TABLE)
    assert await shadow.applied([topic.name]) == {}
    await shadow.apply(topic.slice(start={0: 0}))
    topic.append(ORDERS, ("d", {"id": 2}))
    part = topic.slice()
    await sink.applied([topic.name])
    await sink.apply(part)
    seen_meanwhile = await bench.rows("public.orders")
    await shadow.apply(part)

    kept = await again.swap(TABLE)

    after = state_of(bench)
    rows = bench.table("public.orders")
    assert rows is not None
    assert len(seen_meanwhile) == 3 and rows.num_rows == 4
    assert not has_log(Path(bench.address("public.orders"), "shadow-g2"))
    assert after.version == before.version + 2 and str(before.version + 1) in kept
    assert (after.generation, after.mode, after.id) == (2, "soft_delete", before.id)
    assert await stands(again, topic.name) == {f"{topic.name}/0": 7}
    with pytest.raises(Fenced):
        await again.apply(topic.slice(start={0: 0}))
    topic.append(ORDERS, ("c", {"id": 9, "note": "on"}))
    await again.apply(topic.slice())
    assert len(await bench.rows("public.orders")) == 5


async def test_a_rebuild_goes_on_with_the_copy_that_is_there(tmp_path: Path) -> None:
    bench, topic = bench_of(tmp_path), ScriptedTopic()
    topic.append(ORDERS, *many(0, 4))
    await applied(bench, topic)
    first = await bench.sink().shadow(TABLE)
    await first.applied([topic.name])
    await first.apply(topic.slice(start={0: 0}))

    second = await bench.sink().shadow(TABLE)

    assert await stands(second, topic.name) == {f"{topic.name}/0": 5}


async def test_small_files_are_put_together_while_the_sink_goes_on(tmp_path: Path) -> None:
    chosen = {"tables": {"*": {"mode": "append"}}, "maintenance": {"small_files": 3}}
    bench, topic = bench_of(tmp_path, **chosen), ScriptedTopic()
    bench.clock = SystemClock()
    sink = bench.sink()
    await sink.applied([topic.name])
    for number in range(4):
        topic.append(ORDERS, ("c", {"id": number, "note": "a"}))
        await sink.apply(topic.slice())

    said = await bench.sink().maintain()
    topic.append(ORDERS, ("c", {"id": 4, "note": "a"}))
    await sink.apply(topic.slice())

    assert said == ["public.orders: 4 small files became 1"]
    assert len(state_of(bench).files) == 2
    assert [row["id"] for row in by_id(await bench.rows("public.orders"))] == [0, 1, 2, 3, 4]


async def test_a_version_says_which_part_of_the_source_it_holds(tmp_path: Path) -> None:
    bench, topic = bench_of(tmp_path), ScriptedTopic()
    topic.append(ORDERS, ("c", {"id": 1, "note": "a"}))
    await applied(bench, topic)
    topic.append(ORDERS, ("c", {"id": 2, "note": "a"}))
    await applied(bench, topic)

    sink = bench.sink()
    newest, first = Lake(sink._settings, sink._context).table(TABLE).lake.versions(10)

    assert (first.version, newest.version) == (0, 1)
    assert newest.positions == {"stream": "{0: 4}"} and newest.cut == 4
    assert list(newest.stands.values()) == [4]


async def test_a_slice_that_failed_for_one_table_is_not_done_again_for_the_others(
    tmp_path: Path,
) -> None:
    bench, orders = bench_of(tmp_path), ScriptedTopic()
    items = ScriptedTopic("shop.public.items", "topic-2")
    shape = schema_of("public.items", id=pa.int64(), price=pa.string())
    items.append(shape, ("c", {"id": 1, "price": "1"}))
    await applied(bench, items)
    sink = bench.sink()
    await sink.applied([orders.name, items.name])
    orders.append(ORDERS, ("c", {"id": 1, "note": "a"}))
    items.append(
        schema_of("public.items", id=pa.int64(), price=pa.int64()), ("c", {"id": 2, "price": 2})
    )
    part, alone = together(orders.slice(), items.slice()), orders.slice(start={0: 0})

    with pytest.raises(SchemaRefused):
        await sink.apply(part)
    await sink.apply(alone)

    assert await bench.rows("public.orders") == [{"id": 1, "note": "a"}]
    assert [*(await sink.applied([orders.name]) or {}).values()] == [Stand("topic-1", 2)]


async def test_all_tables_can_be_opened_at_one_cut(tmp_path: Path) -> None:
    bench, orders = bench_of(tmp_path, consistent_cut=True), ScriptedTopic()
    items = ScriptedTopic("shop.public.items", "topic-2")
    shape = schema_of("public.items", id=pa.int64(), price=pa.int64())
    orders.append(ORDERS, ("c", {"id": 1, "note": "a"}))
    items.append(shape, ("c", {"id": 1, "price": 1}))
    await applied(bench, orders, items)
    items.append(shape, ("c", {"id": 2, "price": 2}), ("c", {"id": 3, "price": 3}))
    await applied(bench, items)

    newest = tables_at(bench.path, pipeline="shop", sink="sink")
    first = tables_at(bench.path, pipeline="shop", sink="sink", cut=2)

    of_items = TableId("public", "items")
    assert (newest.cut.offset, newest.versions) == (5, {TABLE: 0, of_items: 1})
    assert (first.cut.offset, first.versions) == (2, {TABLE: 0, of_items: 0})


async def test_empty_text_never_becomes_null(tmp_path: Path) -> None:
    schema = schema_of("public.orders", id=pa.int64(), country=pa.string())
    bench = bench_of(tmp_path, tables={"*": {"partition_by": "country"}})
    topic = ScriptedTopic()
    topic.append(schema, ("c", {"id": 1, "country": ""}))

    with pytest.raises(SinkRejected, match="empty text"):
        await applied(bench, topic)


async def test_plain_files_hold_every_change(tmp_path: Path) -> None:
    from pyarrow import dataset

    bench, topic = bench_of(tmp_path, format="parquet"), ScriptedTopic()
    topic.append(ORDERS, ("c", {"id": 1, "note": "a"}), ("d", {"id": 1}))

    await applied(bench, topic)

    files = dataset.dataset(bench.address("public.orders"), format="parquet")
    assert files.to_table()["_headwater_op"].to_pylist() == ["c", "d"]


def has_log(directory: Path) -> bool:
    """Whether it is a Delta table of its own."""
    return (directory / "_delta_log").exists()
