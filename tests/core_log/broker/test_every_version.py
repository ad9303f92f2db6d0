"""Every advertised version of every API is answered, and in its own format."""

from collections.abc import AsyncIterator, Callable
from typing import Any
from uuid import UUID

import pytest
import pytest_asyncio

from headwater.core_log.broker.dispatch import load_handlers
from headwater.core_log.broker.lifecycle import RunningBroker
from headwater.core_log.embedded import InProcessChannel
from headwater.core_log.foundation.settings import BrokerSettings
from headwater.core_log.protocol import message
from headwater.core_log.protocol.frames import read_response_header, request_frame
from headwater.core_log.protocol.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_configs,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_configs,
    describe_groups,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_offsets,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
    txn_offset_commit,
)
from headwater.core_log.records.record_codec import PlainRecord, encode_batch

TOPIC = "orders"
BATCH = memoryview(encode_batch([PlainRecord(b"k", b"v", timestamp_ms=1)]))
SERVED = load_handlers()
EVERY_VERSION = [
    pytest.param(served.request, version, id=f"{served.name}-{version}")
    for served in SERVED.values()
    for version in range(served.versions[0], served.versions[1] + 1)
]


def ask_metadata(kind: Any, version: int, topic_id: UUID) -> Any:
    return kind(topics=[metadata.MetadataRequestTopic(name=TOPIC)])


def ask_produce(kind: Any, version: int, topic_id: UUID) -> Any:
    named: dict[str, Any] = {"topic_id": topic_id} if version >= 13 else {"name": TOPIC}
    part = produce.PartitionProduceData(index=0, records=BATCH)
    return kind(
        acks=-1,
        timeout_ms=1000,
        topic_data=[produce.TopicProduceData(**named, partition_data=[part])],
    )


def ask_fetch(kind: Any, version: int, topic_id: UUID) -> Any:
    named: dict[str, Any] = {"topic_id": topic_id} if version >= 13 else {"topic": TOPIC}
    part = fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    return kind(topics=[fetch.FetchTopic(**named, partitions=[part])], max_bytes=1 << 20)


def ask_list_offsets(kind: Any, version: int, topic_id: UUID) -> Any:
    parts = [
        list_offsets.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        for timestamp in (-1, -2, -3, -4, -5, -6, -101, -102, 0)
    ]
    return kind(
        replica_id=-1,
        topics=[list_offsets.ListOffsetsTopic(name=TOPIC, partitions=parts)],
    )


def ask_offset_for_leader_epoch(kind: Any, version: int, topic_id: UUID) -> Any:
    part = offset_for_leader_epoch.OffsetForLeaderPartition(partition=0, leader_epoch=0)
    topic = offset_for_leader_epoch.OffsetForLeaderTopic(topic=TOPIC, partitions=[part])
    return kind(topics=[topic])


def ask_create_topics(kind: Any, version: int, topic_id: UUID) -> Any:
    new = create_topics.CreatableTopic(
        name=f"new-{version}", num_partitions=1, replication_factor=1
    )
    return kind(topics=[new], timeout_ms=1000)


def ask_delete_topics(kind: Any, version: int, topic_id: UUID) -> Any:
    gone = f"gone-{version}"
    if version >= 6:
        return kind(topics=[delete_topics.DeleteTopicState(name=gone)])
    return kind(topic_names=[gone])


def ask_delete_records(kind: Any, version: int, topic_id: UUID) -> Any:
    part = delete_records.DeleteRecordsPartition(partition_index=0, offset=0)
    return kind(topics=[delete_records.DeleteRecordsTopic(name=TOPIC, partitions=[part])])


def ask_create_partitions(kind: Any, version: int, topic_id: UUID) -> Any:
    return kind(topics=[create_partitions.CreatePartitionsTopic(name=TOPIC, count=1)])


def ask_describe_configs(kind: Any, version: int, topic_id: UUID) -> Any:
    return kind(
        resources=[describe_configs.DescribeConfigsResource(resource_type=2, resource_name=TOPIC)]
    )


def ask_alter_configs(kind: Any, version: int, topic_id: UUID) -> Any:
    return kind(
        resources=[alter_configs.AlterConfigsResource(resource_type=2, resource_name=TOPIC)]
    )


def ask_incremental_alter_configs(kind: Any, version: int, topic_id: UUID) -> Any:
    return kind(
        resources=[
            incremental_alter_configs.AlterConfigsResource(resource_type=2, resource_name=TOPIC)
        ]
    )


def ask_find_coordinator(kind: Any, version: int, topic_id: UUID) -> Any:
    return kind(coordinator_keys=["g"]) if version >= 4 else kind(key="g")


def ask_join_group(kind: Any, version: int, topic_id: UUID) -> Any:
    protocol = join_group.JoinGroupRequestProtocol(name="range", metadata=b"")
    return kind(
        group_id=f"g{version}",
        session_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[protocol],
    )


def ask_sync_group_heartbeat(kind: Any, version: int, topic_id: UUID) -> Any:
    return kind(group_id="g", generation_id=1, member_id="m")


def ask_leave_group(kind: Any, version: int, topic_id: UUID) -> Any:
    if version >= 3:
        return kind(group_id="g", members=[leave_group.MemberIdentity(member_id="m")])
    return kind(group_id="g", member_id="m")


def ask_offset_commit(kind: Any, version: int, topic_id: UUID) -> Any:
    part = offset_commit.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_metadata="m"
    )
    named: dict[str, Any] = {"topic_id": topic_id} if version >= 10 else {"name": TOPIC}
    topic = offset_commit.OffsetCommitRequestTopic(**named, partitions=[part])
    return kind(group_id="g", topics=[topic])


def ask_offset_fetch(kind: Any, version: int, topic_id: UUID) -> Any:
    if version >= 8:
        return kind(groups=[offset_fetch.OffsetFetchRequestGroup(group_id="g")])
    topic = offset_fetch.OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])
    return kind(group_id="g", topics=[topic])


def ask_offset_delete_describe_groups(kind: Any, version: int, topic_id: UUID) -> Any:
    return kind(group_id="g") if kind is offset_delete.OffsetDeleteRequest else kind(groups=["g"])


def ask_delete_groups(kind: Any, version: int, topic_id: UUID) -> Any:
    return kind(groups_names=["g"])


def ask_init_producer_id(kind: Any, version: int, topic_id: UUID) -> Any:
    return kind(transactional_id=f"t{version}", transaction_timeout_ms=1000)


def ask_add_partitions_to_txn(kind: Any, version: int, topic_id: UUID) -> Any:
    topic = add_partitions_to_txn.AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])
    if version >= 4:
        transaction = add_partitions_to_txn.AddPartitionsToTxnTransaction(
            transactional_id="t", producer_id=1, producer_epoch=0, topics=[topic]
        )
        return kind(transactions=[transaction])
    return kind(
        v3_and_below_transactional_id="t",
        v3_and_below_producer_id=1,
        v3_and_below_topics=[topic],
    )


def ask_add_offsets_to_txn_end_txn(kind: Any, version: int, topic_id: UUID) -> Any:
    return kind(transactional_id="t", producer_id=1, producer_epoch=0)


def ask_txn_offset_commit(kind: Any, version: int, topic_id: UUID) -> Any:
    part = txn_offset_commit.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topic = txn_offset_commit.TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[part])
    return kind(transactional_id="t", group_id="g", producer_id=1, producer_epoch=0, topics=[topic])


def ask_describe_acls(kind: Any, version: int, topic_id: UUID) -> Any:
    return kind(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        operation=1,
        permission_type=1,
    )


REQUESTS: dict[Any, Callable[[Any, int, UUID], Any]] = {
    metadata.MetadataRequest: ask_metadata,
    produce.ProduceRequest: ask_produce,
    fetch.FetchRequest: ask_fetch,
    list_offsets.ListOffsetsRequest: ask_list_offsets,
    offset_for_leader_epoch.OffsetForLeaderEpochRequest: ask_offset_for_leader_epoch,
    create_topics.CreateTopicsRequest: ask_create_topics,
    delete_topics.DeleteTopicsRequest: ask_delete_topics,
    delete_records.DeleteRecordsRequest: ask_delete_records,
    create_partitions.CreatePartitionsRequest: ask_create_partitions,
    describe_configs.DescribeConfigsRequest: ask_describe_configs,
    alter_configs.AlterConfigsRequest: ask_alter_configs,
    incremental_alter_configs.IncrementalAlterConfigsRequest: ask_incremental_alter_configs,
    find_coordinator.FindCoordinatorRequest: ask_find_coordinator,
    join_group.JoinGroupRequest: ask_join_group,
    sync_group.SyncGroupRequest: ask_sync_group_heartbeat,
    heartbeat.HeartbeatRequest: ask_sync_group_heartbeat,
    leave_group.LeaveGroupRequest: ask_leave_group,
    offset_commit.OffsetCommitRequest: ask_offset_commit,
    offset_fetch.OffsetFetchRequest: ask_offset_fetch,
    offset_delete.OffsetDeleteRequest: ask_offset_delete_describe_groups,
    describe_groups.DescribeGroupsRequest: ask_offset_delete_describe_groups,
    delete_groups.DeleteGroupsRequest: ask_delete_groups,
    init_producer_id.InitProducerIdRequest: ask_init_producer_id,
    add_partitions_to_txn.AddPartitionsToTxnRequest: ask_add_partitions_to_txn,
    add_offsets_to_txn.AddOffsetsToTxnRequest: ask_add_offsets_to_txn_end_txn,
    end_txn.EndTxnRequest: ask_add_offsets_to_txn_end_txn,
    txn_offset_commit.TxnOffsetCommitRequest: ask_txn_offset_commit,
    describe_acls.DescribeAclsRequest: ask_describe_acls,
}
"""Those that reach past the first check of their handler, as far as a lone request can."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningBroker]:
    data = tmp_path_factory.mktemp("broker")
    running = await RunningBroker.start(
        BrokerSettings(data=data, listen="127.0.0.1:0", internal_partitions=1)
    )
    for name in (TOPIC, "__consumer_offsets", "__transaction_state"):
        await running.broker.create_unknown(name, may_create=True)
    yield running
    await running.stop()


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(("kind", "version"), EVERY_VERSION)
async def test_an_advertised_version_is_answered_in_its_own_format(
    running: RunningBroker, kind: Any, version: int
) -> None:
    topic = running.broker.image.topic(TOPIC)
    assert topic is not None
    fill = REQUESTS.get(kind)
    request = kind() if fill is None else fill(kind, version, topic.topic_id)
    channel = InProcessChannel(running.server, running.server.address)

    answer = await channel.ask(request_frame(request, version, 1, "test"), 1)

    _, position = read_response_header(answer, kind.api_key, version)
    response = message.decode(message.response_type(kind), answer, version, position)
    assert message.encode(response, version) == bytes(answer[position:])
    channel.close()
