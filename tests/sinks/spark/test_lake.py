"""A table of the lake changes with its source, file by file, and says where it stands."""

from dataclasses import replace
from datetime import date
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pytest

from headwater.core_log.foundation.errors import SchemaRefused, SinkRejected
from headwater.core_log.model.table_schema import TableId
from headwater.core_log.storage.files import OsFiles
from headwater.sinks.sink import AppliedOffset, SinkContext
from headwater.sinks.spark.lake import Lake
from headwater.sinks.spark.settings import SparkSettings
from headwater.sinks.spark.sink import SparkSink
from headwater.sinks.spark.sink_state import tables_at
from tests.contract.sink_suite import ORDERS, by_id
from tests.sinks.spark.orders import TABLE, applied, bench_of, many, state_of
from tests.sinks.spark.targets import LakeBench, plain
from tests.slices import ScriptedTopic, schema_of, together


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


@pytest.mark.parametrize("format", ["delta", "iceberg"])
async def test_a_plan_shows_the_columns_and_types_that_the_table_gets(
    format: str, tmp_path: Path
) -> None:
    bench, topic = bench_of(tmp_path, format=format), ScriptedTopic("shop.public.items")
    tags = pa.list_(pa.string())
    now = schema_of("public.items", id=pa.int64(), price=pa.decimal128(10, 2), tags=tags)
    new = schema_of(
        "public.items", id=pa.int64(), price=pa.decimal128(12, 2), tags=tags, note=pa.string()
    )
    [before] = await bench.sink().plan([now])
    topic.append(now, ("c", {"id": 1, "price": Decimal("1.50"), "tags": ["a"]}))
    await applied(bench, topic)

    [after] = await bench.sink().plan([new])

    table = bench.table("public.items")
    assert table is not None
    made = [field for field in table.schema if not field.name.startswith("_headwater_")]
    assert [each.name for each in made] == ["id", "price", "tags"]
    assert [plain(each.type) for each in made[:2]] == [pa.int64(), pa.decimal128(10, 2)]
    assert before.splitlines()[1:] == [
        "  id bigint (key)",
        "  price decimal(10,2)",
        "  tags array<string>",
    ]
    assert after.splitlines()[1:] == [
        "  id bigint (key)",
        "  price decimal(12,2) (now decimal(10,2))",
        "  tags array<string>",
        "  note string (new)",
    ]


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
    assert finding.hint == "headwater rebuild shop/public.orders --swap" and not finding.is_fatal


@pytest.mark.parametrize(("before", "after"), [("append", "mirror"), ("scd2", "append")])
async def test_another_mode_is_said_until_the_table_is_rebuilt(
    before: str, after: str, tmp_path: Path
) -> None:
    bench, topic = bench_of(tmp_path, tables={"*": {"mode": before}}), ScriptedTopic()
    topic.append(ORDERS, *many(0, 5))
    await applied(bench, topic)
    same = await bench.sink().plan([ORDERS])
    bench.chosen = {"tables": {"*": {"mode": after}}}

    planned = await bench.sink().plan([ORDERS])

    assert len(same) == 1
    assert planned[1].endswith(f"until a rebuild: in mode {before}, and not {after}")


async def test_a_table_of_another_pipeline_is_left_alone(tmp_path: Path) -> None:
    bench, topic = bench_of(tmp_path), ScriptedTopic()
    topic.append(ORDERS, ("c", {"id": 1, "note": "a"}))
    await applied(bench, topic)
    other = LakeBench(bench.path, pipeline="stranger")

    with pytest.raises(SinkRejected, match="belongs to another pipeline"):
        await other.sink().apply(topic.slice(start={0: 0}))

    assert await bench.rows("public.orders") == [{"id": 1, "note": "a"}]
    assert await other.sink().drop() == []


@pytest.mark.parametrize("format", ["delta", "iceberg"])
async def test_a_table_that_nobody_can_read_any_more_goes_with_the_others(
    tmp_path: Path, format: str
) -> None:
    bench = LakeBench(str(tmp_path / "lake"), chosen={"format": format})
    orders, items = ScriptedTopic(), ScriptedTopic("shop.public.items")
    orders.append(ORDERS, ("c", {"id": 1, "note": "a"}))
    items.append(schema_of("public.items", id=pa.int64()), ("c", {"id": 1}))
    await applied(bench, orders, items)
    damaged = tmp_path / "lake" / "public.orders"
    for each in [*damaged.rglob("_delta_log/*.json"), *damaged.rglob("*.metadata.json")]:
        each.write_text("{torn")

    with pytest.raises(SinkRejected):
        await bench.sink().versions(ORDERS.table, newest=1)
    removed = await bench.sink().drop()

    assert [each.split()[1] for each in removed] == ["public.items", "public.orders"]
    assert await bench.sink().drop() == []


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
    assert list(newest.offsets.values()) == [4]


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
async def test_a_version_says_of_every_partition_where_it_stands(kind: str, tmp_path: Path) -> None:
    bench, topic = bench_of(tmp_path, format=kind), ScriptedTopic()
    topic.append(ORDERS, ("c", {"id": 1, "note": "a"}), partition=0)
    topic.append(ORDERS, ("c", {"id": 2, "note": "a"}), partition=1)
    await applied(bench, topic)
    for number in range(3):
        topic.append(ORDERS, ("u", {"id": 2, "note": f"{number}"}), partition=1)
        part = topic.slice()
        [moved] = [each for each in part.end if each.partition == 1]
        alone = replace(part, start={moved: part.start[moved]}, end={moved: part.end[moved]})
        sink = bench.sink()
        await sink.committed_offsets([topic.name])
        await sink.apply(alone)

    versions = await bench.sink().versions(TABLE, newest=2)

    offsets = [[end.next_offset for _, end in sorted(each.offsets.items())] for each in versions]
    assert offsets == [[2, 8], [2, 6]]


async def test_a_slice_that_failed_for_one_table_is_not_done_again_for_the_others(
    tmp_path: Path,
) -> None:
    bench, orders = bench_of(tmp_path), ScriptedTopic()
    items = ScriptedTopic("shop.public.items", "topic-2")
    shape = schema_of("public.items", id=pa.int64(), price=pa.string())
    items.append(shape, ("c", {"id": 1, "price": "1"}))
    await applied(bench, items)
    sink = bench.sink()
    await sink.committed_offsets([orders.name, items.name])
    orders.append(ORDERS, ("c", {"id": 1, "note": "a"}))
    items.append(
        schema_of("public.items", id=pa.int64(), price=pa.int64()), ("c", {"id": 2, "price": 2})
    )
    part, alone = together(orders.slice(), items.slice()), orders.slice(start={0: 0})

    with pytest.raises(SchemaRefused):
        await sink.apply(part)
    await sink.apply(alone)

    assert await bench.rows("public.orders") == [{"id": 1, "note": "a"}]
    assert [*(await sink.committed_offsets([orders.name]) or {}).values()] == [
        AppliedOffset("topic-1", 2)
    ]


async def test_all_tables_can_be_opened_at_one_cut(tmp_path: Path) -> None:
    bench, orders = bench_of(tmp_path, consistent_cut=True), ScriptedTopic()
    items = ScriptedTopic("shop.public.items", "topic-2")
    shape = schema_of("public.items", id=pa.int64(), price=pa.int64())
    orders.append(ORDERS, ("c", {"id": 1, "note": "a"}))
    items.append(shape, ("c", {"id": 1, "price": 1}))
    await applied(bench, orders, items)
    items.append(shape, ("c", {"id": 2, "price": 2}), ("c", {"id": 3, "price": 3}))
    await applied(bench, items)

    newest = tables_at(bench.path, pipeline="shop")
    first = tables_at(bench.path, pipeline="shop", sink="sink", cut=2)

    of_items = TableId("public", "items")
    assert (newest.cut.offset, newest.versions) == (5, {TABLE: 0, of_items: 1})
    assert (first.cut.offset, first.versions) == (2, {TABLE: 0, of_items: 0})


async def test_several_sinks_at_one_path_are_told_apart_by_name(tmp_path: Path) -> None:
    bench, orders = bench_of(tmp_path, consistent_cut=True), ScriptedTopic()
    items = ScriptedTopic("shop.public.items", "topic-2")
    orders.append(ORDERS, ("c", {"id": 1, "note": "a"}))
    items.append(schema_of("public.items", id=pa.int64()), ("c", {"id": 1}))
    settings = SparkSettings.model_validate({"path": bench.path, **bench.chosen})
    other = SparkSink(settings, SinkContext("shop", Path("/"), {}, bench.clock, "other"))
    await applied(bench, orders)
    await other.apply(items.slice())

    with pytest.raises(SinkRejected, match="several sinks") as refused:
        tables_at(bench.path, pipeline="shop")
    found = tables_at(bench.path, pipeline="shop", sink="other")

    assert 'sink="other"' in refused.value.hint
    assert found.versions == {TableId("public", "items"): 0}


async def test_a_cut_leaves_a_table_out_that_its_source_reads_again(tmp_path: Path) -> None:
    bench, orders = bench_of(tmp_path, consistent_cut=True), ScriptedTopic()
    items = ScriptedTopic("shop.public.items", "topic-2")
    shape = schema_of("public.items", id=pa.int64(), price=pa.int64())
    orders.append(ORDERS, ("c", {"id": 1, "note": "a"}))
    items.append(shape, ("c", {"id": 1, "price": 1}))
    await applied(bench, orders, items)
    items.append(shape, ("c", {"id": 2, "price": 2}))

    await bench.sink().apply(replace(items.slice(), left_out=frozenset({orders.name})))

    newest = tables_at(bench.path, pipeline="shop")
    assert newest.versions == {TableId("public", "items"): 1}
    assert newest.left_out == {TABLE}


async def test_plain_files_hold_every_change(tmp_path: Path) -> None:
    from pyarrow import dataset

    bench, topic = bench_of(tmp_path, format="parquet"), ScriptedTopic()
    topic.append(ORDERS, ("c", {"id": 1, "note": "a"}), ("d", {"id": 1}))

    await applied(bench, topic)

    files = dataset.dataset(bench.address("public.orders"), format="parquet")
    assert files.to_table()["_headwater_op"].to_pylist() == ["c", "d"]


async def test_the_directory_of_a_new_table_is_on_disk_before_its_first_commit(
    tmp_path: Path,
) -> None:
    bench, topic = bench_of(tmp_path), ScriptedTopic()
    topic.append(ORDERS, *many(0, 3))
    table = Path(bench.address(str(TABLE)))
    synced: list[Path] = []
    sync = OsFiles.sync_directory

    def watched(files: OsFiles, path: Path) -> None:
        if table.exists():
            synced.append(path)
        sync(files, path)

    with patch.object(OsFiles, "sync_directory", watched):
        await applied(bench, topic)

    assert table.parent in synced[: synced.index(table / "_delta_log")]
