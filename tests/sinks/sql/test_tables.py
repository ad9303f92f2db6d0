"""Tables are made, changed and swapped only as the policy allows, and never somebody else's."""

from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa

from headwater.core_log.foundation.errors import (
    RecordsRejected,
    SchemaRefused,
    SinkRejected,
    SinkUnavailable,
)
from headwater.core_log.model.table_schema import Column, TableId, TableSchema
from headwater.sinks.sink import RebuildRecipe
from tests.contract.sink_suite import AUDIT, ORDERS, by_id
from tests.databases import sql_mode
from tests.sinks.sql.databases import SqlBench
from tests.slices import ScriptedTopic, schema_of, together

STRANGE = 'we"ird; DROP TABLE canary; -- 100% `ü'
LONG = "ä" * 40 + "x" * 40


async def apply(sink: Any, topic: ScriptedTopic) -> None:
    await sink.committed_offsets([topic.name])
    await sink.apply(topic.slice())


async def test_every_type_comes_back_as_it_went_in(bench: SqlBench) -> None:
    values: dict[str, tuple[pa.DataType, Any]] = {
        "id": (pa.int64(), -(2**63)),
        "small": (pa.int16(), -7),
        "byte": (pa.uint8(), 255),
        "large": (pa.uint64(), 2**64 - 1),
        "yes": (pa.bool_(), True),
        "price": (pa.decimal128(10, 2), Decimal("12.30")),
        "exact": (pa.decimal128(30, 10), Decimal("0.0000000001")),
        "ratio": (pa.float64(), 0.1),
        "word": (pa.string(), "a\tb\\n\n\r'\"é\U0001f600 %s"),
        "raw": (pa.binary(), bytes(range(256))),
        "day": (pa.date32(), date(2026, 2, 28)),
        "at": (pa.timestamp("us"), datetime(1, 1, 1, 0, 0, 0, 1)),
        "since": (pa.timestamp("us", "UTC"), datetime(2026, 3, 29, 1, 30, 0, 5, UTC)),
        "clock": (pa.time64("us"), time(23, 59, 59, 999_999)),
        "list_": (pa.list_(pa.int32()), [1, None]),
    }
    schema = schema_of("public.orders", **{name: kind for name, (kind, _) in values.items()})
    topic = ScriptedTopic()
    row = {name: value for name, (_, value) in values.items()}
    topic.append(schema, ("c", row), ("c", {"id": 2}))
    sink = bench.sink()
    await apply(sink, topic)
    await sink.close()

    low, high = sorted(await bench.rows("public.orders"), key=lambda each: int(each["id"]))
    assert high == dict.fromkeys(values) | {"id": 2}
    assert float(low.pop("ratio")) == 0.1
    assert int(low.pop("large")) == 2**64 - 1
    assert Decimal(low.pop("exact")) == Decimal("0.0000000001")
    since = low.pop("since")
    assert (since if since.tzinfo else since.replace(tzinfo=UTC)) == row["since"]
    assert low.pop("list_") in ("[1,null]", [1, None])
    assert low == {name: row[name] for name in low}


async def test_names_of_any_letters_and_length_are_quoted(bench: SqlBench) -> None:
    if bench.kind != "sqlite":
        bench.execute("CREATE TABLE canary (id INTEGER)")
    schema = TableSchema(
        TableId(STRANGE, LONG + STRANGE),
        (Column(STRANGE, pa.string(), False), Column(LONG + "1", pa.int64()),
         Column(LONG + "2", pa.int64())),
        (STRANGE,),
    )  # fmt: skip
    topic = ScriptedTopic()
    sink = bench.sink()
    topic.append(schema, ("c", {STRANGE: STRANGE, LONG + "1": 1, LONG + "2": 2}))
    topic.append(schema, ("u", {STRANGE: STRANGE, LONG + "1": 3, LONG + "2": 4}))
    topic.append(schema, ("c", {STRANGE: "b"}), ("d", {STRANGE: "b"}))
    await apply(sink, topic)
    wider = TableSchema(schema.table, (*schema.columns, Column("%(x)s", pa.int8())), schema.key)
    topic.append(wider, ("u", {STRANGE: STRANGE, LONG + "1": 5, LONG + "2": 6, "%(x)s": 7}))
    await sink.apply(topic.slice())
    await sink.close()

    names = set(sa.inspect(bench.engine).get_table_names()) - {"canary", "_headwater_offsets"}
    (name,) = names
    with bench.engine.connect() as connection:
        (row,) = connection.exec_driver_sql(f"SELECT * FROM {bench.quote(name)}").fetchall()
    assert sorted(map(str, row)) == sorted(map(str, (STRANGE, 5, 6, 7)))
    assert len(name.encode()) <= 63 or bench.kind != "postgresql"


@pytest.mark.parametrize("bench", ["mariadb"], indirect=True)
async def test_a_server_with_other_quotes_and_literals_is_written_all_the_same(
    bench: SqlBench,
) -> None:
    row, topic = {"id": 1, "Note": 'a "word" \\ and \'another'}, ScriptedTopic()
    topic.append(schema_of("public.orders", id=pa.int64(), Note=pa.string()), ("c", row))
    with sql_mode(bench.url, "ANSI,PAD_CHAR_TO_FULL_LENGTH"):
        sink = bench.sink()
        await apply(sink, topic)
        await sink.close()

    assert await bench.rows("orders") == [row]


async def test_two_columns_that_would_be_one_are_refused(bench: SqlBench) -> None:
    if bench.kind == "postgresql":
        pytest.skip("here the case of letters tells columns apart")
    topic = ScriptedTopic()
    topic.append(
        schema_of("a.t", id=pa.int64(), Note=pa.string(), note=pa.string()), ("c", {"id": 1})
    )
    sink = bench.sink()

    with pytest.raises(SchemaRefused) as caught:
        await apply(sink, topic)

    assert caught.value.facts["table"] == "a.t"
    await sink.close()


async def test_two_tables_that_would_be_one_are_refused_until_the_template_tells_them_apart(
    bench: SqlBench,
) -> None:
    topics = [ScriptedTopic(f"shop.{name}.t", name) for name in "ab"]
    for topic in topics:
        schema = schema_of(f"{topic.topic_id}.t", id=pa.int64())
        topic.append(schema, ("c", {"id": 1}))
    parts = [topic.slice() for topic in topics]
    sink = bench.sink()
    await sink.committed_offsets([])
    with pytest.raises(SinkRejected, match="the same target table"):
        await sink.apply(together(*parts))
    await sink.close()

    better = bench.sink(table="{schema}_{table}")
    await better.apply(together(*parts))
    await better.close()

    assert bench.all_rows("a_t") == bench.all_rows("b_t") == [{"id": 1}]


async def test_a_table_of_somebody_else_is_left_alone(bench: SqlBench) -> None:
    bench.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)", "INSERT INTO orders VALUES (7)")
    topic = ScriptedTopic()
    topic.append(ORDERS, ("c", {"id": 1, "note": "a"}))
    sink = bench.sink()

    with pytest.raises(SinkRejected, match="no pipeline made it") as caught:
        await apply(sink, topic)
    await sink.close()

    assert caught.value.facts["table"] == "public.orders"
    assert bench.all_rows("orders") == [{"id": 7}]


async def test_a_second_pipeline_on_a_table_is_an_error(bench: SqlBench) -> None:
    topic = ScriptedTopic()
    topic.append(ORDERS, ("c", {"id": 1, "note": "a"}))
    part = topic.slice()
    first, second = bench.sink(), bench.sink(pipeline="other")
    await first.apply(part)

    with pytest.raises(SinkRejected, match="another pipeline") as caught:
        await second.apply(part)

    assert caught.value.facts["owner"] == "shop/sql"
    assert await second.committed_offsets([topic.name]) == {}
    await first.close()
    await second.close()


async def test_schemas_change_in_the_order_of_the_data(bench: SqlBench) -> None:
    first = schema_of("public.orders", id=pa.int64(), note=pa.string(), size=pa.int32())
    wider = schema_of("public.orders", id=pa.int64(), note=pa.string(), size=pa.int64())
    fewer = schema_of("public.orders", id=pa.int64(), size=pa.int64())
    again = schema_of("public.orders", id=pa.int64(), size=pa.int64(), note=pa.string())
    topic = ScriptedTopic()
    topic.append(first, ("c", {"id": 1, "note": "a", "size": 1}))
    topic.append(wider, ("c", {"id": 2, "note": "b", "size": 2**40}))
    sink = bench.sink()
    await apply(sink, topic)
    topic.append(fewer, ("c", {"id": 3, "size": 3}))
    await sink.apply(topic.slice())
    without = await bench.rows("public.orders")
    topic.append(again, ("c", {"id": 4, "size": 4, "note": "d"}))
    await sink.apply(topic.slice())
    await sink.close()

    assert by_id(without) == [{"id": 1, "size": 1}, {"id": 2, "size": 2**40}, {"id": 3, "size": 3}]
    assert [row["note"] for row in by_id(await bench.rows("public.orders"))] == [None] * 3 + ["d"]


async def test_a_dropped_column_under_lenient_stays_and_is_null_from_then_on(
    bench: SqlBench,
) -> None:
    topic = ScriptedTopic()
    topic.append(ORDERS, ("c", {"id": 1, "note": "a"}), ("c", {"id": 2, "note": "b"}))
    topic.append(schema_of("public.orders", id=pa.int64()), ("u", {"id": 2}))
    sink = bench.sink(schema_changes={"drop_column": "lenient"})
    await apply(sink, topic)
    await sink.close()

    assert by_id(await bench.rows("public.orders")) == [
        {"id": 1, "note": "a"},
        {"id": 2, "note": None},
    ]


async def test_a_type_that_does_not_fit_the_old_one_stops_the_table(bench: SqlBench) -> None:
    topic = ScriptedTopic()
    topic.append(schema_of("public.orders", id=pa.int64(), note=pa.int32()), ("c", {"id": 1}))
    sink = bench.sink()
    await apply(sink, topic)
    topic.append(ORDERS, ("c", {"id": 2, "note": "word"}))

    with pytest.raises(SchemaRefused, match="another one") as caught:
        await sink.apply(topic.slice())

    assert caught.value.facts["table"] == "public.orders"
    assert [row["id"] for row in await bench.rows("public.orders")] == [1]
    await sink.close()


@pytest.mark.parametrize(
    ("old", "new", "values"),
    [
        (
            pa.decimal128(10, 2),
            pa.decimal128(12, 4),
            (Decimal("1.25"), Decimal("2.50"), Decimal("1.2399")),
        ),
        (
            pa.date32(),
            pa.timestamp("us"),
            (date(2026, 1, 1), datetime(2026, 1, 2), datetime(2026, 1, 2, 12)),
        ),
    ],
    ids=["decimals", "days"],
)
async def test_a_value_that_would_be_another_in_a_type_that_stays_is_rejected(
    bench: SqlBench, old: pa.DataType, new: pa.DataType, values: tuple[Any, ...]
) -> None:
    first, same, other = values
    narrow = schema_of("public.orders", id=pa.int64(), v=old)
    wide = schema_of("public.orders", id=pa.int64(), v=new)
    topic = ScriptedTopic()
    topic.append(narrow, ("c", {"id": 1, "v": first}), ("c", {"id": 2, "v": first}))
    sink = bench.sink(schema_changes={"widen_type": "ignore", "change_type": "ignore"})
    await apply(sink, topic)

    topic.append(wide, ("u", {"id": 1, "v": same}), ("u", {"id": 2, "v": other}))
    with pytest.raises(RecordsRejected) as caught:
        await sink.apply(topic.slice())
    await sink.close()

    [(offset, why)] = caught.value.reasons.items()
    assert offset == 4 and "column 'v' does not fit" in why
    assert [row["v"] for row in await bench.rows("public.orders")] == [first, first]


async def test_a_row_goes_though_its_last_value_has_no_place_in_a_type_that_stays(
    bench: SqlBench,
) -> None:
    narrow = schema_of("public.orders", id=pa.int64(), v=pa.decimal128(10, 2))
    wide = schema_of("public.orders", id=pa.int64(), v=pa.decimal128(12, 4))
    topic = ScriptedTopic()
    topic.append(narrow, ("c", {"id": 1, "v": Decimal("1.25")}))
    topic.append(wide, ("c", {"id": 2, "v": Decimal("2.5000")}))
    topic.append(wide, ("d", {"id": 1, "v": Decimal("1.2399")}))
    sink = bench.sink(schema_changes={"widen_type": "ignore"})
    await apply(sink, topic)
    await sink.close()

    assert by_id(await bench.rows("public.orders")) == [{"id": 2, "v": Decimal("2.50")}]


@pytest.mark.parametrize("mode", ["mirror", "soft_delete", "append", "scd2"])
async def test_decimals_keep_every_digit_when_their_columns_become_wider(
    bench: SqlBench, mode: str
) -> None:
    old = {"a": pa.decimal128(15, 2), "b": pa.decimal128(15, 0), "c": pa.decimal128(15, 15)}
    new = {"a": pa.decimal128(20, 4), "b": pa.decimal128(38, 1), "c": pa.decimal128(25, 15)}
    values = {
        "a": ["9999999999999.99", "-0.01", "0.00"],
        "b": ["999999999999999", "-1", "0"],
        "c": ["0.999999999999999", "-0.000000000000001", "0.1"],
    }
    rows = [
        {"id": at} | {name: Decimal(given[at]) for name, given in values.items()} for at in range(3)
    ]
    topic = ScriptedTopic()
    topic.append(schema_of("t", id=pa.int64(), **old), *(("c", row) for row in rows))
    sink = bench.sink(tables={"*": {"mode": mode}})
    await apply(sink, topic)
    topic.append(schema_of("t", id=pa.int64(), **new, d=pa.int8()), ("c", {"id": 3, "d": 4}))
    await sink.apply(topic.slice())
    await sink.close()

    found = [
        {name: row[name] if name in ("id", "d") else Decimal(row[name]) for name in row}
        for row in by_id(await bench.rows("t"))
        if row["id"] < 3
    ]
    assert found == [row | {"d": None} for row in rows]
    if bench.kind == "sqlite":  # as texts that are written from now on
        texts = [row["a"] for row in by_id(await bench.rows("t"))]
        assert texts[:3] == ["9999999999999.9900", "-0.0100", "0.0000"]


async def test_a_wider_decimal_stays_narrow_or_stops_its_table_as_the_policy_says(
    bench: SqlBench,
) -> None:
    narrow = schema_of("public.orders", id=pa.int64(), v=pa.decimal128(10, 2))
    wide = schema_of("public.orders", id=pa.int64(), v=pa.decimal128(20, 4))
    topic = ScriptedTopic()
    topic.append(narrow, ("c", {"id": 1, "v": Decimal("1.25")}))
    sink = bench.sink(schema_changes={"widen_type": "ignore", "change_type": "fail"})
    await apply(sink, topic)
    topic.append(wide, ("c", {"id": 2, "v": Decimal("2.5000")}))
    await sink.apply(topic.slice())
    await sink.close()
    topic.append(wide, ("c", {"id": 3, "v": Decimal("3.5000")}))
    refusing = bench.sink(schema_changes={"widen_type": "fail", "change_type": "evolve"})
    await refusing.committed_offsets([topic.name])

    with pytest.raises(SchemaRefused, match="become wider"):
        await refusing.apply(topic.slice())
    await refusing.close()

    found = by_id(await bench.rows("public.orders"))
    assert [row["v"] for row in found] == [Decimal("1.25"), Decimal("2.50")]


async def test_a_table_that_was_dropped_is_filled_anew(bench: SqlBench) -> None:
    topic = ScriptedTopic()
    topic.append(ORDERS, ("c", {"id": 1, "note": "a"}))
    sink = bench.sink()
    await apply(sink, topic)
    bench.execute("DROP TABLE orders")
    topic.append(ORDERS, ("c", {"id": 2, "note": "b"}))

    with pytest.raises(SinkUnavailable):
        await sink.apply(topic.slice())
    stood = await sink.committed_offsets([topic.name])
    await sink.apply(topic.slice(start={0: 0}))

    assert stood == {}
    assert [row["id"] for row in by_id(await bench.rows("public.orders"))] == [1, 2]
    await sink.close()


async def test_a_rebuilt_copy_takes_the_tables_place_with_its_offsets(bench: SqlBench) -> None:
    topic = ScriptedTopic()
    topic.append(ORDERS, ("c", {"id": 1, "note": "a"}))
    sink = bench.sink()
    await apply(sink, topic)
    bench.execute("UPDATE orders SET note = 'wrong'")
    topic.append(ORDERS, ("c", {"id": 2, "note": "b"}))

    for _ in range(2):  # a second rebuild finds the traces of the first
        shadow = await sink.shadow(RebuildRecipe(ORDERS.table))
        assert await shadow.committed_offsets([topic.name]) == {}
        await shadow.apply(topic.slice(start={0: 0}))
        await shadow.close()
        before = await bench.rows("public.orders")
        old = await sink.swap(ORDERS.table)
    stood = await sink.committed_offsets([topic.name])
    topic.append(ORDERS, ("u", {"id": 1, "note": "later"}))
    await sink.apply(topic.slice())

    assert "__headwater_old" in old and before != [{"id": 1, "note": "wrong"}]
    assert stood is not None and [applied.next_offset for applied in stood.values()] == [4]
    assert by_id(await bench.rows("public.orders")) == [
        {"id": 1, "note": "later"},
        {"id": 2, "note": "b"},
    ]
    assert by_id(bench.all_rows("orders__headwater_old"))
    said = await sink.drop()
    assert {"table orders", "table orders__headwater_old"} <= set(said)
    await sink.close()


async def test_a_live_sink_goes_on_after_a_swap_by_another_process(bench: SqlBench) -> None:
    topic = ScriptedTopic()
    topic.append(ORDERS, ("c", {"id": 1, "note": "a"}))
    live, other = bench.sink(), bench.sink()
    await apply(live, topic)
    shadow = await other.shadow(RebuildRecipe(ORDERS.table))
    await shadow.apply(topic.slice(start={0: 0}))
    await other.swap(ORDERS.table)

    topic.append(ORDERS, ("c", {"id": 2, "note": "b"}))
    await live.apply(topic.slice())

    assert [row["id"] for row in by_id(await bench.rows("public.orders"))] == [1, 2]
    for each in (live, other, shadow):
        await each.close()


async def test_a_plan_says_what_is_missing_and_makes_nothing(bench: SqlBench) -> None:
    sink = bench.sink()
    planned = await sink.plan([ORDERS, AUDIT])
    topic = ScriptedTopic()
    topic.append(ORDERS, ("c", {"id": 1, "note": "a"}))
    await sink.apply(topic.slice())
    wider = schema_of("public.orders", id=pa.int64(), note=pa.string(), total=pa.float64())

    later = await sink.plan([wider])
    nothing = await sink.plan([ORDERS])
    await sink.close()

    assert any("CREATE TABLE" in each and "orders" in each for each in planned)
    assert any("has no key" in each for each in planned)
    assert len(later) == 1 and "ADD COLUMN" in later[0] and "total" in later[0]
    assert nothing == []


async def test_types_can_be_overridden(bench: SqlBench) -> None:
    topic = ScriptedTopic()
    topic.append(ORDERS, ("c", {"id": 1, "note": "a"}))
    sink = bench.sink(tables={"*": {"types": {"note": "VARCHAR(3)"}}})
    await apply(sink, topic)
    topic.append(ORDERS, ("c", {"id": 2, "note": "b"}))
    await sink.apply(topic.slice())
    await sink.close()

    columns = {each["name"]: each for each in sa.inspect(bench.engine).get_columns("orders")}
    assert str(columns["note"]["type"]).startswith("VARCHAR(3)")
