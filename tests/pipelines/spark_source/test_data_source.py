"""Spark sees of a topic what its readers see, each change once, in batches and in streams."""

import importlib.util
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from headwater.core_log.foundation.endpoint import FILE_NAME, Endpoint, encode_endpoint
from tests.architecture.sources import ROOT
from tests.served_log import ServedLog, served_log
from tests.slices import changes_of, schema_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = [
    pytest.mark.slow,
    # PySpark leaves the sockets by which results come to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]
TOPIC = "shop.public.orders"
SCHEMA = schema_of(id=pa.int64(), note=pa.string())
WIDER = schema_of(id=pa.int64(), note=pa.string(), more=pa.bool_())
EXAMPLE = ROOT / "examples" / "spark-windows" / "windows.py"
PAGE = ROOT / "docs" / "spark-reader.md"
NOON_US = 1_700_000_000_000_000 // 3_600_000_000 * 3_600_000_000
MINUTE_US = 60_000_000


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedLog]:
    with served_log(tmp_path_factory.mktemp("log")) as served:
        served.write(
            [
                changes_of(
                    SCHEMA,
                    *[("c", {"id": key, "note": "é"}) for key in range(50)],
                    committed_us=[NOON_US] * 50,
                )
            ],
            [changes_of(SCHEMA, ("d", {"id": 7}), ("u", {"id": 8, "note": None}))],
            [changes_of(WIDER, ("c", {"id": 50, "note": "", "more": True}))],
            partitions=2,
        )
        yield served


@pytest.fixture
def few_state_stores(spark: "SparkSession") -> "Iterator[SparkSession]":
    """By default a stream that counts keeps 200 of them in files."""
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    yield spark
    spark.conf.unset("spark.sql.shuffle.partitions")


def frame(spark: "SparkSession", served: ServedLog, **options: str) -> "DataFrame":
    reading = spark.read.format("headwater").option("topic", TOPIC)
    reading = reading.option("bootstrap", ",".join(served.log.bootstrap))
    return reading.options(**options).load()


def test_typed_columns_hold_every_change_in_as_many_parts_as_are_wanted(
    spark: "SparkSession", served: ServedLog
) -> None:
    changes = frame(spark, served, splitRecords="7")

    rows = changes.toArrow().to_pylist()

    assert len(rows) == len({(row["partition"], row["offset"]) for row in rows}) == 53
    after = {row["after"]["id"]: row["after"] for row in rows if row["op"] in "cu"}
    assert after[8] == {"id": 8, "note": None, "more": None}
    assert after[50] == {"id": 50, "note": "", "more": True}
    assert [row["before"]["id"] for row in rows if row["op"] == "d"] == [7]


def test_the_page_begins_with_an_example_that_shows_rows_of_every_source(
    spark: "SparkSession", tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second, *_ = re.findall(
        r"^```python\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE
    )
    # Spark's own processes are in the directory in which its session began.
    first = first.replace('"./data"', repr(str(tmp_path / "data")))
    statuses = schema_of(id=pa.int64(), status=pa.string())
    with served_log(tmp_path / "data") as served:
        served.write(
            [
                changes_of(statuses, ("c", {"id": 1, "status": "new"})),
                changes_of(statuses, ("u", {"id": 1, "status": "paid"})),
            ]
        )
        endpoint = Endpoint(1, served.log.endpoint)
        (tmp_path / "data" / FILE_NAME).write_bytes(encode_endpoint(endpoint))

        names: dict[str, Any] = {}
        exec(first, names)  # the page's own lines
        shown = capsys.readouterr().out
        exec(second, names)

    assert [line.split("|")[1:-1] for line in shown.splitlines() if "paid" in line] == [
        ["     1", "  1", "  paid"]
    ]
    assert "paid" not in capsys.readouterr().out, "this source sends no row before an update"


def test_raw_columns_hold_the_records_themselves(spark: "SparkSession", served: ServedLog) -> None:
    records = frame(spark, served, columns="raw").toArrow()

    assert records.num_rows == 54  # a delete has a tombstone
    assert records.column("value").null_count == 1
    assert records.column("key").to_pylist().count(b'{"id":7}') == 3
    names = {each["key"] for each in records.column("headers").to_pylist()[0]}
    assert "headwater.schema" in names


def test_a_batch_begins_and_ends_where_it_is_told(spark: "SparkSession", served: ServedLog) -> None:
    some = frame(spark, served, start="0:3,1:4", end="0:5,1:4", columns="raw")

    places = [(row["partition"], row["offset"]) for row in some.toArrow().to_pylist()]

    assert places == [(0, 3), (0, 4)]
    noon = datetime.fromtimestamp(NOON_US / 1_000_000, UTC).isoformat()
    assert frame(spark, served, asOf=noon).count() == 50


def test_a_topic_that_nobody_knows_is_an_error_in_words(
    spark: "SparkSession", served: ServedLog
) -> None:
    with pytest.raises(Exception, match="the topic has no schema"):
        frame(spark, served, topic="shop.public.nothing")


def run(query: Any) -> "StreamingQuery":
    started: StreamingQuery = query.trigger(availableNow=True).start()
    started.awaitTermination()
    return started


def test_a_stream_goes_on_where_its_checkpoint_stands(
    spark: "SparkSession", tmp_path: Path
) -> None:
    with served_log(tmp_path / "log") as served:
        reading = spark.readStream.format("headwater").option("topic", TOPIC)
        reading = reading.option("bootstrap", ",".join(served.log.bootstrap))

        def read_on() -> list[int]:
            ids = reading.load().selectExpr("after.id as id")
            writing = ids.writeStream.format("parquet").option("path", str(tmp_path / "out"))
            run(writing.option("checkpointLocation", str(tmp_path / "checkpoint")))
            found = spark.read.parquet(str(tmp_path / "out")).toArrow()
            return sorted(found.column("id").to_pylist())

        served.write([changes_of(SCHEMA, ("c", {"id": 1}), ("c", {"id": 2}))])
        first = read_on()
        served.write([changes_of(WIDER, ("c", {"id": 3, "more": True}))])
        second = read_on()

    assert (first, second) == ([1, 2], [1, 2, 3])


def test_windows_of_event_time_take_late_orders_in_and_leave_later_ones_out(
    few_state_stores: "SparkSession", tmp_path: Path
) -> None:
    spark, example = few_state_stores, load_example()
    minutes = [0, 5, 3, 31]
    with served_log(tmp_path / "log") as served:
        served.write([made_at(minutes)])
        events = example.changes(spark, ",".join(served.log.bootstrap), TOPIC)

        def count() -> tuple[list[int], int]:
            counts = example.by_event_time(events, width="10 minutes", patience="10 minutes")
            writing = counts.selectExpr("window.start as start", "count").writeStream
            query = run(
                writing.format("parquet")
                .option("path", str(tmp_path / "out"))
                .option("checkpointLocation", str(tmp_path / "checkpoint"))
            )
            told = spark.read.parquet(str(tmp_path / "out")).toArrow().column("count")
            return told.to_pylist(), dropped(query)

        first = count()
        served.write([made_at([2])])
        second = count()
        served.write([made_at([1])])
        third = count()
        heard = example.by_processing_time(frame(spark, served), width="10 minutes")
        by_clock = heard.toArrow().column("count").to_pylist()

    assert first == ([], 0)  # what the watermark then closes is told by the batch that follows,
    assert second == ([4], 0)  # which still takes in what comes with it
    assert third == ([4], 1)  # and the window of minute 31 may still grow
    assert sum(by_clock) == 6


def made_at(minutes: list[int]) -> Any:
    times = [NOON_US + minute * MINUTE_US for minute in minutes]
    orders = [("c", {"id": minute}) for minute in minutes]
    return changes_of(SCHEMA, *orders, committed_us=times)


def dropped(query: "StreamingQuery") -> int:
    return sum(
        each["numRowsDroppedByWatermark"]
        for progress in query.recentProgress
        for each in progress["stateOperators"]
    )


def load_example() -> Any:
    spec = importlib.util.spec_from_file_location("windows", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
