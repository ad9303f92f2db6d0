"""The Kafka sink keeps the contract of sinks, on a broker of ours and on Apache Kafka."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.core_log.client import KafkaLog
from headwater.core_log.foundation.errors import Fenced, SinkRejected, SinkUnavailable
from headwater.core_log.foundation.settings import BrokerSettings, TopicSettings
from headwater.core_log.model.changes import TableChanges
from headwater.core_log.model.log import FetchLimit, Isolation, TopicPartition
from headwater.core_log.model.table_schema import TableId
from headwater.core_log.records import arrow_codec
from headwater.sinks.kafka.offset_topic import topic_name
from headwater.sinks.kafka.settings import KafkaSinkSettings
from headwater.sinks.kafka.sink import KafkaSink
from headwater.sinks.sink import SinkContext, Slice
from tests.contract.conftest import connect_to
from tests.contract.sink_suite import AUDIT, ORDERS, SinkContract
from tests.fakes import SimulatedClock
from tests.slices import ScriptedTopic, schema_of

_numbers = count(1)


class KafkaBench:
    """A cluster, and a pipeline of its own for every test, since clusters may be shared."""

    def __init__(self, endpoint: str, log: KafkaLog) -> None:
        self.endpoint, self.log = endpoint, log
        self.pipeline = f"p{next(_numbers)}"

    def sink(self, **settings: object) -> KafkaSink:
        chosen = {"bootstrap": self.endpoint, "retry_for_ms": 5_000, **settings}
        context = SinkContext(self.pipeline, Path(), {}, SimulatedClock(1_700_000_000_000))
        return KafkaSink(KafkaSinkSettings.model_validate(chosen), context)

    async def rows(self, table: str) -> list[dict[str, Any]]:
        events = await self.events(f"{self.pipeline}.{table}")
        return [event["after"] for _, event in events if event and event["after"]]

    async def events(self, topic: str) -> list[tuple[bytes | None, Any]]:
        """Committed keys and values, partition by partition."""
        if topic not in {each.name for each in await self.log.topics.all()}:
            return []
        found: list[tuple[bytes | None, Any]] = []
        for number in range(await self.log.partition_count(topic)):
            partition = TopicPartition(topic, number)
            bounds = (await self.log.bounds([partition]))[partition]
            offset = bounds.start
            while offset < bounds.end:
                for fetched in await self.log.fetch(
                    {partition: offset}, limit=FetchLimit(), isolation=Isolation.COMMITTED
                ):
                    columns = arrow_codec.decode(fetched.data, from_offset=offset)
                    values = [v and json.loads(v) for v in columns.values.to_pylist()]
                    found += zip(columns.keys.to_pylist(), values, strict=True)
                    offset = fetched.next_offset
        return found

    def poison(self) -> None:
        return None


@pytest.fixture(params=["headwater", pytest.param("apache kafka", marks=pytest.mark.kafka)])
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[KafkaBench]:
    from headwater.core_log.embedded import EmbeddedLog

    if request.param == "apache kafka":
        endpoint: str = request.getfixturevalue("apache_kafka")
        log = connect_to(endpoint)
        yield KafkaBench(endpoint, log)
        await log.close()
        return
    embedded = await EmbeddedLog.open(
        BrokerSettings(data=tmp_path, listen="127.0.0.1:0", internal_partitions=2)
    )
    yield KafkaBench(embedded.endpoint, embedded)
    await embedded.close()


class TestKafkaSink(SinkContract):
    keeps_newest = False


@pytest.mark.parametrize("cancellations", [0, 1, 2])
async def test_a_sink_that_is_closed_in_a_slice_leaves_no_transaction_open(
    bench: KafkaBench, cancellations: int
) -> None:
    topic, is_read, goes_on = ScriptedTopic(), asyncio.Event(), asyncio.Event()
    topic.append(ORDERS, ("c", {"id": 1, "note": "a"}))
    sink = bench.sink()
    await sink.apply(topic.slice())
    topic.append(ORDERS, ("c", {"id": 2, "note": "b"}))
    part = topic.slice()

    async def read(_: Slice) -> AsyncIterator[TableChanges]:
        async for changes in part.changes():
            yield changes
        is_read.set()
        if not cancellations:
            await sink.close()
        await goes_on.wait()

    applying = asyncio.create_task(sink.apply(replace(part, read=read)))
    await is_read.wait()
    for _ in range(cancellations):
        applying.cancel()
        await asyncio.sleep(0)
    goes_on.set()
    with pytest.raises((asyncio.CancelledError, SinkUnavailable)):
        await applying
    await sink.close()

    written = TopicPartition(f"{bench.pipeline}.public.orders", 0)
    bound = (await bench.log.bounds([written]))[written]
    is_ours = hasattr(bench.log, "running")  # Apache Kafka writes its markers a moment later
    assert bound.stable == bound.end or not is_ours
    assert await bench.rows("public.orders") == [{"id": 1, "note": "a"}]


async def test_events_look_as_debezium_writes_them(bench: KafkaBench) -> None:
    topic = ScriptedTopic()
    topic.append(ORDERS, ("c", {"id": 1, "note": "a"}), ("d", {"id": 1}))
    sink = bench.sink()

    await sink.apply(topic.slice())
    await sink.close()

    created, deleted, tombstone = await bench.events(f"{bench.pipeline}.public.orders")
    assert created[0] == deleted[0] == tombstone[0] == b'{"id":1}'
    assert (created[1]["op"], deleted[1]["op"], tombstone[1]) == ("c", "d", None)
    assert created[1]["source"]["table"] == "orders"
    assert created[1]["source"]["name"] == bench.pipeline
    assert created[1]["source"]["ts_us"] == 1_700_000_000_000_000


@pytest.mark.slow
async def test_keys_stay_in_their_partition_and_truncates_go_everywhere(bench: KafkaBench) -> None:
    topic = ScriptedTopic()
    topic.append(ORDERS, *(("c", {"id": number, "note": "x"}) for number in range(40)))
    topic.append(ORDERS, ("t", {}))
    topic.append(ORDERS, *(("u", {"id": number, "note": "y"}) for number in range(40)))
    sink = bench.sink(partitions=4)

    await sink.apply(topic.slice())
    await sink.close()

    events = await bench.events(f"{bench.pipeline}.public.orders")
    notes: dict[bytes | None, list[str]] = {}
    for key, event in events:
        if event["op"] != "t":
            notes.setdefault(key, []).append(event["after"]["note"])
    assert len(notes) == 40 and set(map(tuple, notes.values())) == {("x", "y")}
    assert [event["op"] for _, event in events].count("t") == 4


async def test_a_table_without_a_key_goes_round(bench: KafkaBench) -> None:
    topic = ScriptedTopic("shop.public.audit")
    for number in range(4):
        topic.append(AUDIT, ("c", {"at": number, "what": "x"}))
    sink = bench.sink(partitions=2)

    await sink.apply(topic.slice())
    await sink.close()

    events = await bench.events(f"{bench.pipeline}.public.audit")
    assert [event["after"]["at"] for _, event in events] == [0, 2, 1, 3]


@pytest.mark.slow
async def test_a_topic_that_was_there_keeps_its_partitions_and_survives_a_drop(
    bench: KafkaBench,
) -> None:
    name = f"{bench.pipeline}.public.orders"
    await bench.log.ensure_topic(TopicSettings(name=name, partitions=3))
    topic = ScriptedTopic()
    topic.append(ORDERS, ("c", {"id": 1, "note": "a"}))
    sink = bench.sink()

    await sink.apply(topic.slice())
    dropped = await sink.drop()
    await sink.close()

    assert dropped == [f"topic headwater.{bench.pipeline}.sink.applied"]
    assert await bench.log.partition_count(name) == 3
    assert await bench.rows("public.orders") == [{"id": 1, "note": "a"}]


@pytest.mark.parametrize("runs", [1, 2])
async def test_a_topic_takes_the_rows_of_one_table_in_later_runs_too(
    bench: KafkaBench, runs: int
) -> None:
    first, other = ScriptedTopic("shop.public.a_b"), ScriptedTopic("log.public.a_b")
    first.append(schema_of("public.a b", id=pa.int64()), ("c", {"id": 1}))
    other.append(schema_of("public.a_b", id=pa.int64()), ("c", {"id": 2}))
    part, sink = other.slice(), bench.sink()
    await sink.apply(first.slice())
    if runs == 2:
        await sink.close()
        sink = bench.sink()

    with pytest.raises(SinkRejected, match="two tables have the same topic") as refused:
        await sink.apply(part)
    assert refused.value.facts["other"] == "public.a b"
    assert await bench.rows("public.a_b") == [{"id": 1}]

    await bench.log.topics.delete(f"{bench.pipeline}.public.a_b")
    await sink.apply(part)
    assert await bench.rows("public.a_b") == [{"id": 2}]
    first.append(schema_of("public.a b", id=pa.int64()), ("c", {"id": 3}))
    with pytest.raises(SinkRejected, match="two tables have the same topic"):
        await sink.apply(first.slice())
    await sink.close()


async def test_a_sink_that_is_fenced_in_the_middle_of_a_slice_leaves_nothing(
    bench: KafkaBench,
) -> None:
    topic = ScriptedTopic()
    topic.append(ORDERS, ("c", {"id": 1, "note": "old"}))
    topic.append(ORDERS, ("c", {"id": 2, "note": "old"}))
    part = topic.slice()
    old, new = bench.sink(), bench.sink()
    other = ScriptedTopic()
    other.append(ORDERS, ("c", {"id": 1, "note": "new"}))

    async def overtaken(_: object) -> AsyncIterator[Any]:
        async for changes in part.read(part):
            yield changes
            if changes.rows["id"][0].as_py() == 1:
                await new.apply(other.slice())

    with pytest.raises(Fenced):
        await old.apply(replace(part, read=overtaken))

    assert await bench.rows("public.orders") == [{"id": 1, "note": "new"}]
    await old.close()
    await new.close()


async def test_a_cluster_that_does_not_answer_is_a_finding_and_an_error_of_time() -> None:
    context = SinkContext("shop", Path(), {}, SimulatedClock())
    settings = KafkaSinkSettings(bootstrap=("127.0.0.1:1",), retry_for_ms=0)
    sink = KafkaSink(settings, context)
    topic = ScriptedTopic()
    topic.append(ORDERS, ("c", {"id": 1, "note": "a"}))

    with pytest.raises(SinkUnavailable):
        await sink.apply(topic.slice())
    with pytest.raises(SinkUnavailable):
        await sink.committed_offsets(["shop.public.orders"])
    await sink.close()


def test_topics_are_named_as_the_template_says() -> None:
    table = TableId("public", "größe/t")

    assert topic_name("{pipeline}.{schema}.{table}", pipeline="shop", table=table) == (
        "shop.public.gr__e_t"
    )
    assert topic_name("x.{schema}.{table}", pipeline="shop", table=TableId("", "{pipeline}")) == (
        "x._pipeline_"
    )
