"""What Spark makes of a large slice is what this process would have made of it."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from core_log.client import KafkaLog, KafkaSettings
from core_log.errors import RecordsRejected
from core_log.table_schema import TableId
from pipelines.loops.reading import SliceReader
from pipelines.loops.split_reading import LogSplitReader
from sinks.sink import Slice, Stands
from sinks.spark.lake import Lake
from sinks.spark.layout import shape
from sinks.spark.reader.splits import splits_of
from sinks.spark.spark_work import SparkWork, newest
from tests.served_log import ServedLog, served_log
from tests.sinks.spark.targets import LakeBench
from tests.slices import COMMITTED_US, Change, changes_of, schema_of

pytestmark = [
    pytest.mark.slow,
    # PySpark leaves the sockets by which results come to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
ORDERS = schema_of("public.orders", id=pa.int64(), note=pa.string())
WIDER = schema_of("public.orders", id=pa.int64(), note=pa.string(), total=pa.int32())
MOMENTS = schema_of("public.moments", id=pa.int64(), at=pa.timestamp("s"))
TOPIC = "shop.public.orders"
ALL_BY_SPARK = {"small_rows": 0, "split_rows": 400, "tables": {"*": {"file_rows": 70}}}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedLog]:
    with served_log(tmp_path_factory.mktemp("log")) as served:
        served.write(
            [changes_of(ORDERS, *[("c", row(key, "new")) for key in range(300)])],
            [changes_of(ORDERS, *[("u", row(key, "changed")) for key in range(0, 300, 7)])],
            [changes_of(ORDERS, *[("d", {"id": key}) for key in range(0, 300, 5)])],
            partitions=2,
        )
        yield served


def row(key: int, note: str) -> dict[str, Any]:
    return {"id": key, "note": note}


def expected() -> dict[int, str]:
    return {key: "changed" if key % 7 == 0 else "new" for key in range(300) if key % 5}


@asynccontextmanager
async def slices(
    served: ServedLog, start: Stands | None, topic: str = TOPIC
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
    end = served.stands(topic, at_end=True)
    begin = served.stands(topic, at_end=False) if start is None else start
    try:
        yield Slice(
            log=log, start=begin, end=end, cut=None, read=reader.read, split_reader=split_reader
        )
    finally:
        await log.close()


class AsItIs:
    def apply(self, changes: Any, *, may_have_gaps: bool) -> list[Any]:
        return [changes]


async def applied(
    bench: LakeBench, served: ServedLog, start: Stands | None = None, topic: str = TOPIC
) -> Stands:
    sink = bench.sink()
    await sink.applied([topic])
    async with slices(served, start, topic) as part:
        await sink.apply(part)
    return part.end


def notes(bench: LakeBench) -> dict[int, str]:
    found = bench.table("public.orders")
    assert found is not None
    rows = found.to_pylist()
    assert len({each["id"] for each in rows}) == len(rows)
    return {each["id"]: each["note"] for each in rows}


async def test_the_table_is_the_same_first_and_after_an_increment(
    served: ServedLog, tmp_path: Path
) -> None:
    by_spark = LakeBench(str(tmp_path / "spark"), chosen=ALL_BY_SPARK)
    here = LakeBench(str(tmp_path / "here"), chosen={"tables": {"*": {"file_rows": 70}}})
    reached = await applied(by_spark, served)
    first = notes(by_spark)
    more: list[Change] = [("u", row(key, "later")) for key in range(0, 300, 3)]
    served.write([changes_of(ORDERS, *more)], partitions=2)

    await applied(by_spark, served, reached)
    await applied(here, served)

    assert first == expected()
    assert notes(by_spark) == notes(here) == expected() | dict.fromkeys(range(0, 300, 3), "later")
    sink = by_spark.sink()
    state = Lake(sink._settings, sink._context).table(TableId("public", "orders")).load()
    assert state is not None and len(state.files) > 2


async def test_a_table_that_changes_its_shape_in_the_midst_gets_both(
    served: ServedLog, tmp_path: Path
) -> None:
    bench = LakeBench(str(tmp_path / "lake"), chosen=ALL_BY_SPARK)
    served.write([changes_of(WIDER, ("c", {"id": 1000, "note": "wide", "total": 5}))], partitions=2)

    await applied(bench, served)

    found = bench.table("public.orders")
    assert found is not None
    totals = {each["id"]: each["total"] for each in found.to_pylist()}
    assert totals[1000] == 5 and totals[1] is None


async def test_a_small_slice_that_rewrites_much_is_given_to_executors(
    served: ServedLog, tmp_path: Path
) -> None:
    here = {"tables": {"*": {"file_rows": 70}}}
    bench = LakeBench(str(tmp_path / "lake"), chosen=here)
    start = served.stands(TOPIC, at_end=True)
    await applied(bench, served)
    served.write([changes_of(ORDERS, ("u", row(1, "once")), ("u", row(299, "more")))], partitions=2)
    bench.chosen = {**here, "rewritten_rows": 0}

    await applied(bench, served, start)

    found = notes(bench)
    assert (found[1], found[299]) == ("once", "more")


async def test_every_change_is_appended_once(served: ServedLog, tmp_path: Path) -> None:
    chosen = {**ALL_BY_SPARK, "tables": {"*": {"mode": "append"}}}
    bench = LakeBench(str(tmp_path / "lake"), chosen=chosen)

    await applied(bench, served)

    found = bench.table("public.orders")
    assert found is not None
    places = {
        (each["_headwater_partition"], each["_headwater_offset"]) for each in found.to_pylist()
    }
    assert len(places) == found.num_rows >= 300 + 43 + 60
    assert set(found["_headwater_op"].to_pylist()) == {"c", "u", "d"}


async def test_a_record_that_does_not_fit_is_named(served: ServedLog, tmp_path: Path) -> None:
    bench = LakeBench(str(tmp_path / "lake"), chosen=ALL_BY_SPARK)
    far: list[Change] = [("c", {"id": key, "at": 10**15 if key == 5 else key}) for key in range(9)]
    served.write([changes_of(MOMENTS, *far, committed_us=COMMITTED_US)])

    with pytest.raises(RecordsRejected) as caught:
        await applied(bench, served, topic="shop.public.moments")

    assert len(caught.value.reasons) == 1


def test_spark_keeps_only_the_newest_of_a_key_before_it_shuffles(
    served: ServedLog, tmp_path: Path
) -> None:
    """So that one key with half of all changes does not matter."""
    sink = LakeBench(str(tmp_path / "lake")).sink()
    end = served.stands(TOPIC, at_end=True)
    start = served.stands(TOPIC, at_end=False)
    bounds = served.run(lambda: served.log.bounds(end))
    reader: Any = None
    work = SparkWork(sink._session, reader, splits_of(start, end, bounds, records=10), ORDERS)
    chosen = sink._settings.of("public.orders")
    layout, _ = shape(ORDERS, chosen, None, policy={}, may_drop=True)

    events = newest(work.events(sink._session(), layout), layout)

    plan = events._jdf.queryExecution().executedPlan().toString()
    before, _, after = plan.partition("Exchange hashpartitioning")
    assert "WindowGroupLimit" in before and "WindowGroupLimit" in after
