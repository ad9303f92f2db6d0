"""What Spark makes of a large slice is what this process would have made of it."""

import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from headwater.core_log.client import KafkaLog, KafkaSettings
from headwater.core_log.foundation.errors import RecordsRejected
from headwater.core_log.model.table_schema import TableSchema
from headwater.pipelines.loops.deliver.slice_reader import SliceReader
from headwater.pipelines.loops.deliver.split_reader import LogSplitReader
from headwater.sinks.sink import AppliedOffsets, RebuildRecipe, Slice
from headwater.sinks.spark.driver_plan import SparkWork
from headwater.sinks.spark.key_ranges import KeyRange
from headwater.sinks.spark.lake import Lake
from headwater.sinks.spark.layout import shape
from tests.served_log import ServedLog, served_log
from tests.sinks.spark.targets import LakeBench
from tests.slices import COMMITTED_US, Change, changes_of, schema_of

pytestmark = [
    pytest.mark.slow,
    # PySpark leaves the sockets by which results come to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
MOMENTS = schema_of("public.moments", id=pa.int64(), at=pa.timestamp("s"))
ALL_KEYS = KeyRange(None, None, ())
ALL_BY_SPARK = {"small_rows": 0, "split_rows": 400, "tables": {"*": {"file_rows": 70}}}


@dataclass(frozen=True, slots=True)
class Orders:
    """A table of one test alone: what the others write cannot be seen in it."""

    served: ServedLog
    name: str

    @property
    def table(self) -> str:
        return f"public.{self.name}"

    @property
    def topic(self) -> str:
        return f"shop.public.{self.name}"

    @property
    def schema(self) -> TableSchema:
        return schema_of(self.table, id=pa.int64(), note=pa.string())

    @property
    def wider(self) -> TableSchema:
        return schema_of(self.table, id=pa.int64(), note=pa.string(), total=pa.int32())

    def write(
        self,
        *changes: Change,
        schema: TableSchema | None = None,
        committed_us: int = COMMITTED_US,
    ) -> None:
        made = changes_of(schema or self.schema, *changes, committed_us=committed_us)
        self.served.write([made], partitions=2)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedLog]:
    with served_log(tmp_path_factory.mktemp("log")) as served:
        yield served


@pytest.fixture
def orders(served: ServedLog, request: pytest.FixtureRequest) -> Orders:
    found = Orders(served, f"orders_{zlib.crc32(request.node.name.encode())}")
    found.write(*[("c", row(key, "new")) for key in range(300)])
    found.write(*[("u", row(key, "changed")) for key in range(0, 300, 7)])
    found.write(*[("d", {"id": key}) for key in range(0, 300, 5)])
    return found


def row(key: int, note: str) -> dict[str, Any]:
    return {"id": key, "note": note}


def expected() -> dict[int, str]:
    return {key: "changed" if key % 7 == 0 else "new" for key in range(300) if key % 5}


@asynccontextmanager
async def slices(
    served: ServedLog, start: AppliedOffsets | None, topic: str
) -> AsyncIterator[Slice]:
    """From there to the end, read over the network."""
    settings = KafkaSettings(bootstrap=list(served.log.bootstrap))
    log = KafkaLog(settings)
    after_log: Any = AsItIs()
    reader = SliceReader(log, after_log=after_log, fetch_bytes=1 << 20, skipped=dict)
    split_reader = LogSplitReader(
        settings=settings,
        rules=(),
        routes=(),
        directory=Path(),
        fetch_bytes=1 << 20,
        skipped=dict,
    )
    end = served.offsets(topic, at_end=True)
    begin = served.offsets(topic, at_end=False) if start is None else start
    try:
        yield Slice(
            log=log,
            start=begin,
            end=end,
            cut=None,
            read=reader.read,
            truncated=frozenset({topic}),
            split_reader=split_reader,
        )
    finally:
        await log.close()


class AsItIs:
    is_sql = filters = False

    def prepare(self) -> None:
        pass

    def apply(self, changes: Any, *, may_have_gaps: bool) -> list[Any]:
        return [changes]


async def applied(
    bench: LakeBench, served: ServedLog, topic: str, start: AppliedOffsets | None = None
) -> AppliedOffsets:
    sink = bench.sink()
    await sink.committed_offsets([topic])
    async with slices(served, start, topic) as part:
        await sink.apply(part)
    return part.end


def notes(bench: LakeBench, orders: Orders) -> dict[int, Any]:
    found = bench.table(orders.table)
    assert found is not None
    rows = found.to_pylist()
    assert len({each["id"] for each in rows}) == len(rows)
    return {each["id"]: each["note"] for each in rows}


async def test_the_table_is_the_same_first_and_after_an_increment(
    served: ServedLog, orders: Orders, tmp_path: Path
) -> None:
    by_spark = LakeBench(str(tmp_path / "spark"), chosen=ALL_BY_SPARK)
    here = LakeBench(str(tmp_path / "here"), chosen={"tables": {"*": {"file_rows": 70}}})
    reached = await applied(by_spark, served, orders.topic)
    first = notes(by_spark, orders)
    more: list[Change] = [("u", row(key, "later")) for key in range(0, 300, 3)]
    orders.write(*more)

    await applied(by_spark, served, orders.topic, reached)
    await applied(here, served, orders.topic)

    assert first == expected()
    assert (
        notes(by_spark, orders)
        == notes(here, orders)
        == expected() | dict.fromkeys(range(0, 300, 3), "later")
    )
    sink = by_spark.sink()
    state = Lake(sink._settings, sink._context).table(orders.schema.table).load()
    assert state is not None and len(state.files) > 2


@pytest.mark.parametrize("mode", ["mirror", "soft_delete", "scd2", "append"])
async def test_truncates_leave_what_they_leave_in_this_process(
    served: ServedLog, orders: Orders, tmp_path: Path, mode: str
) -> None:
    tables = {"*": {"file_rows": 70, "mode": mode}}
    by_spark = LakeBench(str(tmp_path / "spark"), chosen={**ALL_BY_SPARK, "tables": tables})
    here = LakeBench(str(tmp_path / "here"), chosen={"tables": tables})
    for bench in (by_spark, here):
        reached = await applied(bench, served, orders.topic)
    hour_us = 3_600_000_000
    for hour, keys in enumerate([range(5), range(3, 9), range(200, 400), range(250, 300)], 1):
        at = COMMITTED_US + hour * hour_us
        orders.write(*[("u", row(key, f"after {hour}")) for key in keys], committed_us=at)
        orders.write(("d", {"id": keys[0]}), committed_us=at + 1)
        if hour in (2, 3):
            orders.write(("t", {}), committed_us=at + 2)

    for bench in (by_spark, here):
        await applied(bench, served, orders.topic, reached)

    assert all_rows(by_spark, orders) == all_rows(here, orders)
    if mode == "mirror":
        assert notes(by_spark, orders) == dict.fromkeys(range(251, 300), "after 4")


def all_rows(bench: LakeBench, orders: Orders) -> list[str]:
    """With the columns that are ours."""
    found = bench.table(orders.table)
    assert found is not None
    return sorted(str(each) for each in found.to_pylist())


async def test_a_table_that_changes_its_shape_in_the_midst_gets_both(
    served: ServedLog, orders: Orders, tmp_path: Path
) -> None:
    bench = LakeBench(str(tmp_path / "lake"), chosen=ALL_BY_SPARK)
    orders.write(("c", {"id": 1000, "note": "wide", "total": 5}), schema=orders.wider)

    await applied(bench, served, orders.topic)

    found = bench.table(orders.table)
    assert found is not None
    totals = {each["id"]: each["total"] for each in found.to_pylist()}
    assert totals[1000] == 5 and totals[1] is None


async def test_a_small_slice_that_rewrites_much_is_given_to_executors(
    served: ServedLog, orders: Orders, tmp_path: Path
) -> None:
    here = {"tables": {"*": {"file_rows": 70}}}
    bench = LakeBench(str(tmp_path / "lake"), chosen=here)
    start = served.offsets(orders.topic, at_end=True)
    await applied(bench, served, orders.topic)
    orders.write(("u", row(1, "once")), ("u", row(299, "more")))
    bench.chosen = {**here, "rewritten_rows": 0}

    await applied(bench, served, orders.topic, start)

    found = notes(bench, orders)
    assert (found[1], found[299]) == ("once", "more")


async def test_every_change_is_appended_once(
    served: ServedLog, orders: Orders, tmp_path: Path
) -> None:
    chosen = {**ALL_BY_SPARK, "tables": {"*": {"mode": "append"}}}
    bench = LakeBench(str(tmp_path / "lake"), chosen=chosen)

    await applied(bench, served, orders.topic)

    found = bench.table(orders.table)
    assert found is not None
    places = {
        (each["_headwater_partition"], each["_headwater_offset"]) for each in found.to_pylist()
    }
    assert len(places) == found.num_rows == 300 + 43 + 60
    assert set(found["_headwater_op"].to_pylist()) == {"c", "u", "d"}


async def test_a_record_that_does_not_fit_is_named(served: ServedLog, tmp_path: Path) -> None:
    bench = LakeBench(str(tmp_path / "lake"), chosen=ALL_BY_SPARK)
    far: list[Change] = [("c", {"id": key, "at": 10**15 if key == 5 else key}) for key in range(9)]
    served.write([changes_of(MOMENTS, *far, committed_us=COMMITTED_US)])

    with pytest.raises(RecordsRejected) as caught:
        await applied(bench, served, "shop.public.moments")

    assert len(caught.value.reasons) == 1


def test_rows_pass_spark_as_whole_batches(
    served: ServedLog, orders: Orders, tmp_path: Path
) -> None:
    """Spark neither sorts them nor takes them apart, and shuffles them once."""
    sink = LakeBench(str(tmp_path / "lake")).sink()
    start = served.offsets(orders.topic, at_end=False)
    end = served.offsets(orders.topic, at_end=True)
    bounds = served.run(lambda: served.log.bounds(end))
    session, reader = sink._work_split._session, cast(Any, NoReader())
    work = SparkWork(
        session, reader, orders.schema, start=start, end=end, bounds=bounds, split_rows=10
    )
    layout, _ = shape(
        orders.schema, sink._settings.of(orders.table), None, policy={}, may_drop=True
    )

    changes = work.changes(session(), work.splits(2), layout, [ALL_KEYS])

    plan = changes._jdf.queryExecution().executedPlan().toString()
    assert "MapInArrow" in plan and plan.count("Exchange") == 1
    assert "Sort" not in plan and "Window" not in plan


class NoReader:
    """Is only planned with."""


async def test_a_row_whose_deletes_are_ignored_stays_as_it_last_was(
    served: ServedLog, orders: Orders, tmp_path: Path
) -> None:
    chosen = {**ALL_BY_SPARK, "deletes": "ignore"}
    bench = LakeBench(str(tmp_path / "lake"), chosen=chosen)
    orders.write(("u", row(1, "at the end")), ("d", {"id": 1}))

    await applied(bench, served, orders.topic)

    assert notes(bench, orders)[1] == "at the end"


async def test_a_copy_that_executors_fill_has_the_types_that_come_last(
    served: ServedLog, tmp_path: Path
) -> None:
    orders = Orders(served, "orders_of_another_type")
    numbers = schema_of(orders.table, id=pa.int64(), note=pa.int64())
    bench = LakeBench(str(tmp_path / "lake"), chosen=ALL_BY_SPARK)
    orders.write(*[("c", row(key, str(key))) for key in range(300)])
    await applied(bench, served, orders.topic)
    orders.write(("u", {"id": 1, "note": 7}), schema=numbers)
    sink = bench.sink()
    shadow = await sink.shadow(RebuildRecipe(orders.schema.table, numbers))
    await shadow.committed_offsets([orders.topic])

    async with slices(served, None, orders.topic) as part:
        await shadow.apply(part)
    await sink.swap(orders.schema.table)

    assert notes(bench, orders) == {key: key if key != 1 else 7 for key in range(300)}
