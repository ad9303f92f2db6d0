"""A transaction over several brokers is visible whole or not at all, whoever coordinates it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from random import Random
from typing import Any

import pytest

from headwater.core_log.broker.broker import Broker
from headwater.core_log.broker.coordination import Coordination
from headwater.core_log.broker.partition import Partition
from headwater.core_log.broker.transaction_markers import TransactionMarker
from headwater.core_log.foundation.errors import LogUnavailable
from headwater.core_log.groups.group_coordinator import partition_of
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from headwater.core_log.protocol.messages.end_txn import EndTxnRequest
from headwater.core_log.protocol.messages.find_coordinator import FindCoordinatorRequest
from headwater.core_log.protocol.messages.init_producer_id import InitProducerIdRequest
from headwater.core_log.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from headwater.core_log.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from headwater.core_log.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from headwater.core_log.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from headwater.core_log.replication.decisions import Decision, NewTopic
from headwater.core_log.replication.elections import change_in_sync
from headwater.core_log.replication.metadata import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from tests.builders import Sequenced, batch, values_of
from tests.core_log.broker.replicated import Node, Replicated

TRIES_MAX = 20_000
PARTITIONS = 3
TV1 = {"produce": 11, "end": 4}
TV2 = {"produce": 12, "end": 5}
VERSIONS = pytest.mark.parametrize("versions", [TV1, TV2], ids=["version 1", "version 2"])


class Cluster(Replicated):
    """Three brokers with coordinators. Partition N of each topic is led by node N + 1."""

    async def begin(self) -> None:
        for node in self.nodes.values():
            node.broker.coordination = Coordination(node.broker, Random(node.node_id))
            node.broker.allocate_producer_ids = self._allocate  # type: ignore[method-assign]
        for name in ("data", OFFSETS_TOPIC, TRANSACTIONS_TOPIC):
            self.commit(self.controller.create_topics([NewTopic(name, PARTITIONS, 3)]))
        await self.tell(*self.nodes)
        for node in self.nodes.values():
            assert node.broker.coordination is not None
            await node.broker.coordination.load()

    async def _allocate(self) -> range:
        first = self._next_producer_id = getattr(self, "_next_producer_id", 1_000) + 10
        return range(first, first + 10)

    def leader_of(self, topic: str, index: int) -> Node:
        record = self.image.partition(topic, index)
        assert record is not None
        return self.nodes[record.leader]

    def coordinator_of(self, name: str, topic: str = TRANSACTIONS_TOPIC) -> Node:
        return self.leader_of(topic, partition_of(name, PARTITIONS))

    def led(self, index: int) -> Partition:
        found = self.leader_of("data", index).broker.find_led("data", index)
        assert found is not None
        return found

    async def move(self, topic: str, index: int, *, unheard_by: int = -1) -> None:
        """Its leader drops out; the next replica leads, and the others hear of it."""
        known, record = self.image.topic(topic), self.image.partition(topic, index)
        assert known is not None and record is not None
        rest = tuple(each for each in record.in_sync if each != record.leader)
        change = change_in_sync(record, rest, rest, self.controller._rules_of(known))
        assert change is not None and change.leader != record.leader
        self.commit(Decision(None, [change]))
        await self.tell(*(each for each in self.nodes if each != unheard_by))

    async def until(self, met: Callable[[], object]) -> None:
        for _ in range(TRIES_MAX):
            if met():
                return
            self.clock.advance(5)
            await asyncio.sleep(0.001)
        raise AssertionError("never")

    def seen(self) -> list[bytes | None]:
        """What readers of decided records see in all partitions."""
        found: list[bytes | None] = []
        for index in range(PARTITIONS):
            led = self.led(index)
            aborted = {
                (each.producer_id, each.first_offset)
                for each in led.log.find_aborted(0, led.log.end_offset)
            }
            below = led.last_stable_offset
            found += [value for offset, value in values_of(led.log) if offset < below]
            assert not aborted or not found, "these tests abort all or nothing"
        return found

    @property
    def open(self) -> int:
        return sum(len(self.led(each).log.producers.open_transactions()) for each in range(3))


class Producer:
    """A transactional client of either version, which knows the cluster."""

    def __init__(self, cluster: Cluster, versions: dict[str, int], name: str = "payments") -> None:
        self.cluster, self.versions, self.name = cluster, versions, name
        self.producer_id = self.epoch = -1
        self.sequences: dict[int, int] = {}

    @property
    def identity(self) -> dict[str, Any]:
        return {
            "transactional_id": self.name,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }

    async def asked(self, request: Any, version: int, code: Callable[[Any], int]) -> Any:
        """The answer of whoever coordinates, as soon as it is not to be asked again."""
        for _ in range(TRIES_MAX):
            answer = await self.cluster.coordinator_of(self.name).ask(request, version)
            if not ErrorCode(code(answer)).is_retriable:
                return answer
            self.cluster.clock.advance(5)
            await asyncio.sleep(0.001)
        raise AssertionError(f"never: {ErrorCode(code(answer)).name}")

    async def start(self) -> None:
        request = InitProducerIdRequest(
            transactional_id=self.name, transaction_timeout_ms=60_000, producer_epoch=-1
        )
        answer = await self.asked(request, 4, lambda each: each.error_code)
        assert answer.error_code == ErrorCode.NONE
        self.producer_id, self.epoch, self.sequences = answer.producer_id, answer.producer_epoch, {}

    async def add(self, *indexes: int) -> ErrorCode:
        topic = AddPartitionsToTxnTopic(name="data", partitions=indexes)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=(topic,),
        )

        def code(answer: Any) -> int:
            partitions = answer.results_by_topic_v3_and_below[0].results_by_partition
            return int(partitions[0].partition_error_code)

        return ErrorCode(code(await self.asked(request, 3, code)))

    async def produce(self, index: int, value: str) -> ErrorCode:
        sequence = self.sequences.get(index, 0)
        stamp = Sequenced(self.producer_id, self.epoch, sequence, is_transactional=True)
        part = PartitionProduceData(index=index, records=memoryview(batch(value, producer=stamp)))
        request = ProduceRequest(
            transactional_id=self.name,
            acks=-1,
            topic_data=[TopicProduceData(name="data", partition_data=[part])],
        )
        for _ in range(TRIES_MAX):
            leader = self.cluster.leader_of("data", index)
            answer = await leader.ask(request, self.versions["produce"])
            error = ErrorCode(answer.responses[0].partition_responses[0].error_code)
            if not error.is_retriable:
                self.sequences[index] = sequence + 1
                return error
            self.cluster.clock.advance(5)
            await asyncio.sleep(0.001)
        raise AssertionError(f"never: {error.name}")

    async def write(self, *indexes: int) -> None:
        if self.versions is TV1:
            assert await self.add(*indexes) is ErrorCode.NONE
        for index in indexes:
            assert await self.produce(index, f"{self.epoch}/{index}") is ErrorCode.NONE

    async def end(self, *, commit: bool = True) -> ErrorCode:
        request = EndTxnRequest(**self.identity, committed=commit)
        answer = await self.asked(request, self.versions["end"], lambda each: each.error_code)
        if answer.error_code == ErrorCode.NONE and self.versions is TV2:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences = {}
        return ErrorCode(answer.error_code)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    cluster = Cluster()
    await cluster.begin()
    yield cluster
    await cluster.close()


@VERSIONS
async def test_a_commit_reaches_the_partitions_of_all_brokers(
    cluster: Cluster, versions: dict[str, int]
) -> None:
    producer = Producer(cluster, versions)
    await producer.start()

    for _ in range(3):
        await producer.write(0, 1, 2)
        assert await producer.end() is ErrorCode.NONE
    await cluster.until(lambda: not cluster.open)

    assert len(cluster.seen()) == 9
    leaders = {cluster.leader_of("data", index).node_id for index in range(PARTITIONS)}
    assert leaders == {1, 2, 3}


@VERSIONS
async def test_an_abort_reaches_the_partitions_of_all_brokers(
    cluster: Cluster, versions: dict[str, int]
) -> None:
    producer = Producer(cluster, versions)
    await producer.start()

    await producer.write(0, 1, 2)
    assert await producer.end(commit=False) is ErrorCode.NONE
    await cluster.until(lambda: not cluster.open)

    counts = [len(cluster.led(each).log.find_aborted(0, 9)) for each in range(PARTITIONS)]
    assert counts == [1, 1, 1]


@VERSIONS
async def test_an_open_transaction_goes_on_when_its_coordinator_moves(
    cluster: Cluster, versions: dict[str, int]
) -> None:
    producer = Producer(cluster, versions)
    await producer.start()
    await producer.write(0, 1)

    await cluster.move(TRANSACTIONS_TOPIC, partition_of("payments", PARTITIONS))
    await producer.write(2)
    assert await producer.end() is ErrorCode.NONE
    await cluster.until(lambda: not cluster.open)

    assert len(cluster.seen()) == 3


@VERSIONS
@pytest.mark.parametrize("set_back_ms", [0, 3_600_000])
async def test_a_decided_transaction_is_finished_by_the_next_coordinator(
    cluster: Cluster, versions: dict[str, int], set_back_ms: int
) -> None:
    producer = Producer(cluster, versions)
    await producer.start()
    await producer.write(0, 1, 2)
    old = cluster.coordinator_of("payments")

    for node_id, node in cluster.nodes.items():
        if node is not old:
            old.links.cut(node_id)  # no marker leaves it
    assert await producer.end() is ErrorCode.NONE
    assert cluster.open == 2
    cluster.clock.set_back_ms = set_back_ms
    await cluster.move(TRANSACTIONS_TOPIC, partition_of("payments", PARTITIONS))
    await cluster.until(lambda: not cluster.open)

    assert len(cluster.seen()) == 3
    assert cluster.coordinator_of("payments") is not old


@VERSIONS
async def test_a_partition_that_moves_keeps_its_open_transaction(
    cluster: Cluster, versions: dict[str, int]
) -> None:
    producer = Producer(cluster, versions)
    await producer.start()
    await producer.write(0, 1)

    await cluster.move("data", 0)
    assert await producer.produce(0, "more") is ErrorCode.NONE
    assert await producer.end() is ErrorCode.NONE
    await cluster.until(lambda: not cluster.open)

    assert len(cluster.seen()) == 3


async def test_a_late_marker_does_not_end_the_next_transaction(cluster: Cluster) -> None:
    producer = Producer(cluster, TV2)
    await producer.start()
    await producer.write(0)
    await producer.end()
    await producer.write(0)
    marker = WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        transaction_result=True,
        topics=(WritableTxnMarkerTopic(name="data", partition_indexes=(0,)),),
        coordinator_epoch=cluster.image.partition(TRANSACTIONS_TOPIC, 0).leader_epoch,  # type: ignore[union-attr]
        transaction_version=2,
    )

    answer = await cluster.leader_of("data", 0).ask(WriteTxnMarkersRequest(markers=(marker,)))

    told = answer.markers[0].topics[0].partitions[0].error_code
    assert told == ErrorCode.INVALID_PRODUCER_EPOCH
    assert cluster.open == 1


async def test_a_verification_that_a_marker_has_overtaken_does_not_count(
    cluster: Cluster,
) -> None:
    producer = Producer(cluster, TV1)
    await producer.start()
    await producer.add(0)
    leader, coordinator = cluster.leader_of("data", 0), cluster.coordinator_of("payments")
    verify = coordinator.broker.transactions.verify_or_add

    async def answer_late(*asked: Any, **how: Any) -> Any:
        answer = await verify(*asked, **how)
        assert await producer.end() is ErrorCode.NONE
        return answer

    coordinator.broker.transactions.verify_or_add = answer_late  # type: ignore[method-assign]
    stamp = Sequenced(producer.producer_id, producer.epoch, 0, is_transactional=True)
    part = PartitionProduceData(index=0, records=memoryview(batch("late", producer=stamp)))
    request = ProduceRequest(
        transactional_id="payments",
        acks=-1,
        topic_data=[TopicProduceData(name="data", partition_data=[part])],
    )
    told = (await leader.ask(request, 11)).responses[0].partition_responses[0].error_code

    assert told == ErrorCode.NOT_ENOUGH_REPLICAS
    assert cluster.open == 0


async def test_a_transaction_that_ends_while_a_part_beside_is_verified_is_not_opened_again(
    cluster: Cluster,
) -> None:
    await cluster.move("data", 0)
    leader = cluster.leader_of("data", 0)
    beside = leader.node_id - 1
    assert cluster.leader_of("data", beside) is leader
    name = next(each for each in "abcde" if cluster.coordinator_of(each) is not leader)
    producer, coordinator = Producer(cluster, TV1, name), cluster.coordinator_of(name)
    await producer.start()
    await producer.write(beside)
    await producer.add(0)
    verify = coordinator.broker.transactions.verify_or_add

    async def answer_late(*asked: Any, **how: Any) -> Any:
        answer = await verify(*asked, **how)
        assert await producer.end(commit=False) is ErrorCode.NONE
        await cluster.until(lambda: not cluster.open)
        return answer

    coordinator.broker.transactions.verify_or_add = answer_late  # type: ignore[method-assign]
    parts = [
        PartitionProduceData(
            index=index,
            records=memoryview(
                batch(
                    "late",
                    producer=Sequenced(
                        producer.producer_id, producer.epoch, sequence, is_transactional=True
                    ),
                )
            ),
        )
        for index, sequence in ((0, 0), (beside, 1))
    ]
    topic = TopicProduceData(name="data", partition_data=parts)
    request = ProduceRequest(transactional_id=name, acks=-1, topic_data=[topic])
    told = (await leader.ask(request, 11)).responses[0].partition_responses

    assert [each.error_code for each in told] == [ErrorCode.NOT_ENOUGH_REPLICAS] * 2
    assert cluster.open == 0


@VERSIONS
async def test_offsets_are_committed_with_a_transaction_of_another_broker(
    cluster: Cluster, versions: dict[str, int]
) -> None:
    group = next(
        name
        for name in ("a", "b", "c", "d")
        if cluster.coordinator_of(name, OFFSETS_TOPIC) is not cluster.coordinator_of("payments")
    )
    producer = Producer(cluster, TV2)
    await producer.start()
    coordinator = cluster.coordinator_of(group, OFFSETS_TOPIC)
    partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=7)
    topic = TxnOffsetCommitRequestTopic(name="data", partitions=(partition,))
    request = TxnOffsetCommitRequest(**producer.identity, group_id=group, topics=(topic,))

    async def committed() -> list[int]:
        node = cluster.coordinator_of(group, OFFSETS_TOPIC)
        asked = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=group, topics=None),))
        answer = await node.ask(asked, 8)
        return [each.committed_offset for t in answer.groups[0].topics for each in t.partitions]

    answer = await coordinator.ask(request, 5)
    before = await committed()
    assert await producer.end() is ErrorCode.NONE
    await cluster.until(lambda: coordinator.broker.groups.offsets_of(group))

    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
    assert (before, await committed()) == ([], [7])
    await cluster.move(OFFSETS_TOPIC, partition_of(group, PARTITIONS))
    moved = cluster.coordinator_of(group, OFFSETS_TOPIC)
    await cluster.until(lambda: moved.broker.groups.check(group) is ErrorCode.NONE)
    assert await committed() == [7]


async def test_any_broker_knows_the_coordinators(cluster: Cluster) -> None:
    request = FindCoordinatorRequest(key_type=1, coordinator_keys=("payments",))
    await cluster.move(TRANSACTIONS_TOPIC, partition_of("payments", PARTITIONS))

    told = [await node.ask(request) for node in cluster.nodes.values()]

    assert {each.coordinators[0].node_id for each in told} == {
        cluster.coordinator_of("payments").node_id
    }


async def test_a_partition_that_a_coordinator_has_not_heard_of_is_not_taken_for_deleted(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.commit(cluster.controller.create_topics([NewTopic("new", 1, 3)]))
    leader = cluster.leader_of("new", 0)
    behind = next(node for node in cluster.nodes.values() if node is not leader)
    await cluster.tell(*(each for each in cluster.nodes if each != behind.node_id))
    at, marker = TopicPartition("new", 0), TransactionMarker(7, 1, False, 0, 1)
    can_ask: list[bool] = []

    async def catch_up(broker: Broker) -> None:
        if not can_ask:
            raise LogUnavailable("the cluster has no controller at the moment")
        await cluster.tell(behind.node_id)

    monkeypatch.setattr("headwater.core_log.broker.transaction_markers.catch_up", catch_up)

    unsure = await behind.broker.markers.write(marker, [at])
    can_ask.append(True)
    left = await behind.broker.markers.write(marker, [at])
    deleted = await behind.broker.markers.write(marker, [TopicPartition("gone", 0)])

    partition = leader.broker.find_led("new", 0)
    assert partition is not None
    assert (unsure, left, deleted) == ([at], [], [])
    assert partition.high_watermark == partition.log.end_offset == 1
