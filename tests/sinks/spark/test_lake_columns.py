"""Columns of the lake come, widen and go, and values of every type come back as they were."""

from dataclasses import replace
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

from headwater.core_log.foundation.errors import RebuildNeeded, SchemaRefused, SinkRejected
from headwater.sinks.sink import RebuildRecipe
from tests.contract.sink_suite import ORDERS, by_id
from tests.sinks.spark.orders import applied, bench_of, many
from tests.sinks.spark.targets import LakeBench
from tests.slices import ScriptedTopic, changes_of, schema_of

WIDE = schema_of("public.orders", id=pa.int64(), note=pa.string(), total=pa.int32())


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


async def test_a_type_that_iceberg_does_not_promote_is_another_column_of_its_name(
    tmp_path: Path,
) -> None:
    bench, topic = LakeBench(str(tmp_path / "lake"), chosen={"format": "iceberg"}), ScriptedTopic()
    topic.append(ORDERS, ("c", {"id": 1, "note": "a"}))
    await applied(bench, topic)
    topic.append(schema_of("public.orders", id=pa.int64()), ("c", {"id": 2}))
    number = schema_of("public.orders", id=pa.int64(), note=pa.int64())
    topic.append(number, ("c", {"id": 3, "note": 5}))
    await applied(bench, topic)
    wider = schema_of("public.orders", id=pa.int64(), note=pa.decimal128(22, 2))
    topic.append(wider, ("c", {"id": 4, "note": Decimal("5.25")}))
    await applied(bench, topic)

    found = bench.table("public.orders")
    assert found is not None and found.schema.field("note").type == pa.decimal128(22, 2)
    assert {row["id"]: row["note"] for row in found.to_pylist()} == {
        1: None,
        2: None,
        3: Decimal(5),
        4: Decimal("5.25"),
    }


@pytest.mark.parametrize("is_divided", [False, True])
async def test_a_swap_gives_iceberg_any_type_but_to_a_column_that_divides_the_table(
    tmp_path: Path, is_divided: bool
) -> None:
    tables = {"*": {"partition_by": ["note"] if is_divided else []}}
    bench, topic = bench_of(tmp_path, format="iceberg", tables=tables), ScriptedTopic()
    number = schema_of("public.orders", id=pa.int64(), note=pa.int32())
    topic.append(number, ("c", {"id": 1, "note": 7}), ("c", {"id": 2, "note": 8}))
    await applied(bench, topic)
    topic.append(ORDERS, ("u", {"id": 1, "note": "7"}), ("d", {"id": 2}))
    with pytest.raises(RebuildNeeded):
        await applied(bench, topic)
    sink = bench.sink()
    shadow = await sink.shadow(RebuildRecipe(ORDERS.table, newest=ORDERS))
    await shadow.committed_offsets([topic.name])
    await shadow.apply(topic._part({0: 0}, {0: 6}, ()))

    if is_divided:
        with pytest.raises(SchemaRefused, match="divides") as refused:
            await sink.swap(ORDERS.table)
        assert "headwater drop PIPELINE/TABLE --data" in refused.value.hint
        removed = await bench.sink().drop_table(ORDERS.table, [topic.name])
        assert len(removed) == 1 and bench.table("public.orders") is None
        return
    await sink.swap(ORDERS.table)

    assert await bench.rows("public.orders") == [{"id": 1, "note": "7"}]


async def test_an_older_version_of_an_iceberg_table_has_the_columns_that_are_gone(
    tmp_path: Path,
) -> None:
    bench, topic = LakeBench(str(tmp_path / "lake"), chosen={"format": "iceberg"}), ScriptedTopic()
    topic.append(ORDERS, ("c", {"id": 1, "note": "a"}))
    await applied(bench, topic)
    topic.append(schema_of("public.orders", id=pa.int64()), ("c", {"id": 2}))
    await applied(bench, topic)
    topic.append(WIDE, ("c", {"id": 3, "note": None, "total": 4}))
    topic.append(schema_of("public.orders", id=pa.int64(), total=pa.int32()), ("c", {"id": 4}))
    await applied(bench, topic)

    catalog = load_catalog("headwater", type="sql", uri=f"sqlite:///{tmp_path}/lake/catalog.db")
    held = catalog.load_table(("headwater", "public_orders"))
    oldest = min(held.metadata.snapshots, key=lambda each: each.sequence_number or 0)
    assert held.scan(snapshot_id=oldest.snapshot_id).to_arrow().to_pylist() == [
        {"id": 1, "note": "a"}
    ]


@pytest.mark.slow
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
    bench, topic = bench_of(tmp_path), ScriptedTopic("shop.public.moments")
    topic.append_changes(replace(changes_of(schema, ("c", {"id": 1})), rows=rows))
    await applied(bench, topic)

    async with bench.sink().contents(schema, [topic.name]) as contents:
        [batch] = [batch async for batch in contents.batches]

    assert batch.column("exact").cast(pa.int64()).to_pylist() == [-1]
    assert batch.column("far").cast(pa.int64()).to_pylist() == [2**62]


@pytest.mark.slow
async def test_polars_and_duckdb_see_the_same_rows(tmp_path: Path) -> None:
    import deltalake
    import duckdb
    import polars

    bench, topic = bench_of(tmp_path), ScriptedTopic()
    topic.append(ORDERS, *many(0, 5))
    await applied(bench, topic)
    topic.append(ORDERS, ("d", {"id": 3}), ("u", {"id": 4, "note": "b"}))
    await applied(bench, topic)

    seen_by_polars = polars.scan_delta(bench.address("public.orders")).sort("id").collect()
    files = deltalake.DeltaTable(bench.address("public.orders")).file_uris()
    seen_by_duckdb = duckdb.execute(
        "SELECT id, note FROM read_parquet(?) ORDER BY id", [files]
    ).fetchall()

    expected = [(0, "a"), (1, "a"), (2, "a"), (4, "b")]
    assert seen_by_polars.rows() == expected == seen_by_duckdb


async def test_empty_text_never_becomes_null(tmp_path: Path) -> None:
    schema = schema_of("public.orders", id=pa.int64(), country=pa.string())
    bench = bench_of(tmp_path, tables={"*": {"partition_by": "country"}})
    topic = ScriptedTopic()
    topic.append(schema, ("c", {"id": 1, "country": ""}))

    with pytest.raises(SinkRejected, match="empty text"):
        await applied(bench, topic)
