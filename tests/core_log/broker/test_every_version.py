"""Every API that is advertised answers in every version that is advertised, and in its own format."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from core_log.broker.dispatch import load_handlers
from core_log.broker.in_process import InProcessChannel
from core_log.broker.running import RunningBroker
from core_log.plain_records import PlainRecord, encode_batch
from core_log.protocol import message
from core_log.protocol.framing import encode_request, read_response_header
from core_log.protocol.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_configs,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
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
from core_log.settings import BrokerSettings

TOPIC = "orders"
BATCH = memoryview(encode_batch([PlainRecord(b"k", b"v", timestamp_ms=1)]))
SERVED = load_handlers()
EVERY_VERSION = [
    pytest.param(served.request, version, id=f"{served.name}-{version}")
    for served in SERVED.values()
    for version in range(served.versions[0], served.versions[1] + 1)
]


def a_request(kind: type, version: int, topic_id: Any) -> Any:
    """One that reaches past the first check of its handler, as far as a lone request can."""
    named = {"topic_id": topic_id} if version >= 13 else {"name": TOPIC}
    fetched = {"topic_id": topic_id} if version >= 13 else {"topic": TOPIC}
    match kind:
        case metadata.MetadataRequest:
            return kind(topics=[metadata.MetadataRequestTopic(name=TOPIC)])
        case produce.ProduceRequest:
            part = produce.PartitionProduceData(index=0, records=BATCH)
            return kind(
                acks=-1,
                timeout_ms=1000,
                topic_data=[produce.TopicProduceData(**named, partition_data=[part])],
            )
        case fetch.FetchRequest:
            part = fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
            return kind(topics=[fetch.FetchTopic(**fetched, partitions=[part])], max_bytes=1 << 20)
        case list_offsets.ListOffsetsRequest:
            parts = [
                list_offsets.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
                for timestamp in (-1, -2, -3, -4, -5, -6, -101, -102, 0)
            ]
            return kind(
                replica_id=-1,
                topics=[list_offsets.ListOffsetsTopic(name=TOPIC, partitions=parts)],
            )
        case offset_for_leader_epoch.OffsetForLeaderEpochRequest:
            part = offset_for_leader_epoch.OffsetForLeaderPartition(partition=0, leader_epoch=0)
            topic = offset_for_leader_epoch.OffsetForLeaderTopic(topic=TOPIC, partitions=[part])
            return kind(topics=[topic])
        case create_topics.CreateTopicsRequest:
            new = create_topics.CreatableTopic(
                name=f"new-{version}", num_partitions=1, replication_factor=1
            )
            return kind(topics=[new], timeout_ms=1000)
        case delete_topics.DeleteTopicsRequest:
            gone = f"gone-{version}"
            if version >= 6:
                return kind(topics=[delete_topics.DeleteTopicState(name=gone)])
            return kind(topic_names=[gone])
        case delete_records.DeleteRecordsRequest:
            part = delete_records.DeleteRecordsPartition(partition_index=0, offset=0)
            return kind(topics=[delete_records.DeleteRecordsTopic(name=TOPIC, partitions=[part])])
        case create_partitions.CreatePartitionsRequest:
            return kind(topics=[create_partitions.CreatePartitionsTopic(name=TOPIC, count=1)])
        case describe_configs.DescribeConfigsRequest:
            return kind(
                resources=[
                    describe_configs.DescribeConfigsResource(resource_type=2, resource_name=TOPIC)
                ]
            )
        case alter_configs.AlterConfigsRequest:
            return kind(
                resources=[alter_configs.AlterConfigsResource(resource_type=2, resource_name=TOPIC)]
            )
        case incremental_alter_configs.IncrementalAlterConfigsRequest:
            return kind(
                resources=[
                    incremental_alter_configs.AlterConfigsResource(
                        resource_type=2, resource_name=TOPIC
                    )
                ]
            )
        case find_coordinator.FindCoordinatorRequest:
            return kind(coordinator_keys=["g"]) if version >= 4 else kind(key="g")
        case join_group.JoinGroupRequest:
            protocol = join_group.JoinGroupRequestProtocol(name="range", metadata=b"")
            return kind(
                group_id=f"g{version}",
                session_timeout_ms=10_000,
                protocol_type="consumer",
                protocols=[protocol],
            )
        case sync_group.SyncGroupRequest | heartbeat.HeartbeatRequest:
            return kind(group_id="g", generation_id=1, member_id="m")
        case leave_group.LeaveGroupRequest:
            if version >= 3:
                return kind(group_id="g", members=[leave_group.MemberIdentity(member_id="m")])
            return kind(group_id="g", member_id="m")
        case offset_commit.OffsetCommitRequest:
            part = offset_commit.OffsetCommitRequestPartition(
                partition_index=0, committed_offset=1, committed_metadata="m"
            )
            named = {"topic_id": topic_id} if version >= 10 else {"name": TOPIC}
            topic = offset_commit.OffsetCommitRequestTopic(**named, partitions=[part])
            return kind(group_id="g", topics=[topic])
        case offset_fetch.OffsetFetchRequest:
            if version >= 8:
                return kind(groups=[offset_fetch.OffsetFetchRequestGroup(group_id="g")])
            topic = offset_fetch.OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])
            return kind(group_id="g", topics=[topic])
        case offset_delete.OffsetDeleteRequest | describe_groups.DescribeGroupsRequest:
            return (
                kind(group_id="g")
                if kind is offset_delete.OffsetDeleteRequest
                else kind(groups=["g"])
            )
        case delete_groups.DeleteGroupsRequest:
            return kind(groups_names=["g"])
        case init_producer_id.InitProducerIdRequest:
            return kind(transactional_id=f"t{version}", transaction_timeout_ms=1000)
        case add_partitions_to_txn.AddPartitionsToTxnRequest:
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
        case add_offsets_to_txn.AddOffsetsToTxnRequest | end_txn.EndTxnRequest:
            return kind(transactional_id="t", producer_id=1, producer_epoch=0)
        case txn_offset_commit.TxnOffsetCommitRequest:
            part = txn_offset_commit.TxnOffsetCommitRequestPartition(
                partition_index=0, committed_offset=1
            )
            topic = txn_offset_commit.TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[part])
            return kind(
                transactional_id="t", group_id="g", producer_id=1, producer_epoch=0, topics=[topic]
            )
    return kind()


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
    request = a_request(kind, version, topic.topic_id)
    channel = InProcessChannel(running.server)

    answer = await channel.ask(encode_request(request, version, 1, "test"), 1)

    _, position = read_response_header(answer, kind.api_key, version)
    response = message.decode(message.response_type(kind), answer, version, position)
    assert message.encode(response, version) == bytes(answer[position:])
    channel.close()
