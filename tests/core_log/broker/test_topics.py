"""Topics are made, deleted, widened and described as Kafka does it, in every version served."""

from uuid import UUID

import pytest

from headwater.core_log.broker.broker import Broker
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from headwater.core_log.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from headwater.core_log.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from headwater.core_log.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from headwater.core_log.protocol.primitives import ZERO_UUID
from tests.core_log.broker.in_memory import ask, create, fill, versions

NONE = ErrorCode.NONE


@pytest.mark.parametrize("version", versions(CreateTopicsRequest))
async def test_a_topic_is_created_and_described_in_one_answer(broker: Broker, version: int) -> None:
    topic = CreatableTopic(
        name="t",
        num_partitions=3,
        replication_factor=1,
        configs=[CreatableTopicConfig(name="retention.ms", value="5")],
    )

    response = await ask(broker, CreateTopicsRequest(topics=[topic]), version)

    created = response.topics[0]
    assert (created.error_code, created.error_message) == (NONE, None)
    assert [broker.find_led("t", index) is not None for index in range(4)] == [
        True,
        True,
        True,
        False,
    ]
    if version >= 5:
        assert (created.num_partitions, created.replication_factor) == (3, 1)
        values = {each.name: (each.value, each.config_source) for each in created.configs}
        assert values["retention.ms"] == ("5", 1)
        assert values["segment.ms"] == ("60000", 4)
        assert values["segment.bytes"] == ("1073741824", 5)
    if version >= 7:
        assert created.topic_id == broker.image.topics["t"].topic_id != ZERO_UUID


async def test_validating_a_topic_creates_nothing(broker: Broker) -> None:
    topic = CreatableTopic(name="t", num_partitions=2, replication_factor=1)

    response = await ask(broker, CreateTopicsRequest(topics=[topic], validate_only=True))

    assert (response.topics[0].error_code, response.topics[0].num_partitions) == (NONE, 2)
    assert response.topics[0].topic_id == ZERO_UUID
    assert not broker.image.topics and broker.find_led("t", 0) is None


async def test_each_topic_of_a_request_has_its_own_answer(broker: Broker) -> None:
    await create(broker, "there")
    assigned = [CreatableReplicaAssignment(partition_index=0, broker_ids=[1])]
    wanted = [
        CreatableTopic(name="there", num_partitions=1, replication_factor=1),
        CreatableTopic(name="../x", num_partitions=1, replication_factor=1),
        CreatableTopic(name="twice", num_partitions=1, replication_factor=1),
        CreatableTopic(name="twice", num_partitions=1, replication_factor=1),
        CreatableTopic(name="far", num_partitions=1, replication_factor=3),
        CreatableTopic(name="new", num_partitions=-1, replication_factor=-1, assignments=assigned),
    ]

    response = await ask(broker, CreateTopicsRequest(topics=wanted))

    assert {each.name: each.error_code for each in response.topics} == {
        "there": ErrorCode.TOPIC_ALREADY_EXISTS,
        "../x": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "twice": ErrorCode.INVALID_REQUEST,
        "far": ErrorCode.INVALID_REPLICATION_FACTOR,
        "new": NONE,
    }
    assert len(response.topics) == 5
    assert set(broker.image.topics) == {"there", "new"}


@pytest.mark.parametrize("version", versions(DeleteTopicsRequest))
async def test_a_deleted_topic_is_gone_with_its_files(broker: Broker, version: int) -> None:
    await create(broker, "t")
    topic_id = broker.image.topics["t"].topic_id
    if version >= 6:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=topic_id)])
    else:
        request = DeleteTopicsRequest(topic_names=["t"])

    response = await ask(broker, request, version)

    assert [(each.name, each.error_code) for each in response.responses] == [("t", NONE)]
    assert broker.find_led("t", 0) is None
    assert not broker.store.files.exists(broker.store.log_directory / "t-0")


async def test_deleting_what_is_not_there_says_so(broker: Broker) -> None:
    wanted = [
        DeleteTopicState(name="missing"),
        DeleteTopicState(topic_id=UUID(int=5)),
        DeleteTopicState(),
    ]

    response = await ask(broker, DeleteTopicsRequest(topics=wanted))

    assert [each.error_code for each in response.responses] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INVALID_REQUEST,
    ]
    assert [each.name for each in response.responses] == ["missing", None, None]


async def test_a_topic_made_again_under_its_name_begins_empty(broker: Broker) -> None:
    await create(broker, "t")
    old_id = broker.image.topics["t"].topic_id
    await fill(broker, "t", 5)
    await ask(broker, DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]))

    await create(broker, "t")

    partition = broker.find_led("t", 0)
    assert partition is not None and partition.log.end_offset == 0
    assert broker.image.topics["t"].topic_id != old_id


@pytest.mark.parametrize("version", versions(CreatePartitionsRequest))
async def test_partitions_are_added(broker: Broker, version: int) -> None:
    await create(broker, "t")
    by_hand = [CreatePartitionsAssignment(broker_ids=[1])] * 2
    wanted = [CreatePartitionsTopic(name="t", count=3, assignments=by_hand)]

    response = await ask(broker, CreatePartitionsRequest(topics=wanted), version)

    assert [(each.name, each.error_code) for each in response.results] == [("t", NONE)]
    assert broker.find_led("t", 2) is not None


async def test_validating_partitions_adds_none(broker: Broker) -> None:
    await create(broker, "t")
    wanted = [CreatePartitionsTopic(name="t", count=3, assignments=None)]

    response = await ask(broker, CreatePartitionsRequest(topics=wanted, validate_only=True))

    assert response.results[0].error_code == NONE
    assert len(broker.image.topics["t"].partitions) == 1


async def test_a_compacted_topic_keeps_its_partitions(broker: Broker) -> None:
    await create(broker, "t", cleanup_policy="compact")
    wanted = [CreatePartitionsTopic(name="t", count=2, assignments=None)]

    response = await ask(broker, CreatePartitionsRequest(topics=wanted))

    assert response.results[0].error_code == ErrorCode.POLICY_VIOLATION
    assert "compacted" in response.results[0].error_message


async def pages(broker: Broker, limit: int, *names: str) -> list[list[tuple[str, int]]]:
    """What each page holds, until there is none to follow."""
    found, cursor = [], None
    while True:
        request = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in names],
            response_partition_limit=limit,
            cursor=cursor,
        )
        response = await ask(broker, request)
        found.append(
            [
                (topic.name, each.partition_index)
                for topic in response.topics
                for each in topic.partitions
            ]
        )
        cursor = response.next_cursor
        if cursor is None:
            return found


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 100])
async def test_partitions_are_described_page_by_page(broker: Broker, limit: int) -> None:
    for name, count in (("a", 3), ("b", 1), ("c", 4)):
        await create(broker, name, count)
    everything = [("a", 0), ("a", 1), ("a", 2), ("b", 0), *(("c", each) for each in range(4))]

    found = await pages(broker, limit)

    assert [each for page in found for each in page] == everything
    assert {len(page) for page in found[:-1]} <= {limit}


async def test_only_the_topics_asked_for_are_described_and_unknown_ones_say_so(
    broker: Broker,
) -> None:
    await create(broker, "a")
    await create(broker, "b")
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in ("b", "missing", "..")]
    )

    response = await ask(broker, request)

    assert {each.name: each.error_code for each in response.topics} == {
        "..": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "b": NONE,
        "missing": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    [partition] = next(each for each in response.topics if each.name == "b").partitions
    assert (partition.leader_id, list(partition.isr_nodes)) == (1, [1])


async def test_a_page_cannot_begin_where_nothing_was_asked_for(broker: Broker) -> None:
    await create(broker, "a")
    for cursor in (
        Cursor(topic_name="z", partition_index=0),
        Cursor(topic_name="a", partition_index=-1),
    ):
        request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="a")], cursor=cursor)

        response = await ask(broker, request)

        assert [each.error_code for each in response.topics] == [ErrorCode.INVALID_REQUEST]
