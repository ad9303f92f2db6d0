"""The Kafka source keeps the contract of sources, on a broker of ours and on Apache Kafka."""

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from connectors.kafka.debezium_events import table_of
from connectors.kafka.settings import KafkaSourceSettings
from connectors.kafka.source import KafkaSource
from connectors.source import Source
from core_log import records
from core_log.changes import Operation, TableChanges
from core_log.client import KafkaLog
from core_log.errors import PositionLost, SourceUnavailable
from core_log.log import TopicPartition
from core_log.record_headers import encode_headers
from core_log.rows.codecs import codec_for
from core_log.rows.settings import WireSettings
from core_log.settings import BrokerSettings, TopicSettings
from core_log.table_schema import TableId
from sinks.kafka.outgoing import with_source
from tests.contract.conftest import connect_to
from tests.contract.source_suite import After, SourceSuite, context, flat, iterate
from tests.fakes import SimulatedClock
from tests.slices import changes_of, schema_of

_numbers = count(1)
NOW_MS = 1_700_000_000_000
TYPED = schema_of(
    "public.orders",
    id=pa.int64(),
    total=pa.decimal128(12, 2),
    day=pa.date32(),
    at=pa.timestamp("us"),
    note=pa.string(),
)
PLAIN = schema_of("public.orders", id=pa.int64(), note=pa.string(), rate=pa.float64())


class Cluster:
    """A cluster with topics of one test's own."""

    def __init__(self, endpoint: str, log: KafkaLog) -> None:
        self.endpoint, self.log = endpoint, log
        self.prefix = f"c{next(_numbers)}"
        self._changes = 0

    async def topic(self, name: str, *, partitions: int = 1) -> str:
        topic = f"{self.prefix}.{name}"
        await self.log.ensure_topic(TopicSettings(name=topic, partitions=partitions))
        return topic

    async def append(
        self,
        topic: str,
        *pairs: tuple[bytes | None, bytes | None],
        partition: int = 0,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> None:
        keys, values = (pa.array(column, pa.binary()) for column in zip(*pairs, strict=True))
        for batch in records.encode(
            keys, values, timestamps_ms=NOW_MS, headers=encode_headers(headers)
        ):
            await self.log.append(TopicPartition(topic, partition), batch)

    async def append_changes(
        self, topic: str, changes: TableChanges, wire: WireSettings, *, partition: int = 0
    ) -> None:
        codec = codec_for(wire, topic=topic)
        encoded = codec.encode(with_source(changes, "origin"), now_us=NOW_MS * 1_000)
        pairs = zip(encoded.keys.to_pylist(), encoded.values.to_pylist(), strict=True)
        await self.append(topic, *pairs, partition=partition)

    def source(self, **settings: object) -> KafkaSource:
        chosen = {
            "bootstrap": self.endpoint,
            "topics": f"{self.prefix}.*",
            "retry_for_ms": 5_000,
            "refresh_every_ms": 100,
            **settings,
        }
        return KafkaSource(KafkaSourceSettings.model_validate(chosen), context())


class KafkaGround:
    """What is out there is where every topic ends; what is held is looked after by the suite."""

    is_exact = True

    def __init__(self, cluster: Cluster, settings: dict[str, object], change_count: int) -> None:
        self._cluster, self._settings, self.change_count = cluster, settings, change_count

    def open(self) -> Source:
        return self._cluster.source(**self._settings)

    def outside(self) -> object:
        return None

    def held(self) -> object:
        return None


@pytest.fixture(params=["headwater", pytest.param("apache kafka", marks=pytest.mark.kafka)])
async def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Cluster]:
    from core_log.embedded import EmbeddedLog

    if request.param == "apache kafka":
        endpoint: str = request.getfixturevalue("apache_kafka")
        log = connect_to(endpoint)
        yield Cluster(endpoint, log)
        await log.close()
        return
    embedded = await EmbeddedLog.open(
        BrokerSettings(data=tmp_path, listen="127.0.0.1:0", internal_partitions=2)
    )
    yield Cluster(embedded.endpoint, embedded)
    await embedded.close()


class TestKafkaSource(SourceSuite):
    @pytest.fixture(params=["debezium", "debezium with schemas", "json", "raw"])
    async def ground(self, request: pytest.FixtureRequest, cluster: Cluster) -> KafkaGround:
        topic = await cluster.topic("public.orders", partitions=2)
        settings: dict[str, object] = {"format": "debezium-json", "fetch_bytes": "1KiB"}
        if request.param.startswith("debezium"):
            has_schemas = request.param != "debezium"
            schema = TYPED if has_schemas else PLAIN
            for number in range(12):
                row = {"id": number // 2, "note": "x" * number, "total": Decimal(number)}
                changes = changes_of(schema, ("cud"[number % 3], row))
                wire = WireSettings(has_schemas=has_schemas)
                await cluster.append_changes(topic, changes, wire, partition=number % 2)
            return KafkaGround(cluster, settings, 12)
        for number in range(8):
            key, value = b"%d" % number, b'{"id":%d,"note":"n\\u00e9"}' % number
            await cluster.append(topic, (key, value), (key, None), partition=number % 2)
        if request.param == "json":
            return KafkaGround(cluster, {**settings, "format": "json", "key": "id"}, 16)
        return KafkaGround(cluster, {**settings, "format": "raw"}, 16)


async def test_events_come_back_as_they_went_in(cluster: Cluster) -> None:
    topic = await cluster.topic("public.orders")
    row = {"id": 1, "total": Decimal("12.50"), "day": None, "at": None, "note": 'a "b"\n€'}
    changes = changes_of(TYPED, ("c", row), ("u", row | {"note": None}), ("d", {"id": 1}))
    await cluster.append_changes(topic, changes, WireSettings(has_schemas=True, decimal="precise"))

    [told] = await read(cluster.source(decimal="precise"), changes=3)

    [found] = told.batch.tables
    assert found.schema == TYPED
    assert found.rows.to_pylist() == changes.rows.to_pylist()
    assert found.operations.equals(changes.operations)
    assert found.committed_us.equals(changes.committed_us)
    assert found.commits == f"{topic}-0" and found.indexes == pa.array([0, 1, 2])


async def test_a_schema_that_changes_in_the_middle_is_followed(cluster: Cluster) -> None:
    topic = await cluster.topic("public.orders")
    wire = WireSettings(has_schemas=True)
    wider = schema_of("public.orders", id=pa.int64(), note=pa.string(), rate=pa.float64())
    narrow = schema_of("public.orders", id=pa.int64(), note=pa.string())
    await cluster.append_changes(topic, changes_of(narrow, ("c", {"id": 1})), wire)
    await cluster.append_changes(topic, changes_of(wider, ("c", {"id": 2, "rate": 0.5})), wire)
    await cluster.append_changes(topic, changes_of(narrow, ("c", {"id": 3})), wire)

    told = await read(cluster.source(), changes=3)

    names = [changes.schema.names for after in told for changes in after.batch.tables]
    assert names == [("id", "note"), ("id", "note", "rate"), ("id", "note")]


async def test_without_schemas_new_members_widen_the_table_and_this_is_remembered(
    cluster: Cluster,
) -> None:
    topic = await cluster.topic("public.orders")
    narrow = schema_of("public.orders", id=pa.int64())
    await cluster.append_changes(topic, changes_of(narrow, ("c", {"id": 1})), WireSettings())
    told = await read(cluster.source(), changes=1)
    wider = schema_of("public.orders", id=pa.int64(), rate=pa.float64())
    change = changes_of(wider, ("c", {"id": 2, "rate": 0.5}))
    await cluster.append_changes(topic, change, WireSettings())

    more = await read(cluster.source(), told[-1].positions, changes=1)

    assert more[0].batch.tables[0].schema.names == ("id", "rate")
    assert '"rate"' in more[-1].positions[f"schema/{topic}"]


async def test_a_truncate_stands_where_it_stood(cluster: Cluster) -> None:
    topic = await cluster.topic("public.orders")
    for change in (("c", {"id": 1}), ("t", {}), ("c", {"id": 2})):
        await cluster.append_changes(topic, changes_of(PLAIN, change), WireSettings())

    told = await read(cluster.source(), changes=3)

    codes = [change.operation for change in flat(told)[TableId("public", "orders")]]
    assert codes == [Operation.INSERT, Operation.TRUNCATE, Operation.INSERT]


async def test_bad_records_are_set_aside_and_the_others_come(cluster: Cluster) -> None:
    topic = await cluster.topic("orders")
    good = [(None, b'{"id":%d,"note":"x"}' % number) for number in range(3)]
    bad = [(None, b"no json"), (None, b'{"id":"text","note":1}'), (None, b"[1]"), (None, b"")]
    await cluster.append(topic, good[0], bad[0], good[1], bad[1], bad[2], good[2], bad[3])

    told = await read(cluster.source(format="json"), changes=3)

    rejects = [reject for after in told for reject in after.batch.rejects]
    assert [reject.at for reject in rejects] == [f"{topic}-0#{at}" for at in (1, 3, 4, 6)]
    assert rejects[0].content == b"no json" and "no json" not in rejects[0].problem
    [changes] = flat(told).values()
    assert [(change.row["id"], change.place) for change in changes] == [(0, 0), (1, 2), (2, 5)]


async def test_bad_events_are_set_aside_too(cluster: Cluster) -> None:
    topic = await cluster.topic("public.orders")
    for number in range(3):
        change = changes_of(PLAIN, ("c", {"id": number, "note": "x", "rate": 1.5}))
        await cluster.append_changes(topic, change, WireSettings())
        await cluster.append(topic, (b"{}", b'{"op":"c","after":{"id":"x"}}'))

    told = await read(cluster.source(), changes=3)

    assert sum(len(after.batch.rejects) for after in told) == 3
    [changes] = flat(told).values()
    assert [change.row["id"] for change in changes] == [0, 1, 2]


async def test_values_of_another_kind_between_events_are_set_aside(cluster: Cluster) -> None:
    topic = await cluster.topic("public.orders")
    wire = WireSettings(has_schemas=True)
    others = (
        b'{"schema":{"type":"string","optional":false},"payload":"heartbeat"}',
        b'{"schema":{"type":',
        b"\xff\xfe",
    )
    for number, other in enumerate(others):
        change = changes_of(PLAIN, ("c", {"id": number, "note": "x", "rate": 1.5}))
        await cluster.append_changes(topic, change, wire)
        await cluster.append(topic, (b"{}", other))
    await cluster.append_changes(topic, changes_of(PLAIN, ("t", {})), wire)

    told = await read(cluster.source(), changes=4)

    assert sum(len(after.batch.rejects) for after in told) == 3
    [changes] = flat(told).values()
    assert [change.row["id"] for change in changes] == [0, 1, 2, None]


async def test_json_rows_may_lack_members_and_bring_new_ones(cluster: Cluster) -> None:
    topic = await cluster.topic("orders")
    await cluster.append(topic, (b"1", b'{"id":1,"a":true}'), (b"2", b'{\n"id": 2,\n"b": [1.5]}'))

    told = await read(cluster.source(format="json", key="id"), changes=2)
    await cluster.append(topic, (b"3", b'{"id":3,"c":{"d":"2026-01-01T00:00:00"}}'), (b"1", None))
    told += await read(cluster.source(format="json", key="id"), told[-1].positions, changes=2)

    [changes] = flat(told).values()
    assert [change.row for change in changes] == [
        {"id": 1, "a": True, "b": None},
        {"id": 2, "a": None, "b": [1.5]},
        {"id": 3, "a": None, "b": None, "c": {"d": "2026-01-01T00:00:00"}},
        {"id": 1, "a": None, "b": None, "c": None},
    ]
    assert [change.operation for change in changes] == [Operation.UPDATE] * 3 + [Operation.DELETE]


async def test_raw_records_are_rows_with_everything_they_had(cluster: Cluster) -> None:
    topic = await cluster.topic("blobs")
    await cluster.append(topic, (None, b"\xff\x00"), headers=[("trace", b"\x01"), ("none", None)])
    await cluster.append(topic, (b"k", None))

    told = await read(cluster.source(format="raw"), changes=2)

    [changes] = flat(told).values()
    first, second = (change.row for change in changes)
    assert (first["key"], first["value"], first["offset"]) == (None, b"\xff\x00", 0)
    assert first["headers"] == [
        {"key": "trace", "value": b"\x01"},
        {"key": "none", "value": None},
    ]
    assert (second["key"], second["value"], second["headers"]) == (b"k", None, [])
    assert second["timestamp"].timestamp() * 1_000 == NOW_MS


async def test_what_is_not_committed_is_not_read(cluster: Cluster) -> None:
    topic = await cluster.topic("orders")
    writer = await cluster.log.writer(f"{cluster.prefix}-writer")
    [batch] = records.encode(
        pa.array([None], pa.binary()), pa.array([b'{"id":1}'], pa.binary()), timestamps_ms=NOW_MS
    )
    with pytest.raises(ZeroDivisionError):
        async with writer.transaction() as transaction:
            await transaction.append(TopicPartition(topic, 0), batch)
            raise ZeroDivisionError
    await cluster.append(topic, (None, b'{"id":2}'))

    told = await read(cluster.source(format="json"), changes=1)

    [changes] = flat(told).values()
    assert [change.row["id"] for change in changes] == [2]


async def test_who_begins_at_the_end_misses_nothing_after_it(cluster: Cluster) -> None:
    topic = await cluster.topic("orders")
    await cluster.append(topic, (None, b'{"id":1}'))
    source = cluster.source(format="json", start="latest")
    async with aclosing(source.changes({})) as batches:
        at_the_end = (await anext(batches)).positions
    await cluster.append(topic, (None, b'{"id":2}'))
    later = await cluster.topic("later")
    await cluster.append(later, (None, b'{"id":3}'))

    told = await read(cluster.source(format="json", start="latest"), dict(at_the_end), changes=2)

    assert sorted(change.row["id"] for rows in flat(told).values() for change in rows) == [2, 3]


async def test_topics_that_come_later_are_read_from_their_first_record(cluster: Cluster) -> None:
    await cluster.append(await cluster.topic("one"), (None, b'{"id":1}'))
    clock = SimulatedClock()
    settings = cluster.source(format="json")._settings
    source = KafkaSource(settings, context(clock))
    found: list[int] = []

    async with aclosing(source.changes({})) as batches:
        async for batch in batches:
            found += [len(changes) for changes in batch.tables]
            if found and not clock.now_ms():
                await cluster.append(await cluster.topic("two"), (None, b'{"id":2}'))
                clock.advance(1_000)
            if len(found) == 2:
                break

    assert found == [1, 1]


async def test_records_that_are_gone_are_a_lost_position(cluster: Cluster) -> None:
    topic = await cluster.topic("orders")
    await cluster.append(topic, (None, b'{"id":1}'), (None, b'{"id":2}'))
    told = await read(cluster.source(format="json", fetch_bytes="1KiB"), changes=2)
    positions = {**told[-1].positions, f"topic/{topic}/0": "1"}
    await cluster.append(topic, (None, b'{"id":3}'))
    await cluster.log.topics.delete_records({TopicPartition(topic, 0): 2})

    with pytest.raises(PositionLost, match="no longer holds"):
        await read(cluster.source(format="json"), positions, changes=1)


async def test_a_topic_that_was_made_anew_is_a_lost_position(cluster: Cluster) -> None:
    topic = await cluster.topic("orders")
    await cluster.append(topic, (None, b'{"id":1}'))
    told = await read(cluster.source(format="json"), changes=1)
    await cluster.log.topics.delete(topic)
    await cluster.topic("orders")

    with pytest.raises(PositionLost, match="made anew"):
        await read(cluster.source(format="json"), told[-1].positions, changes=1)


async def test_a_cluster_that_does_not_answer_is_a_finding_and_an_error_of_time() -> None:
    settings = KafkaSourceSettings(bootstrap=("127.0.0.1:1",), topics=("*",), retry_for_ms=0)
    source = KafkaSource(settings, context())

    with pytest.raises(SourceUnavailable):
        await anext(source.changes({}))


@pytest.mark.parametrize("format", ["json", "raw"])
async def test_asked_for_what_is_there_it_ends_at_the_end(cluster: Cluster, format: str) -> None:
    topic = await cluster.topic("orders", partitions=2)
    await cluster.append(topic, (None, b'{"id":1}'), (None, b'{"id":2}'))
    writer = await cluster.log.writer(f"{cluster.prefix}-writer")
    [batch] = records.encode(
        pa.array([None], pa.binary()), pa.array([b'{"id":3}'], pa.binary()), timestamps_ms=NOW_MS
    )
    async with writer.transaction() as transaction:  # its marker is the last in the partition
        await transaction.append(TopicPartition(topic, 1), batch)
    settings = cluster.source(format=format)._settings

    source = KafkaSource(settings, replace(context(), until_end=True))
    told = [after async for after in iterate(source, {})]

    assert sum(len(changes) for after in told for changes in after.batch.tables) == 3
    again = KafkaSource(settings, replace(context(), until_end=True))
    assert not [after async for after in iterate(again, told[-1].positions)]


async def test_patterns_that_match_nothing_are_found_before_the_start(cluster: Cluster) -> None:
    found = await cluster.source(topics="nothing.like.this").examine()

    assert [finding.is_fatal for finding in found] == [False]


def test_tables_are_named_as_debezium_names_topics() -> None:
    assert table_of("shop.public.orders") == TableId("public", "orders")
    assert table_of("shop.a.b.c") == TableId("a.b", "c")
    assert table_of("shop.orders") == TableId("", "orders")
    assert table_of("orders") == TableId("", "orders")


async def read(
    source: Source, resume_from: dict[str, str] | Any = None, *, changes: int
) -> list[After]:
    """Batches with changes or rejects until so many changes came."""
    found: list[After] = []
    async for after in iterate(source, resume_from or {}):
        if after.batch.tables or after.batch.rejects:
            found.append(after)
        if sum(len(each) for told in found for each in told.batch.tables) >= changes:
            break
    return found
