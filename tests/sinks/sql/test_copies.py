"""A copy of a table is made for what its columns are at the end; older values are put into it."""

from dataclasses import replace
from datetime import UTC

import pyarrow as pa
import pytest

from headwater.core_log.foundation.errors import RecordsRejected, SchemaRefused
from headwater.core_log.model.table_schema import Column, TableSchema
from headwater.sinks.sink import DELETED_AT, CarryOver, RebuildRecipe
from tests.contract.sink_suite import by_id
from tests.sinks.deleted_rows import ALL, SECOND, swapped
from tests.sinks.sql.databases import SqlBench
from tests.slices import ScriptedTopic, schema_of

TEXT = schema_of("public.orders", id=pa.int64(), v=pa.string())
MORE = schema_of("public.orders", id=pa.int64(), v=pa.string(), w=pa.int64())
NUMBER = schema_of("public.orders", id=pa.int64(), v=pa.int64(), w=pa.string())
ORDERS = schema_of("public.orders", id=pa.int64(), line=pa.int64(), note=pa.string())


async def test_a_copy_has_the_types_that_come_last_and_older_values_in_them(
    bench: SqlBench,
) -> None:
    topic = ScriptedTopic()
    topic.append(TEXT, ("c", {"id": 1, "v": "10"}), ("c", {"id": 2, "v": "word"}))
    sink = bench.sink()
    await sink.committed_offsets([topic.name])
    await sink.apply(topic.slice())
    topic.append(MORE, ("c", {"id": 3, "v": "30", "w": 3}))
    topic.append(NUMBER, ("c", {"id": 4, "v": 40, "w": "four"}))
    with pytest.raises(SchemaRefused, match="another one"):
        await sink.apply(topic.slice(start={0: 3}))

    shadow = await sink.shadow(RebuildRecipe(NUMBER.table, NUMBER))
    assert await shadow.committed_offsets([topic.name]) == {}
    with pytest.raises(RecordsRejected) as caught:
        await shadow.apply(topic.slice(start={0: 0}))
    await shadow.apply(topic.slice(start={0: 0}, without=[1]))
    await sink.swap(NUMBER.table)
    await sink.committed_offsets([topic.name])
    topic.append(NUMBER, ("u", {"id": 1, "v": 11, "w": "one"}))
    await sink.apply(topic.slice())

    assert list(caught.value.reasons) == [1] and "column 'v'" in caught.value.reasons[1]
    assert by_id(await bench.rows("public.orders")) == [
        {"id": 1, "v": 11, "w": "one"},
        {"id": 3, "v": 30, "w": "3"},
        {"id": 4, "v": 40, "w": "four"},
    ]
    for each in (shadow, sink):
        await each.close()


async def test_a_copy_that_was_begun_for_another_form_and_has_no_rows_is_made_anew(
    bench: SqlBench,
) -> None:
    """MySQL and MariaDB commit DDL at once: the copy stays when its rows are rejected."""
    topic = ScriptedTopic()
    topic.append(TEXT, ("c", {"id": 1, "v": "word"}))
    sink = bench.sink()
    await sink.committed_offsets([topic.name])
    await sink.apply(topic.slice())
    numbers = schema_of("public.orders", id=pa.int64(), v=pa.int64())
    begun = await sink.shadow(RebuildRecipe(numbers.table, numbers))
    await begun.committed_offsets([topic.name])
    with pytest.raises(RecordsRejected):
        await begun.apply(topic.slice(start={0: 0}))
    await begun.close()

    shadow = await sink.shadow(RebuildRecipe(TEXT.table, TEXT))
    await shadow.committed_offsets([topic.name])
    await shadow.apply(topic.slice(start={0: 0}))
    await sink.swap(TEXT.table)

    assert await bench.rows("public.orders") == [{"id": 1, "v": "word"}]
    for each in (shadow, sink):
        await each.close()


async def test_a_copy_keeps_a_type_that_holds_the_last_one(bench: SqlBench) -> None:
    narrow = schema_of("public.orders", id=pa.int64(), v=pa.int32())
    wide = schema_of("public.orders", id=pa.int64(), v=pa.int64())
    topic = ScriptedTopic()
    topic.append(wide, ("c", {"id": 1, "v": 1 << 40}))
    topic.append(narrow, ("c", {"id": 2, "v": 2}))
    sink = bench.sink()
    await sink.committed_offsets([topic.name])
    await sink.apply(topic.slice())

    shadow = await sink.shadow(RebuildRecipe(narrow.table, narrow))
    await shadow.committed_offsets([topic.name])
    await shadow.apply(topic.slice(start={0: 0}))
    await sink.swap(narrow.table)

    assert [row["v"] for row in by_id(await bench.rows("public.orders"))] == [1 << 40, 2]
    for each in (shadow, sink):
        await each.close()


async def test_deleted_rows_that_the_log_no_longer_tells_of_go_over_to_the_copy(
    bench: SqlBench,
) -> None:
    sink = bench.sink(deletes="soft")

    await swapped(sink, ALL)

    assert ends(bench) == {
        1: ("last", 5),
        2: ("first 2", None),
        3: ("first 3", 9),
        4: ("first 4", 7),
    }
    await sink.close()


async def test_rows_that_were_deleted_later_do_not_go_over_to_a_copy_of_the_past(
    bench: SqlBench,
) -> None:
    sink = bench.sink(deletes="soft")

    await swapped(sink, CarryOver(("id",), until_us=6 * SECOND))

    assert ends(bench) == {1: ("last", 5), 2: ("first 2", None), 4: ("first 4", 7)}
    await sink.close()


async def test_rows_whose_deletes_are_ignored_go_over_to_the_copy(bench: SqlBench) -> None:
    sink = bench.sink(deletes="ignore")

    await swapped(sink, ALL)

    found = {row["id"]: row["note"] for row in await bench.rows("orders")}
    assert found == {1: "last", 2: "first 2", 3: "first 3", 4: "first 4"}
    await sink.close()


def ends(bench: SqlBench) -> dict[int, tuple[str, int | None]]:
    """By key the note, and the second of the delete."""
    return {
        row["id"]: (
            row["note"],
            row[DELETED_AT] and int(row[DELETED_AT].replace(tzinfo=UTC).timestamp()),
        )
        for row in bench.all_rows("orders")
    }


@pytest.mark.parametrize(
    ("column", "value"),
    [
        (Column("v", pa.list_(pa.int32())), [1, 2]),
        (Column("v", pa.string(), semantic="io.debezium.data.Json"), "[1, 2]"),
        (
            Column("v", pa.string(), semantic="io.debezium.data.Uuid"),
            "00000000-0000-4000-8000-000000000001",
        ),
    ],
    ids=["lists", "JSON", "UUIDs"],
)
async def test_text_of_deleted_rows_does_not_go_over_to_a_column_of(
    bench: SqlBench, column: Column, value: object
) -> None:
    text = schema_of("public.orders", id=pa.int64(), v=pa.string())
    lists = replace(text, columns=(text.column("id"), column))
    topic, sink = ScriptedTopic(), bench.sink(deletes="soft")
    topic.append(text, ("c", {"id": 1, "v": "no list"}), ("d", {"id": 1}))
    await sink.committed_offsets([topic.name])
    await sink.apply(topic.slice())
    first = topic.ends[0]
    topic.append(lists, ("c", {"id": 2, "v": value}))
    shadow = await sink.shadow(RebuildRecipe(lists.table, lists))
    await shadow.committed_offsets([topic.name])
    await shadow.apply(topic.slice(start={0: first}))

    await sink.swap(lists.table, CarryOver(("id",)))

    assert [row["id"] for row in by_id(bench.all_rows("orders"))] == [1, 2]
    for each in (shadow, sink):
        await each.close()


async def test_the_last_deleted_row_stays_if_several_have_one_key_by_now(
    bench: SqlBench,
) -> None:
    two = TableSchema(ORDERS.table, ORDERS.columns, ("id", "line"))
    one = TableSchema(ORDERS.table, ORDERS.columns, ("id",))
    topic, sink = ScriptedTopic(), bench.sink(deletes="soft")
    for line in (1, 2, 3):
        topic.append(
            two,
            ("c", {"id": 1, "line": line, "note": f"line {line}"}),
            ("d", {"id": 1, "line": line}),
            committed_us=line * SECOND,
        )
    await sink.committed_offsets([topic.name])
    await sink.apply(topic.slice())
    first = topic.ends[0]
    topic.append(one, ("c", {"id": 2, "line": 1, "note": "new"}))
    shadow = await sink.shadow(RebuildRecipe(one.table, one))
    await shadow.committed_offsets([topic.name])
    await shadow.apply(topic.slice(start={0: first}))

    await sink.swap(one.table, CarryOver(("id",)))

    found = {row["id"]: row["note"] for row in bench.all_rows("orders")}
    assert found == {1: "line 3", 2: "new"}
    for each in (shadow, sink):
        await each.close()
