"""A copy of a table is made for what its columns are at the end; older values are put into it."""

import pyarrow as pa
import pytest

from core_log.errors import RecordsRejected, SchemaRefused
from sinks.sink import Recipe
from tests.contract.sink_suite import by_id
from tests.sinks.sql.databases import SqlBench
from tests.slices import ScriptedTopic, schema_of

TEXT = schema_of("public.orders", id=pa.int64(), v=pa.string())
MORE = schema_of("public.orders", id=pa.int64(), v=pa.string(), w=pa.int64())
NUMBER = schema_of("public.orders", id=pa.int64(), v=pa.int64(), w=pa.string())


async def test_a_copy_has_the_types_that_come_last_and_older_values_in_them(
    bench: SqlBench,
) -> None:
    topic = ScriptedTopic()
    topic.append(TEXT, ("c", {"id": 1, "v": "10"}), ("c", {"id": 2, "v": "word"}))
    sink = bench.sink()
    await sink.applied([topic.name])
    await sink.apply(topic.slice())
    topic.append(MORE, ("c", {"id": 3, "v": "30", "w": 3}))
    topic.append(NUMBER, ("c", {"id": 4, "v": 40, "w": "four"}))
    with pytest.raises(SchemaRefused, match="another one"):
        await sink.apply(topic.slice(start={0: 3}))

    shadow = await sink.shadow(Recipe(NUMBER.table, NUMBER))
    assert await shadow.applied([topic.name]) == {}
    with pytest.raises(RecordsRejected) as caught:
        await shadow.apply(topic.slice(start={0: 0}))
    await shadow.apply(topic.slice(start={0: 0}, without=[1]))
    await sink.swap(NUMBER.table)
    await sink.applied([topic.name])
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


async def test_a_copy_keeps_a_type_that_holds_the_last_one(bench: SqlBench) -> None:
    narrow = schema_of("public.orders", id=pa.int64(), v=pa.int32())
    wide = schema_of("public.orders", id=pa.int64(), v=pa.int64())
    topic = ScriptedTopic()
    topic.append(wide, ("c", {"id": 1, "v": 1 << 40}))
    topic.append(narrow, ("c", {"id": 2, "v": 2}))
    sink = bench.sink()
    await sink.applied([topic.name])
    await sink.apply(topic.slice())

    shadow = await sink.shadow(Recipe(narrow.table, narrow))
    await shadow.applied([topic.name])
    await shadow.apply(topic.slice(start={0: 0}))
    await sink.swap(narrow.table)

    assert [row["v"] for row in by_id(await bench.rows("public.orders"))] == [1 << 40, 2]
    for each in (shadow, sink):
        await each.close()
