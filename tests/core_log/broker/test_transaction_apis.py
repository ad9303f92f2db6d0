"""Transactions are answered as Kafka answers them, in the words of every version."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from headwater.core_log.broker.broker import Broker
from headwater.core_log.groups.transactions import ProducerIdentity
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from headwater.core_log.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from headwater.core_log.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headwater.core_log.protocol.messages.end_txn import EndTxnRequest
from headwater.core_log.protocol.messages.find_coordinator import FindCoordinatorRequest
from headwater.core_log.protocol.messages.init_producer_id import InitProducerIdRequest
from headwater.core_log.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from headwater.core_log.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from headwater.core_log.replication.metadata import OFFSETS_TOPIC
from tests.core_log.broker.in_memory import ask, started
from tests.fakes import MemoryFiles

TIMEOUT_MS = 60_000


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    broker = await started(MemoryFiles(), internal_partitions=2)
    topic = CreatableTopic(name="orders", num_partitions=2, replication_factor=1)
    await ask(broker, CreateTopicsRequest(topics=(topic,), timeout_ms=1000))
    for key_type in (0, 1):
        await ask(broker, FindCoordinatorRequest(key_type=key_type, coordinator_keys=("x",)))
    yield broker
    await broker.close()


async def init(broker: Broker, version: int | None = None, **fields: Any) -> Any:
    chosen: dict[str, Any] = {"transactional_id": "id", "transaction_timeout_ms": TIMEOUT_MS}
    return await ask(broker, InitProducerIdRequest(**chosen | fields), version)


async def begin(broker: Broker) -> dict[str, Any]:
    """Who the producer is, as its requests say it."""
    answer = await init(broker)
    return {
        "transactional_id": "id",
        "producer_id": answer.producer_id,
        "producer_epoch": answer.producer_epoch,
    }


async def commit_offsets(
    broker: Broker, version: int, producer: dict[str, Any], offset: int = 5, **fields: Any
) -> list[ErrorCode]:
    partitions = tuple(
        TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
        for index in (0, 7)
    )
    topic = TxnOffsetCommitRequestTopic(name="orders", partitions=partitions)
    fields = {"group_id": "g", "topics": (topic,)} | fields
    answer = await ask(broker, TxnOffsetCommitRequest(**producer, **fields), version)
    return codes(answer.topics[0].partitions)


async def committed(broker: Broker, *, require_stable: bool = True) -> tuple[int, ErrorCode]:
    wanted = OffsetFetchRequestTopics(name="orders", partition_indexes=(0,))
    group = OffsetFetchRequestGroup(group_id="g", topics=(wanted,))
    request = OffsetFetchRequest(groups=(group,), require_stable=require_stable)
    partition = (await ask(broker, request, 9)).groups[0].topics[0].partitions[0]
    return partition.committed_offset, ErrorCode(partition.error_code)


def codes(partitions: Sequence[Any]) -> list[ErrorCode]:
    return [ErrorCode(each.error_code) for each in partitions]


@pytest.mark.parametrize("version", range(7))
async def test_a_producer_gets_an_id_in_every_version(broker: Broker, version: int) -> None:
    first = await init(broker, version)
    again = await init(broker, version)

    assert (first.error_code, first.producer_epoch) == (ErrorCode.NONE, 0)
    assert (again.producer_id, again.producer_epoch) == (first.producer_id, 1)


@pytest.mark.parametrize("version", range(3, 7))
async def test_a_producer_that_is_not_the_current_one_is_fenced(
    broker: Broker, version: int
) -> None:
    first = await init(broker, version)
    await init(broker, version)

    late = await init(broker, version, producer_id=first.producer_id, producer_epoch=0)

    fenced = ErrorCode.PRODUCER_FENCED if version >= 4 else ErrorCode.INVALID_PRODUCER_EPOCH
    assert late.error_code == fenced


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"transactional_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"producer_id": 7}, ErrorCode.INVALID_REQUEST),
        ({"transaction_timeout_ms": 0}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"transaction_timeout_ms": 900_001}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"enable2_pc": True}, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        ({"keep_prepared_txn": True}, ErrorCode.UNSUPPORTED_VERSION),
    ],
)
async def test_an_invalid_request_for_a_producer_id_is_refused(
    broker: Broker, fields: dict[str, Any], error: ErrorCode
) -> None:
    answer = await init(broker, **fields)

    assert (answer.error_code, answer.producer_id) == (error, -1)


async def test_an_idempotent_producer_needs_no_name(broker: Broker) -> None:
    first = await init(broker, transactional_id=None)
    second = await init(broker, transactional_id=None)

    assert first.error_code == second.error_code == ErrorCode.NONE
    assert first.producer_id != second.producer_id


def announcement(version: int, producer: dict[str, Any], *names: str) -> AddPartitionsToTxnRequest:
    topics = tuple(AddPartitionsToTxnTopic(name=name, partitions=(0,)) for name in names)
    if version >= 4:
        one = AddPartitionsToTxnTransaction(**producer, topics=topics)
        return AddPartitionsToTxnRequest(transactions=(one,))
    older = {f"v3_and_below_{name}": value for name, value in producer.items()}
    return AddPartitionsToTxnRequest(**older, v3_and_below_topics=topics)


def announced(version: int, answer: Any) -> list[ErrorCode]:
    topics = answer.results_by_topic_v3_and_below
    if version >= 4:
        topics = answer.results_by_transaction[0].topic_results
    return [ErrorCode(topic.results_by_partition[0].partition_error_code) for topic in topics]


@pytest.mark.parametrize("version", range(6))
async def test_partitions_are_added_all_or_none(broker: Broker, version: int) -> None:
    producer = await begin(broker)

    refused = await ask(broker, announcement(version, producer, "orders", "nothing"), version)
    granted = await ask(broker, announcement(version, producer, "orders"), version)

    assert announced(version, refused) == [
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert announced(version, granted) == [ErrorCode.NONE]


@pytest.mark.parametrize("version", range(6))
async def test_a_fenced_producer_adds_nothing(broker: Broker, version: int) -> None:
    producer = await begin(broker)
    await init(broker)

    answer = await ask(broker, announcement(version, producer, "orders"), version)

    fenced = ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
    assert announced(version, answer) == [fenced]


@pytest.mark.parametrize("version", range(6))
async def test_a_transaction_ends_in_every_version(broker: Broker, version: int) -> None:
    producer = await begin(broker)
    await ask(broker, announcement(3, producer, "orders"), 3)

    ended = await ask(broker, EndTxnRequest(**producer, committed=True), version)
    again = await ask(broker, EndTxnRequest(**producer, committed=True), version)
    await init(broker)
    late = await ask(broker, EndTxnRequest(**producer, committed=True), version)

    following = (producer["producer_id"], 1) if version >= 5 else (-1, -1)
    for answer in (ended, again):
        assert answer.error_code == ErrorCode.NONE
        assert (answer.producer_id, answer.producer_epoch) == following
    fenced = ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
    assert late.error_code == fenced


@pytest.mark.parametrize("version", range(6))
async def test_offsets_count_from_the_commit_on(broker: Broker, version: int) -> None:
    producer = await begin(broker)
    if version < 5:
        await ask(broker, AddOffsetsToTxnRequest(**producer, group_id="g"))

    errors = await commit_offsets(broker, version, producer)
    undecided = await committed(broker)
    meanwhile = await committed(broker, require_stable=False)
    await ask(broker, EndTxnRequest(**producer, committed=True), 5 if version >= 5 else 3)

    assert errors == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert undecided == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    assert meanwhile == (-1, ErrorCode.NONE)
    assert await committed(broker) == (5, ErrorCode.NONE)


async def test_aborted_offsets_never_count(broker: Broker) -> None:
    producer = await begin(broker)
    await commit_offsets(broker, 5, producer)

    await ask(broker, EndTxnRequest(**producer, committed=False))

    assert await committed(broker) == (-1, ErrorCode.NONE)


@pytest.mark.parametrize("version", range(6))
async def test_offsets_of_a_group_that_was_not_announced_are_refused(
    broker: Broker, version: int
) -> None:
    producer = await begin(broker)

    errors = await commit_offsets(broker, version, producer)

    refused = ErrorCode.TRANSACTION_ABORTABLE if version >= 4 else ErrorCode.INVALID_TXN_STATE
    assert errors[0] is (ErrorCode.NONE if version >= 5 else refused)


@pytest.mark.parametrize("version", range(6))
async def test_offsets_of_a_transaction_that_lost_of_itself_are_refused_as_a_reason_to_abort(
    broker: Broker, version: int
) -> None:
    producer = await begin(broker)
    await ask(broker, AddOffsetsToTxnRequest(**producer, group_id="g"), 3)
    partition = TopicPartition(OFFSETS_TOPIC, broker.groups.partition_of("g"))
    await broker.transactions.on_partition_reopened(partition, [], is_whole=False)

    errors = await commit_offsets(broker, version, producer)

    older, newer = ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.TRANSACTION_ABORTABLE
    assert errors[0] is (newer if version >= 4 else older)


async def test_offsets_of_a_member_of_yesterday_are_refused(broker: Broker) -> None:
    producer = await begin(broker)

    errors = await commit_offsets(broker, 5, producer, generation_id=3, member_id="m")

    assert errors[0] is ErrorCode.ILLEGAL_GENERATION


@pytest.mark.parametrize("version", range(5))
async def test_offsets_of_a_fenced_producer_are_not_announced(broker: Broker, version: int) -> None:
    producer = await begin(broker)
    await init(broker)

    answer = await ask(broker, AddOffsetsToTxnRequest(**producer, group_id="g"), version)

    fenced = ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
    assert answer.error_code == fenced


async def test_a_transaction_survives_a_clean_restart_of_its_broker() -> None:
    files = MemoryFiles()
    broker = await started(files, internal_partitions=2)
    topic = CreatableTopic(name="orders", num_partitions=2, replication_factor=1)
    await ask(broker, CreateTopicsRequest(topics=(topic,), timeout_ms=1000))
    for key_type in (0, 1):
        await ask(broker, FindCoordinatorRequest(key_type=key_type, coordinator_keys=("x",)))
    producer = await begin(broker)
    await commit_offsets(broker, 5, producer)
    await broker.close()

    broker = await started(files, internal_partitions=2)
    undecided = await committed(broker)
    ended = await ask(broker, EndTxnRequest(**producer, committed=True))
    after = await committed(broker)
    await broker.close()

    assert undecided == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    assert ended.error_code == ErrorCode.NONE
    assert after == (5, ErrorCode.NONE)


async def test_only_what_was_announced_is_verified(broker: Broker) -> None:
    producer = await begin(broker)
    await ask(broker, announcement(3, producer, "orders"), 3)
    topics = (AddPartitionsToTxnTopic(name="orders", partitions=(0, 1)),)
    one = AddPartitionsToTxnTransaction(**producer, verify_only=True, topics=topics)

    answer = await ask(broker, AddPartitionsToTxnRequest(transactions=(one,)), 5)

    results = answer.results_by_transaction[0].topic_results[0].results_by_partition
    assert [ErrorCode(each.partition_error_code) for each in results] == [
        ErrorCode.NONE,
        ErrorCode.TRANSACTION_ABORTABLE,
    ]
    identity = ProducerIdentity(producer["producer_id"], producer["producer_epoch"])
    partition = TopicPartition("orders", 1)
    verdicts = await broker.transactions.verify_or_add("id", *identity, [partition], may_add=False)
    assert verdicts == {partition: ErrorCode.TRANSACTION_ABORTABLE}
