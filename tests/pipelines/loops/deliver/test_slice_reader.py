"""A slice of several partitions is read side by side, about in the order of its writing, and its
rows are counted."""

from contextlib import aclosing
from pathlib import Path

import pyarrow as pa
import pytest

from headwater.pipelines.loops.deliver.slice_reader import SliceReader
from headwater.pipelines.transforms.after_log import RowTransforms
from headwater.sinks.sink import Slice
from tests.served_log import ServedLog, offsets_of, served_log
from tests.slices import changes_of, schema_of

pytestmark = pytest.mark.slow

SCHEMA = schema_of(id=pa.int64())
TOPIC = "shop.public.orders"
TRANSACTIONS, ROWS = 30, 20


def test_partitions_of_a_topic_are_read_side_by_side(tmp_path: Path) -> None:
    with served_log(tmp_path) as served:
        keys = [range(first * ROWS, (first + 1) * ROWS) for first in range(TRANSACTIONS)]
        rows = [changes_of(SCHEMA, *(("c", {"id": key}) for key in some)) for some in keys]
        served.write(*([each] for each in rows), partitions=3)

        found = served.run(lambda: ids_of(served))

    assert sorted(found) == [*range(TRANSACTIONS * ROWS)]
    newest = 0
    for key in found:
        newest = max(newest, key)
        assert key > newest - 8 * ROWS, "no partition is far behind the others"


def test_rows_that_a_sink_reads_again_are_counted_once(tmp_path: Path) -> None:
    with served_log(tmp_path) as served:
        keys = [range(first * ROWS, (first + 1) * ROWS) for first in range(TRANSACTIONS)]
        rows = [changes_of(SCHEMA, *(("c", {"id": key}) for key in some)) for some in keys]
        served.write(*([each] for each in rows), partitions=3)

        counted = served.run(lambda: counted_again(served))

    assert counted == TRANSACTIONS * ROWS


async def counted_again(served: ServedLog) -> int:
    """The first attempt breaks off in the middle."""
    reader = SliceReader(served.log, after_log=RowTransforms([], []), fetch_bytes=1, skipped=dict)
    start = await offsets_of(served.log, TOPIC, at_end=False)
    end = await offsets_of(served.log, TOPIC, at_end=True)
    part = Slice(log=served.log, start=start, end=end, cut=None, read=reader.read)
    reader.begin_counts()
    async with aclosing(reader.read(part)) as changes:
        for _ in range(5):
            await anext(changes)
    assert reader.counts, "rows were counted"
    async with aclosing(reader.read(part)) as changes:
        async for _ in changes:
            pass
    return sum(each.rows for each in reader.counts.values())


async def ids_of(served: ServedLog) -> list[int]:
    """As they come, a batch per fetch."""
    reader = SliceReader(served.log, after_log=RowTransforms([], []), fetch_bytes=1, skipped=dict)
    start = await offsets_of(served.log, TOPIC, at_end=False)
    end = await offsets_of(served.log, TOPIC, at_end=True)
    part = Slice(log=served.log, start=start, end=end, cut=None, read=reader.read)
    return [
        key async for changes in part.changes() for key in changes.rows.column("id").to_pylist()
    ]
