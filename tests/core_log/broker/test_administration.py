"""Administrative requests are answered as Kafka answers them, in every version served."""

from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import pytest

from core_log.broker.broker import Broker
from core_log.broker.state_log import PartitionStateLog
from core_log.protocol.error_codes import ErrorCode
from core_log.protocol.messages import alter_configs as replacing
from core_log.protocol.messages import incremental_alter_configs as changing
from core_log.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from core_log.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from core_log.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from core_log.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from core_log.protocol.messages.describe_cluster import DescribeClusterRequest
from core_log.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from core_log.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from core_log.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from core_log.protocol.primitives import ZERO_UUID
from core_log.replication.metadata import OFFSETS_TOPIC
from tests.core_log.broker.in_memory import ask, started
from tests.fakes import MemoryFiles

TOPIC, BROKER = 2, 4
NONE = ErrorCode.NONE


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    broker = await started(MemoryFiles(), config={"segment.ms": "60000"})
    yield broker
    await broker.close()


async def create(broker: Broker, name: str, partitions: int = 1, **config: str) -> Any:
    configs = [
        CreatableTopicConfig(name=key.replace("_", "."), value=value)
        for key, value in config.items()
    ]
    topic = CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=1, configs=configs
    )
    response = await ask(broker, CreateTopicsRequest(topics=[topic]))
    return response.topics[0]


def versions(request: Any) -> list[int]:
    low, high = request.versions
    return list(range(low, high + 1))


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
    assert [broker.led("t", index) is not None for index in range(4)] == [True, True, True, False]
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
    assert not broker.image.topics and broker.led("t", 0) is None


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
    assert broker.led("t", 0) is None
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

    partition = broker.led("t", 0)
    assert partition is not None and partition.log.end_offset == 0
    assert broker.image.topics["t"].topic_id != old_id


@pytest.mark.parametrize("version", versions(CreatePartitionsRequest))
async def test_partitions_are_added(broker: Broker, version: int) -> None:
    await create(broker, "t")
    by_hand = [CreatePartitionsAssignment(broker_ids=[1])] * 2
    wanted = [CreatePartitionsTopic(name="t", count=3, assignments=by_hand)]

    response = await ask(broker, CreatePartitionsRequest(topics=wanted), version)

    assert [(each.name, each.error_code) for each in response.results] == [("t", NONE)]
    assert broker.led("t", 2) is not None


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


def resource(kind: int, name: str, *keys: str) -> DescribeConfigsResource:
    return DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=keys or None
    )


@pytest.mark.parametrize("version", versions(DescribeConfigsRequest))
async def test_the_configuration_of_a_topic_is_explained(broker: Broker, version: int) -> None:
    await create(broker, "t", retention_ms="5")
    request = DescribeConfigsRequest(
        resources=[resource(TOPIC, "t", "retention.ms", "segment.ms")],
        include_synonyms=True,
        include_documentation=version >= 3,
    )

    response = await ask(broker, request, version)

    retention, segment = response.results[0].configs
    assert (retention.name, retention.value, retention.config_source) == ("retention.ms", "5", 1)
    assert [(each.name, each.value, each.source) for each in retention.synonyms] == [
        ("retention.ms", "5", 1),
        ("log.retention.ms", "604800000", 5),
    ]
    assert (segment.value, segment.config_source) == ("60000", 4)
    assert not (retention.read_only or retention.is_sensitive)
    if version >= 3:
        assert retention.config_type == 5
        assert retention.documentation.endswith(".")


async def test_the_settings_of_this_broker_are_shown_and_cannot_be_set(broker: Broker) -> None:
    request = DescribeConfigsRequest(resources=[resource(BROKER, "1"), resource(BROKER, "")])

    response = await ask(broker, request)

    own, common = response.results
    values = {each.name: (each.value, each.config_source) for each in own.configs}
    assert values["node.id"] == ("1", 5)
    assert values["auto.create.topics.enable"] == ("true", 5)
    assert values["log.roll.ms"] == ("60000", 4)
    assert values["message.max.bytes"] == ("1048588", 5)
    assert all(each.read_only for each in own.configs)
    assert (common.error_code, list(common.configs)) == (NONE, [])


async def test_what_has_no_configuration_says_so(broker: Broker) -> None:
    wanted = {
        (TOPIC, "missing"): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (TOPIC, ".."): ErrorCode.INVALID_TOPIC_EXCEPTION,
        (BROKER, "2"): ErrorCode.INVALID_REQUEST,
        (BROKER, "one"): ErrorCode.INVALID_REQUEST,
        (32, "group"): ErrorCode.INVALID_REQUEST,
        (0, "x"): ErrorCode.INVALID_REQUEST,
    }
    request = DescribeConfigsRequest(resources=[resource(*each) for each in wanted])

    response = await ask(broker, request)

    assert [each.error_code for each in response.results] == list(wanted.values())
    assert [(each.resource_type, each.resource_name) for each in response.results] == list(wanted)


def replacement(kind: int, name: str, **config: str | None) -> replacing.AlterConfigsResource:
    return replacing.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            replacing.AlterableConfig(name=key.replace("_", "."), value=value)
            for key, value in config.items()
        ],
    )


def change(kind: int, name: str, *each: tuple[str, int, str | None]) -> Any:
    return changing.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            changing.AlterableConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in each
        ],
    )


@pytest.mark.parametrize("version", versions(replacing.AlterConfigsRequest))
async def test_a_configuration_is_replaced_and_takes_hold(broker: Broker, version: int) -> None:
    await create(broker, "t", retention_ms="5", segment_bytes="1000")
    request = replacing.AlterConfigsRequest(
        resources=[replacement(TOPIC, "t", max_message_bytes="77")]
    )

    response = await ask(broker, request, version)

    assert response.responses[0].error_code == NONE
    assert broker.image.topics["t"].config == {"max.message.bytes": "77"}
    partition = broker.led("t", 0)
    assert partition is not None and partition.log.config.max_message_bytes == 77


@pytest.mark.parametrize("version", versions(changing.IncrementalAlterConfigsRequest))
async def test_single_settings_change_and_take_hold(broker: Broker, version: int) -> None:
    await create(broker, "t", retention_ms="5")
    request = changing.IncrementalAlterConfigsRequest(
        resources=[
            change(TOPIC, "t", ("segment.bytes", 0, "1000"), ("cleanup.policy", 2, "compact"))
        ]
    )

    response = await ask(broker, request, version)

    assert (response.responses[0].error_code, response.responses[0].error_message) == (NONE, None)
    assert broker.image.topics["t"].config == {
        "retention.ms": "5",
        "segment.bytes": "1000",
        "cleanup.policy": "delete,compact",
    }
    partition = broker.led("t", 0)
    assert partition is not None and partition.log.config.is_compacted


async def test_validating_a_configuration_changes_nothing(broker: Broker) -> None:
    await create(broker, "t")
    by_key = changing.IncrementalAlterConfigsRequest(
        resources=[change(TOPIC, "t", ("segment.bytes", 0, "1000"))], validate_only=True
    )
    whole = replacing.AlterConfigsRequest(
        resources=[replacement(TOPIC, "t", segment_bytes="1000")], validate_only=True
    )

    responses = [await ask(broker, each) for each in (by_key, whole)]

    assert [each.responses[0].error_code for each in responses] == [NONE, NONE]
    assert broker.image.topics["t"].config == {}


async def test_configurations_that_cannot_be_set_say_why(broker: Broker) -> None:
    await create(broker, "t")
    await create(broker, "u")
    setting = ("segment.bytes", 0, "1000")
    wanted = [
        (change(TOPIC, "missing", setting), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (change(TOPIC, "", setting), ErrorCode.INVALID_REQUEST),
        (change(TOPIC, "t", ("segment.bytes", 0, "-1")), ErrorCode.INVALID_CONFIG),
        (change(TOPIC, "u", setting, setting), ErrorCode.INVALID_REQUEST),
        (change(BROKER, "1", ("log.retention.ms", 0, "1")), ErrorCode.INVALID_REQUEST),
        (change(BROKER, "9", ("log.retention.ms", 0, "1")), ErrorCode.INVALID_REQUEST),
        (change(8, "1", ("root", 0, "DEBUG")), ErrorCode.INVALID_REQUEST),
    ]
    request = changing.IncrementalAlterConfigsRequest(resources=[each for each, _ in wanted])

    response = await ask(broker, request)

    assert [each.error_code for each in response.responses] == [code for _, code in wanted]
    assert all(each.error_message for each in response.responses)


async def test_an_operation_nobody_knows_is_refused(broker: Broker) -> None:
    await create(broker, "t")
    request = changing.IncrementalAlterConfigsRequest(
        resources=[change(TOPIC, "t", ("segment.bytes", 9, "1000"))]
    )

    response = await ask(broker, request)

    assert response.responses[0].error_code == ErrorCode.INVALID_REQUEST


async def test_a_resource_named_twice_is_left_alone(broker: Broker) -> None:
    await create(broker, "t")
    request = replacing.AlterConfigsRequest(
        resources=[
            replacement(TOPIC, "t", segment_bytes="1000"),
            replacement(TOPIC, "t", segment_ms="1000"),
        ]
    )

    response = await ask(broker, request)

    assert [each.error_code for each in response.responses] == [ErrorCode.INVALID_REQUEST] * 2
    assert broker.image.topics["t"].config == {}


@pytest.mark.parametrize("version", versions(DescribeClusterRequest))
async def test_the_cluster_is_this_broker_where_it_was_asked(broker: Broker, version: int) -> None:
    response = await ask(broker, DescribeClusterRequest(), version)

    assert response.error_code == NONE
    assert (response.cluster_id, response.controller_id) == (broker.cluster_id, 1)
    assert [(each.broker_id, each.host, each.port) for each in response.brokers] == [
        (1, "127.0.0.1", 19092)
    ]


async def test_controllers_are_asked_for_elsewhere(broker: Broker) -> None:
    controllers = await ask(broker, DescribeClusterRequest(endpoint_type=2))
    nonsense = await ask(broker, DescribeClusterRequest(endpoint_type=7))

    assert controllers.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE
    assert nonsense.error_code == ErrorCode.UNSUPPORTED_ENDPOINT_TYPE


async def fill(broker: Broker, topic: str, count: int) -> None:
    partition = broker.led(topic, 0)
    assert partition is not None
    log = PartitionStateLog(partition, broker.clock)
    for _ in range(count):
        log.append([(b"key", b"value")])
    await log.durable(log.end_offset)


@pytest.mark.parametrize("version", versions(DescribeLogDirsRequest))
async def test_bytes_are_shown_per_partition(broker: Broker, version: int) -> None:
    await create(broker, "t", partitions=2)
    await create(broker, "u")
    await fill(broker, "t", 3)
    some = [DescribableLogDirTopic(topic="t", partitions=[0, 9])]

    everything = await ask(broker, DescribeLogDirsRequest(topics=None), version)
    chosen = await ask(broker, DescribeLogDirsRequest(topics=some), version)

    assert len(everything.results) == 1 and everything.results[0].log_dir == "/data/log"
    assert {each.name: len(each.partitions) for each in everything.results[0].topics} == {
        "t": 2,
        "u": 1,
    }
    [topic] = chosen.results[0].topics
    [partition] = topic.partitions
    assert (partition.partition_index, partition.is_future_key) == (0, False)
    assert partition.partition_size > 3 * 61


async def delete_before(broker: Broker, topic: str, offset: int, *, index: int = 0) -> Any:
    partitions = [DeleteRecordsPartition(partition_index=index, offset=offset)]
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=partitions)])
    response = await ask(broker, request)
    [outcome] = response.topics[0].partitions
    return outcome


@pytest.mark.parametrize(("offset", "start"), [(0, 0), (3, 3), (5, 5), (-1, 5)])
async def test_records_are_deleted_up_to_an_offset(broker: Broker, offset: int, start: int) -> None:
    await create(broker, "t")
    await fill(broker, "t", 5)

    outcome = await delete_before(broker, "t", offset)

    partition = broker.led("t", 0)
    assert partition is not None and partition.log.start_offset == start
    assert (outcome.error_code, outcome.low_watermark) == (NONE, start)


async def test_deleting_less_than_before_changes_nothing(broker: Broker) -> None:
    await create(broker, "t")
    await fill(broker, "t", 5)
    await delete_before(broker, "t", 4)

    outcome = await delete_before(broker, "t", 2)

    assert (outcome.error_code, outcome.low_watermark) == (NONE, 4)


async def test_records_that_must_stay_are_not_deleted(broker: Broker) -> None:
    await create(broker, "t")
    await create(broker, "compacted", cleanup_policy="compact")
    await create(broker, "both", cleanup_policy="compact,delete")
    await broker.create_unknown(OFFSETS_TOPIC, may_create=True)
    for topic in ("t", "compacted", "both"):
        await fill(broker, topic, 2)

    outcomes = {
        "beyond": await delete_before(broker, "t", 3),
        "negative": await delete_before(broker, "t", -2),
        "compacted": await delete_before(broker, "compacted", 1),
        "internal": await delete_before(broker, OFFSETS_TOPIC, 0),
        "partition": await delete_before(broker, "t", 1, index=7),
        "topic": await delete_before(broker, "missing", 1),
        "both": await delete_before(broker, "both", 1),
    }

    assert {name: each.error_code for name, each in outcomes.items()} == {
        "beyond": ErrorCode.OFFSET_OUT_OF_RANGE,
        "negative": ErrorCode.OFFSET_OUT_OF_RANGE,
        "compacted": ErrorCode.POLICY_VIOLATION,
        "internal": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "partition": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "topic": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "both": NONE,
    }
    assert [each.low_watermark for each in outcomes.values()] == [-1] * 6 + [1]


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
