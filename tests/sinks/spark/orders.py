"""One table of orders in a lake: filled, looked at, written by whoever wants to see it change."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headwater.core_log.foundation.clock import SystemClock
from headwater.core_log.model.table_schema import TableId
from headwater.sinks.spark.lake import Lake
from headwater.sinks.spark.sink import SparkSink
from headwater.sinks.spark.table import LakeTableState
from tests.contract.sink_suite import ORDERS
from tests.sinks.spark.targets import LakeBench
from tests.slices import Change, ScriptedTopic, together

TABLE = TableId("public", "orders")


def bench_of(path: Path, **chosen: Any) -> LakeBench:
    return LakeBench(str(path / "lake"), chosen=chosen)


def iceberg_bench(path: Path) -> LakeBench:
    """By the clock of the machine, by which Iceberg's own commits go."""
    bench = bench_of(path, format="iceberg")
    bench.clock = SystemClock()
    return bench


def topic_of(changes: Sequence[Change]) -> ScriptedTopic:
    topic = ScriptedTopic()
    topic.append(ORDERS, *changes)
    return topic


def state_of(bench: LakeBench, table: TableId = TABLE) -> LakeTableState:
    sink = bench.sink()
    state = Lake(sink._settings, sink._context).table(table).load()
    assert state is not None
    return state


async def applied(bench: LakeBench, *topics: ScriptedTopic) -> None:
    sink = bench.sink()
    await sink.committed_offsets([topic.name for topic in topics])
    await sink.apply(together(*(topic.slice() for topic in topics)))


def many(first: int, count: int, note: str = "a") -> list[Change]:
    return [("c", {"id": number, "note": note}) for number in range(first, first + count)]


async def moved(sink: SparkSink, topic: ScriptedTopic, times: int) -> None:
    for number in range(times):
        topic.append(ORDERS, ("u", {"id": 1, "note": str(number)}))
        await sink.apply(topic.slice())


async def begun(bench: LakeBench, topic: ScriptedTopic) -> SparkSink:
    sink = bench.sink()
    await sink.committed_offsets([topic.name])
    await sink.apply(topic.slice())
    return sink
