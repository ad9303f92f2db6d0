"""A copy of a table in Delta has the types that come last, and older values in them."""

from pathlib import Path

import pyarrow as pa
import pytest

from headwater.core_log.foundation.errors import RecordsRejected, SchemaRefused
from headwater.sinks.sink import RebuildRecipe
from tests.contract.sink_suite import by_id
from tests.sinks.spark.orders import TABLE, applied, bench_of
from tests.slices import ScriptedTopic, schema_of

TEXT = schema_of("public.orders", id=pa.int64(), v=pa.string())
MORE = schema_of("public.orders", id=pa.int64(), v=pa.string(), w=pa.int64())
NUMBER = schema_of("public.orders", id=pa.int64(), v=pa.int64(), w=pa.string())


@pytest.mark.parametrize("together", [True, False], ids=["one slice", "a slice each"])
async def test_a_copy_has_the_types_that_come_last_and_older_values_in_them(
    together: bool, tmp_path: Path
) -> None:
    bench, topic = bench_of(tmp_path), ScriptedTopic()
    topic.append(TEXT, ("c", {"id": 1, "v": "10"}), ("c", {"id": 2, "v": "word"}))
    await applied(bench, topic)
    sink = bench.sink()
    shadow = await sink.shadow(RebuildRecipe(TABLE, NUMBER))
    assert await shadow.committed_offsets([topic.name]) == {}
    whole = topic.slice(start={0: 0}, without=[1])
    if not together:
        with pytest.raises(RecordsRejected) as caught:
            await shadow.apply(topic.slice(start={0: 0}))
        assert list(caught.value.reasons) == [1] and "column 'v'" in caught.value.reasons[1]
        await shadow.apply(whole)
    topic.append(MORE, ("c", {"id": 3, "v": "30", "w": 3}))
    topic.append(NUMBER, ("c", {"id": 4, "v": 40, "w": "four"}))
    with pytest.raises(SchemaRefused, match="another one"):
        await applied(bench, topic)

    rest = topic.slice(start={0: 0 if together else 3}, without=[1])
    await shadow.apply(rest)
    await sink.swap(TABLE)
    topic.append(NUMBER, ("u", {"id": 1, "v": 11, "w": "one"}))
    await applied(bench, topic)

    assert by_id(await bench.rows("public.orders")) == [
        {"id": 1, "v": 11, "w": "one"},
        {"id": 3, "v": 30, "w": "3"},
        {"id": 4, "v": 40, "w": "four"},
    ]
