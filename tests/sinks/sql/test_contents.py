"""A table of the target is read back with the very values that went into it, and with its stand."""

from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from inspect import GEN_CLOSED, getgeneratorstate
from typing import Any

import pyarrow as pa
import pytest

from headwater.core_log.foundation.errors import SinkRejected
from headwater.core_log.model.table_schema import TableSchema
from headwater.sinks.sink import DELETED_AT, AppliedOffsets, DeletedRows
from headwater.sinks.sql import contents
from headwater.sinks.sql.sink import SqlSink
from tests.sinks.sql.databases import SqlBench
from tests.slices import Change, ScriptedTopic, schema_of

ORDERS = schema_of("public.orders", id=pa.int64(), note=pa.string())
WIDE = schema_of(
    "public.wide",
    id=pa.int64(),
    small=pa.int16(),
    huge=pa.uint64(),
    price=pa.decimal128(10, 2),
    exact=pa.decimal128(38, 10),
    single=pa.float32(),
    double=pa.float64(),
    flag=pa.bool_(),
    text=pa.string(),
    bytes=pa.binary(),
    day=pa.date32(),
    clock=pa.time64("us"),
    moment=pa.timestamp("us"),
    instant=pa.timestamp("us", "UTC"),
    numbers=pa.list_(pa.int32()),
)
EXTREMES: list[dict[str, Any]] = [
    {"id": 1},
    {
        "id": -(2**63),
        "small": -(2**15),
        "huge": 2**64 - 1,
        "price": Decimal("-99999999.99"),
        "exact": Decimal("1234567890123456789012345678.0123456789"),
        "single": 0.10000000149011612,
        "double": -1.7976931348623157e308,
        "flag": False,
        "text": "",
        "bytes": b"\x00\xff\n",
        "day": date(1000, 1, 1),
        "clock": time(23, 59, 59, 999_999),
        "moment": datetime(9999, 12, 31, 23, 59, 59, 999_999),
        "instant": datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
        "numbers": [1, None, -3],
    },
    {
        "id": 7,
        "small": 1,
        "huge": 0,
        "price": Decimal("0.10"),
        "exact": Decimal("-0.0000000001"),
        "single": -0.5,
        "double": 0.1,
        "flag": True,
        "text": "ü\t\"',\\\n\\N",
        "bytes": b"",
        "day": date(2026, 2, 28),
        "clock": time(0, 0),
        "moment": datetime(1970, 1, 1),
        "instant": datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC),
        "numbers": [],
    },
]

MOMENTS = schema_of(
    "public.moments",
    id=pa.int64(),
    day=pa.date32(),
    moment=pa.timestamp("us"),
    instant=pa.timestamp("us", "UTC"),
)
INFINITE_US = 9_223_372_036_825_200_000, -9_223_372_036_832_400_000
FAR: list[dict[str, Any]] = [
    {"id": 1, "day": 2**31 - 1, "moment": INFINITE_US[0], "instant": INFINITE_US[0]},
    {"id": 2, "day": -(2**31), "moment": INFINITE_US[1], "instant": INFINITE_US[1]},
    {
        "id": 3,
        "day": -735_160,
        "moment": -63_517_824_000_000_001,
        "instant": -62_135_596_800_000_001,
    },
    {"id": 4, "day": 1_825_492_972, "moment": 6_249_223_180_800_000_001, "instant": 10**18},
    {"id": 5, "day": 0, "moment": 1, "instant": None},
]


async def read(
    sink: SqlSink, schema: TableSchema, topic: str = "shop.public.orders"
) -> tuple[dict[int, Mapping[str, Any]], AppliedOffsets]:
    async with sink.contents(schema, [topic]) as found:
        rows = [row async for batch in found.batches for row in batch.to_pylist()]
        return {row["id"]: row for row in rows}, found.offsets


async def filled(bench: SqlBench, **settings: Any) -> tuple[SqlSink, ScriptedTopic]:
    """Three rows, one of them changed, and one deleted."""
    topic, sink = ScriptedTopic(), bench.sink(**settings)
    await sink.committed_offsets([topic.name])
    steps: list[list[Change]] = [
        [("c", {"id": 1, "note": "a"}), ("c", {"id": 2, "note": "b"}), ("c", {"id": 3})],
        [("u", {"id": 1, "note": "new"}), ("d", {"id": 2})],
    ]
    for changes in steps:
        topic.append(ORDERS, *changes, committed_us=1_700_000_000_000_000 + len(changes))
        await sink.apply(topic.slice())
    return sink, topic


async def test_moments_of_all_times_come_back_where_the_database_has_them(bench: SqlBench) -> None:
    if bench.kind not in ("postgresql", "sqlite"):
        pytest.skip("this database has neither infinities nor these years, and refuses them")
    topic, sink = ScriptedTopic("shop.public.moments"), bench.sink()
    await sink.committed_offsets([topic.name])
    topic.append(MOMENTS, *(("c", row) for row in FAR))
    await sink.apply(topic.slice())

    async with sink.contents(MOMENTS, [topic.name]) as found:
        batches = [batch async for batch in found.batches]

    table = pa.Table.from_batches(batches).sort_by("id")
    numbers = {name: table[name].combine_chunks() for name in MOMENTS.names}
    assert numbers["day"].view(pa.int32()).to_pylist() == [row["day"] for row in FAR]
    for name in ("moment", "instant"):
        assert numbers[name].view(pa.int64()).to_pylist() == [row[name] for row in FAR]
    await sink.close()


async def test_every_type_comes_back_with_its_value(bench: SqlBench) -> None:
    topic, sink = ScriptedTopic("shop.public.wide"), bench.sink()
    await sink.committed_offsets([topic.name])
    topic.append(WIDE, *(("c", row) for row in EXTREMES))
    await sink.apply(topic.slice())

    rows, _ = await read(sink, WIDE, topic.name)

    assert rows == {row["id"]: {name: row.get(name) for name in WIDE.names} for row in EXTREMES}
    await sink.close()


@pytest.mark.parametrize("mode", ["mirror", "soft_delete", "append", "scd2"])
async def test_only_current_rows_are_read_in_every_mode(bench: SqlBench, mode: str) -> None:
    sink, topic = await filled(bench, tables={"*": {"mode": mode}})

    rows, offsets = await read(sink, ORDERS)

    current = {id: row["note"] for id, row in rows.items() if row.get(DELETED_AT) is None}
    assert current == {1: "new", 3: None}
    assert [applied.next_offset for applied in offsets.values()] == [topic.ends[0]]
    await sink.close()


async def test_a_table_that_keeps_deleted_rows_says_so(bench: SqlBench) -> None:
    sink, _ = await filled(bench, deletes="ignore")

    async with sink.contents(ORDERS, ["shop.public.orders"]) as found:
        assert found.deleted is DeletedRows.STAY
    await sink.close()


async def test_contents_without_a_table_are_empty_and_without_offsets(bench: SqlBench) -> None:
    sink = bench.sink()

    assert await read(sink, ORDERS) == ({}, {})
    await sink.close()


async def test_a_reader_that_leaves_in_the_middle_leaves_nothing_open(
    bench: SqlBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not closed here is closed whenever Python comes to it, from any thread."""
    monkeypatch.setattr(contents, "PAGE_ROWS", 1)
    sink, topic = await filled(bench)
    opened: list[contents.OpenedSqlTable] = []

    def seen(*given: Any) -> contents.OpenedSqlTable:
        opened.append(open_contents(*given))
        return opened[-1]

    open_contents = contents.open_contents
    monkeypatch.setattr(contents, "open_contents", seen)
    async with sink.contents(ORDERS, [topic.name]) as found:
        first = await anext(aiter(found.batches))
    topic.append(ORDERS, ("c", {"id": 9, "note": "late"}))
    await sink.apply(topic.slice())
    rows, _ = await read(sink, ORDERS)

    assert first.num_rows == 1
    assert rows.keys() == {1, 3, 9}
    assert {getgeneratorstate(each.pages) for each in opened} == {GEN_CLOSED}
    await sink.close()


async def test_rows_applied_meanwhile_are_not_read(bench: SqlBench) -> None:
    sink, topic = await filled(bench)
    beside = bench.sink()

    async with beside.contents(ORDERS, [topic.name]) as found:
        topic.append(ORDERS, ("c", {"id": 9, "note": "late"}))
        await sink.apply(topic.slice())
        rows = [row async for batch in found.batches for row in batch.to_pylist()]

    assert {row["id"] for row in rows} == {1, 3}
    assert {row["id"] for row in (await read(beside, ORDERS))[0].values()} == {1, 3, 9}
    await sink.close()
    await beside.close()


@pytest.mark.parametrize("is_deleted", [True, False])
async def test_a_value_of_a_former_type_is_null_in_a_deleted_row_and_damage_in_another(
    bench: SqlBench, is_deleted: bool
) -> None:
    """SQLite keeps values of any type in a column."""
    if bench.kind != "sqlite":
        pytest.skip("its columns have types")
    schema = schema_of("public.orders", id=pa.int64(), note=pa.list_(pa.int32()))
    topic, sink = ScriptedTopic(), bench.sink(deletes="soft")
    topic.append(schema, ("c", {"id": 1, "note": [1]}), ("c", {"id": 2, "note": [2]}))
    if is_deleted:
        topic.append(schema, ("d", {"id": 2}))
    await sink.apply(topic.slice())
    bench.execute("UPDATE orders SET note = 'sad' WHERE id = 2")

    async with sink.contents(schema, [topic.name]) as found:
        if is_deleted:
            [batch] = [each async for each in found.batches]
            assert batch.column("note").to_pylist() == [[1], None]
        else:
            with pytest.raises(SinkRejected, match="not of its type"):
                [each async for each in found.batches]
    await sink.close()


@pytest.mark.parametrize("deletes", ["soft", "hard"])
async def test_whole_numbers_come_back_from_a_column_that_was_made_for_decimals(
    bench: SqlBench, deletes: str
) -> None:
    """A deleted row may have a fraction, which is null."""
    if bench.kind == "sqlite":
        pytest.skip("its integers have one size, which no such decimal holds")
    topic, sink = ScriptedTopic(), bench.sink(deletes=deletes)
    decimals = schema_of("public.orders", id=pa.int64(), note=pa.decimal128(12, 2))
    topic.append(decimals, ("c", {"id": 1, "note": 7}), ("c", {"id": 2, "note": Decimal("1.25")}))
    await sink.apply(topic.slice())
    whole = schema_of("public.orders", id=pa.int64(), note=pa.int16())
    topic.append(whole, ("d", {"id": 2}), ("u", {"id": 1, "note": 29_524}), ("c", {"id": 3}))
    await sink.apply(topic.slice())

    rows, _ = await read(sink, whole, topic.name)
    await sink.close()

    found = {id: row["note"] for id, row in rows.items()}
    assert found == {1: 29_524, 3: None} | ({2: None} if deletes == "soft" else {})
