"""A pipeline over a real broker into a lake: what Spark's executors read is counted, and when the
topic is another one the table says so and can be made anew."""

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.core_log.client import KafkaLog, KafkaSettings
from headwater.core_log.foundation.clock import SystemClock
from headwater.core_log.foundation.errors import PositionLost
from headwater.core_log.model.log import TopicPartition
from headwater.pipelines.file.loaded_parts import sink_elsewhere
from headwater.pipelines.file.loader import LoadedPipeline, load
from headwater.pipelines.loops.assembly import make_sink, run_task, split_reader_of
from headwater.pipelines.loops.deliver.slice_reader import SliceReader
from headwater.pipelines.reports import Report, RowsMoved
from headwater.pipelines.time_travel.rebuild.rebuild import RebuildOptions, find_rebuilding, rebuild
from headwater.pipelines.time_travel.rebuild.replay import Replay, replay
from headwater.pipelines.transforms.after_log import RowTransforms
from headwater.sinks.sink import Slice
from tests.pipelines.task_runs import task_run
from tests.served_log import ServedLog, offsets_of, served_log
from tests.sinks.spark.targets import LakeBench
from tests.slices import COMMITTED_US, changes_of, schema_of

pytestmark = [
    pytest.mark.slow,
    # PySpark leaves the sockets by which results come to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
TOPIC = "shop.public.orders"
SCHEMA = schema_of(id=pa.int64(), note=pa.string())
PIPELINE = """
pipeline: shop
source: {{type: generator}}
sink: {{type: spark, path: {path}, small_rows: 0, split_rows: 70, commit_every: 0s}}
log: {{type: kafka, bootstrap: "{bootstrap}", history: 1h}}
"""


@dataclass(slots=True)
class Shop:
    """A pipeline whose source is what the test writes."""

    served: ServedLog
    directory: Path
    reports: list[Report] = field(default_factory=list)

    @property
    def bench(self) -> LakeBench:
        return LakeBench(str(self.directory / "lake"))

    @property
    def loaded(self) -> LoadedPipeline:
        bootstrap = ",".join(self.served.log.bootstrap)
        path = self.directory / "pipeline.yaml"
        path.write_text(PIPELINE.format(path=self.directory / "lake", bootstrap=bootstrap))
        [loaded] = load(path, environment=os.environ)
        return loaded

    def write(self, letter: str, keys: range, note: str) -> None:
        changes: Any = [(letter, {"id": key, "note": note}) for key in keys]
        self.served.write([changes_of(SCHEMA, *changes, committed_us=COMMITTED_US)])

    @asynccontextmanager
    async def client(self) -> AsyncIterator[KafkaLog]:
        log = KafkaLog(KafkaSettings(bootstrap=list(self.served.log.bootstrap)))
        try:
            yield log
        finally:
            await log.close()

    async def deliver(self) -> None:
        async with self.client() as log:
            await run_task(task_run(self.loaded, "spark", log, report=self.reports.append))

    def notes(self) -> dict[int, str]:
        found = self.bench.table("public.orders")
        return {} if found is None else {each["id"]: each["note"] for each in found.to_pylist()}


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with served_log(tmp_path / "log") as served:
        yield Shop(served, tmp_path)


async def test_rows_read_by_executors_are_counted_as_every_sink_counts(shop: Shop) -> None:
    shop.write("c", range(200), "new")
    shop.write("d", range(0, 200, 4), "")

    await shop.deliver()

    by_spark = [each for each in shop.reports if isinstance(each, RowsMoved)]
    assert sum(each.rows for each in by_spark) == 200 + 50, "a tombstone is no change"
    assert {(each.table, each.committed_ms) for each in by_spark} == {
        ("public.orders", COMMITTED_US // 1_000)
    }
    assert sum(each.bytes for each in by_spark) > 250 * 50
    assert len(shop.notes()) == 150


async def test_a_replay_says_how_many_changes_executors_have_read(shop: Shop) -> None:
    shop.write("c", range(300), "new")
    loaded, told = shop.loaded, list[Replay]()
    part = sink_elsewhere(loaded.sinks[0], str(shop.directory / "copy"))
    sink = make_sink(loaded, part, clock=SystemClock())
    place = TopicPartition(TOPIC, 0)

    async with shop.client() as log:
        count = await replay(
            loaded, part, sink, log, start={place: 0}, end={place: 250}, clock=SystemClock(),
            reporter=told.append,
        )  # fmt: skip

    assert (count, told[-1]) == (250, Replay(250, 250, 250))


async def test_a_topic_made_anew_under_the_lake_stops_its_table_until_it_is_rebuilt(
    shop: Shop,
) -> None:
    shop.write("c", range(100), "of the first topic")
    await shop.deliver()
    first = shop.notes()
    shop.served.run(lambda: shop.served.log.topics.delete(TOPIC))
    shop.write("c", range(40), "of the second topic")

    with pytest.raises(PositionLost) as stopped:
        await shop.deliver()
    stood = shop.notes()
    async with shop.client() as log:
        rebuilt = await rebuild(
            await find_rebuilding(shop.loaded, log, table="public.orders", sink=None),
            log,
            RebuildOptions(swaps=True, verifies=True),
            is_running=False,
            clock=SystemClock(),
            reporter=lambda _: None,
        )
    shop.write("c", range(40, 50), "of the second topic")
    await shop.deliver()

    assert stood == first
    assert "headwater rebuild" in stopped.value.hint
    assert rebuilt.verdict is not None and rebuilt.verdict.is_equal
    assert shop.notes() == dict.fromkeys(range(50), "of the second topic")


async def test_a_topic_made_anew_while_executors_read_it_is_named_and_nothing_is_applied(
    shop: Shop,
) -> None:
    shop.write("c", range(100), "of the first topic")
    await shop.deliver()
    shop.write("c", range(100, 200), "too late")
    loaded = shop.loaded
    sink = make_sink(loaded, loaded.sinks[0], clock=SystemClock())
    start = await sink.committed_offsets([TOPIC])
    assert start is not None

    async with shop.client() as log:
        end = await offsets_of(log, TOPIC, at_end=True)
        split_reader = split_reader_of(loaded, log, skipped=dict)
        after_log = RowTransforms([], [])
        reader = SliceReader(log, after_log=after_log, fetch_bytes=1 << 20, skipped=dict)
        part = Slice(log, start, end, None, reader.read, split_reader=split_reader)
        shop.served.run(lambda: shop.served.log.topics.delete(TOPIC))
        shop.write("c", range(300, 500), "of the second topic")
        with pytest.raises(PositionLost, match="deleted and recreated") as lost:
            await sink.apply(part)

    assert lost.value.facts["topic"] == TOPIC
    assert set(shop.notes()) == set(range(100))
