"""The Kafka source keeps the contract of sources, on a broker of ours and on Apache Kafka."""

from contextlib import aclosing
from dataclasses import replace
from decimal import Decimal
from uuid import UUID

import pyarrow as pa
import pytest

from headwater.connectors.kafka.settings import KafkaSourceSettings
from headwater.connectors.kafka.source import KafkaSource
from headwater.connectors.left_out_tables import REFUSED
from headwater.connectors.source import Remark, Source, SourceReport
from headwater.core_log.client import KafkaLog
from headwater.core_log.client.topic_admin import TopicDescription
from headwater.core_log.foundation.errors import (
    ConfigError,
    LogRejected,
    PositionLost,
    SourceRejected,
    SourceUnavailable,
)
from headwater.core_log.foundation.settings import TopicSettings
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.model.table_schema import TableSchema
from headwater.core_log.records import arrow_codec
from headwater.core_log.records.batch_header import Batch
from headwater.core_log.rows.settings import WireSettings
from tests.contract.foreign_topics import NOW_MS, PLAIN, TYPED, Cluster, read
from tests.contract.source_suite import SourceSuite, context, flat, iterate
from tests.contract.test_batch_contents import GZIP, said
from tests.fakes import SimulatedClock
from tests.slices import changes_of


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


async def test_two_topics_of_one_table_are_refused_also_if_one_comes_later(
    cluster: Cluster,
) -> None:
    """Debezium's topics of two servers: rows of both would have the same keys."""
    first = await cluster.topic("public.orders")
    await cluster.append_changes(first, changes_of(PLAIN, ("c", {"id": 1})), WireSettings())
    other = f"{cluster.prefix}-b.public.orders"
    source = cluster.source(topics=f"{cluster.prefix}*")

    told = await read(source, changes=1)
    await cluster.log.ensure_topic(TopicSettings(name=other))
    with pytest.raises(SourceRejected, match="two topics have rows of one table") as refused:
        await read(source, dict(told[-1].positions), changes=1)

    assert refused.value.facts["topics"] == [first, other]
    without = cluster.source(topics=[f"{cluster.prefix}*", f"!{other}"])
    assert len(await read(without, changes=1)) == 1
    with pytest.raises(SourceRejected, match="two topics have rows of one table"):
        await source.discover()


async def test_uncommitted_records_are_not_read(cluster: Cluster) -> None:
    topic = await cluster.topic("orders")
    writer = await cluster.log.writer(f"{cluster.prefix}-writer")
    [batch] = arrow_codec.encode(
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


async def test_a_source_that_begins_at_the_end_misses_nothing_after_it(cluster: Cluster) -> None:
    topic = await cluster.topic("orders")
    await cluster.append(topic, (None, b'{"id":1}'))
    source = cluster.source(format="json", start="latest")
    async with aclosing(source.changes({})) as batches:
        at_the_end = (await anext(batches)).positions
    await cluster.append(topic, (None, b'{"id":2}'))
    later = await cluster.topic("later")
    await cluster.append(later, (None, b'{"id":3}'))

    told = await read(cluster.source(format="json", start="latest"), dict(at_the_end), changes=2)

    assert sorted(change.row["id"] for rows in flat(told).values() for change in rows) == [
        2,
        3,
    ]


@pytest.mark.parametrize("topics", ["none", "orders", "orders without an id"])
async def test_partitions_that_come_while_the_source_is_away_are_read_from_their_first_record(
    cluster: Cluster, topics: str
) -> None:
    settings = cluster.source(format="json", start="latest")._settings
    positions: dict[str, str] = {}

    def source(*, until_end: bool) -> KafkaSource:
        found = KafkaSource(settings, replace(context(), until_end=until_end))
        if topics == "orders without an id":
            admin = found._topics

            async def without_ids(log: KafkaLog) -> list[TopicDescription]:
                return [replace(each, topic_id=UUID(int=0)) for each in await admin(log)]

            found._topics = without_ids  # type: ignore[method-assign]
        return found

    if topics != "none":
        topic = await cluster.topic("orders")
        await cluster.append(topic, (None, b'{"id":1}'))
    async with aclosing(source(until_end=False).changes({})) as batches:
        positions |= (await anext(batches)).positions
    if topics != "none":
        await cluster.log.topics.add_partitions(topic, 2)
        await cluster.append(topic, (None, b'{"id":2}'), partition=1)
    later = await cluster.topic("later")
    await cluster.append(later, (None, b'{"id":3}'))

    told = [after async for after in iterate(source(until_end=True), positions)]

    ids = sorted(change.row["id"] for rows in flat(told).values() for change in rows)
    assert ids == [3] if topics == "none" else [2, 3]


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

    with pytest.raises(PositionLost, match="no longer has"):
        await read(cluster.source(format="json"), positions, changes=1)


async def test_a_topic_that_was_made_anew_is_a_lost_position(cluster: Cluster) -> None:
    topic = await cluster.topic("orders")
    await cluster.append(topic, (None, b'{"id":1}'))
    told = await read(cluster.source(format="json"), changes=1)
    await cluster.log.topics.delete(topic)
    await cluster.topic("orders")

    with pytest.raises(PositionLost, match="recreated"):
        await read(cluster.source(format="json"), told[-1].positions, changes=1)


async def test_a_cluster_that_does_not_answer_is_a_finding_and_an_error_of_time() -> None:
    settings = KafkaSourceSettings(bootstrap=("127.0.0.1:1",), topics=("*",), retry_for_ms=0)
    source = KafkaSource(settings, context())

    with pytest.raises(SourceUnavailable):
        await anext(source.changes({}))


@pytest.mark.parametrize("format", ["json", "raw"])
async def test_a_run_until_the_end_ends_at_the_end(cluster: Cluster, format: str) -> None:
    topic = await cluster.topic("orders", partitions=2)
    await cluster.append(topic, (None, b'{"id":1}'), (None, b'{"id":2}'))
    writer = await cluster.log.writer(f"{cluster.prefix}-writer")
    [batch] = arrow_codec.encode(
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


async def test_a_name_that_no_topic_has_is_said_and_the_end_fails_without_any_topic(
    cluster: Cluster,
) -> None:
    topic = await cluster.topic("orders")
    await cluster.append(topic, (None, b'{"id":1}'))
    settings = cluster.source(format="json", topics=[topic, "no-such.topic"])._settings
    told: list[SourceReport] = []
    asked = replace(context(), until_end=True, report=told.append)

    rows = [after async for after in iterate(KafkaSource(settings, asked), {})]
    none = settings.model_copy(update={"topics": ("no-such.*",)})
    with pytest.raises(SourceRejected, match="no topic of the cluster matches"):
        await anext(KafkaSource(none, asked).changes({}))

    [remark] = [each for each in told if isinstance(each, Remark)]
    assert remark.finding is not None and remark.finding.left_out == ("no-such.topic",)
    assert sum(len(changes) for after in rows for changes in after.batch.tables) == 1


async def test_a_batch_that_cannot_be_read_is_set_aside_and_what_follows_is_read(
    cluster: Cluster,
) -> None:
    topic = await cluster.topic("orders")
    await cluster.append(topic, (None, b'{"id":1}'))
    unreadable = Batch(bytearray(said(b"\x1f\x8bno such thing", 3, GZIP)), record_count=3)
    try:
        offset = await cluster.log.append(TopicPartition(topic, 0), unreadable)
    except LogRejected:
        assert not hasattr(cluster.log, "running"), "only Apache Kafka looks inside"
        return
    await cluster.append(topic, (None, b'{"id":5}'))

    told = await read(cluster.source(format="json"), changes=2)

    [changes] = flat(told).values()
    rejects = [reject for after in told for reject in after.batch.rejects]
    assert [change.row["id"] for change in changes] == [1, 5]
    assert [(each.at, each.content) for each in rejects] == [(f"{topic}-0#{offset}", b"")]
    assert "lost are the offsets 1 to 3" in rejects[0].problem


async def test_a_form_that_must_not_enter_the_log_holds_its_topic_alone(cluster: Cluster) -> None:
    """None of its records is lost or comes twice, in whatever batches they come."""
    orders, users = [await cluster.topic(name, partitions=2) for name in ("orders", "users")]
    held, told = {orders}, list[SourceReport]()

    async def refusal(schema: TableSchema, *, is_next: bool = False) -> ConfigError | None:
        assert is_next
        is_held = schema.table.name in held and "secret" in schema.names
        return ConfigError("a rule hides it") if is_held else None

    async def fill(topic: str, ids: range, more: bytes) -> None:
        for id in ids:
            await cluster.append(topic, (None, b'{"id":%d%b}' % (id, more)), partition=id % 2)

    for topic in (orders, users):
        await fill(topic, range(20), b"")
        await fill(topic, range(20, 40), b',"secret":"x"')
    source = cluster.source(format="json", fetch_bytes="1KiB")
    source._context = replace(source._context, report=told.append, refusal=refusal)
    ids: dict[str, list[int]] = {orders: [], users: []}
    positions: dict[str, str] = {}

    async def read_until(topic: str, count: int) -> None:
        if len(ids[topic]) >= count:
            return
        async with aclosing(source.changes(positions)) as batches:
            async for batch in batches:
                positions.update(batch.positions)
                for each in batch.tables:
                    ids[each.schema.table.name] += each.rows.column("id").to_pylist()
                if len(ids[topic]) >= count:
                    return

    await read_until(users, 40)
    await fill(users, range(40, 60), b"")
    await read_until(users, 60)
    before = len(ids[orders])
    held.clear()
    await read_until(orders, 40)

    assert before <= 20 and sorted(ids[orders]) == list(range(40))
    assert sorted(ids[users]) == list(range(60))
    remarks = [each for each in told if isinstance(each, Remark) and each.name == REFUSED]
    assert {each.finding.left_out for each in remarks if each.finding} == {(orders,)}


async def test_a_source_of_which_every_topic_is_held_stops(cluster: Cluster) -> None:
    async def refusal(schema: TableSchema, *, is_next: bool = False) -> ConfigError | None:
        return ConfigError("a rule hides it")

    topic = await cluster.topic("orders")
    await cluster.append(topic, (None, b'{"id":1}'))
    source = cluster.source(format="json")
    source._context = replace(source._context, refusal=refusal)

    with pytest.raises(ConfigError, match="a rule hides it"):
        async with aclosing(source.changes({})) as batches:
            async for batch in batches:
                assert not batch.tables
