"""Requests that name some topics, groups and transactional ids, those of every API."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from headwater.core_log.protocol.messages import (
    add_partitions_to_txn,
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    create_acls,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_configs,
    describe_producers,
    describe_topic_partitions,
    fetch,
    find_coordinator,
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
    txn_offset_commit,
    write_txn_markers,
)
from headwater.core_log.records.record_codec import PlainRecord, encode_batch

ORDERS, ABSENT, OTHER = "orders", "absent", "other"
GROUP, TXN = "g", "t"
UNKNOWN_ID = UUID(int=7)


@dataclass
class Facts:
    """What a request must name of the cluster it goes to."""

    ids: dict[str, UUID]
    producer_id: int = 0
    producer_epoch: int = 0


def batch(facts: Facts | None = None) -> memoryview:
    record = [PlainRecord(b"k", b"v", timestamp_ms=1_700_000_000_000)]
    if facts is None:
        return memoryview(encode_batch(record))
    return memoryview(
        encode_batch(
            record,
            producer_id=facts.producer_id,
            producer_epoch=facts.producer_epoch,
            base_sequence=0,
            is_transactional=True,
        )
    )


def ask_produce(facts: Facts) -> Any:
    return produce.ProduceRequest(
        acks=-1,
        timeout_ms=10_000,
        topic_data=[
            produce.TopicProduceData(
                name=name, partition_data=[produce.PartitionProduceData(index=0, records=batch())]
            )
            for name in (ORDERS, ABSENT)
        ],
    )


def ask_produce_by_id(facts: Facts) -> Any:
    return produce.ProduceRequest(
        acks=-1,
        timeout_ms=10_000,
        topic_data=[
            produce.TopicProduceData(
                topic_id=topic_id,
                partition_data=[produce.PartitionProduceData(index=0, records=batch())],
            )
            for topic_id in (facts.ids[ORDERS], UNKNOWN_ID)
        ],
    )


def ask_produce_in_transaction(facts: Facts) -> Any:
    part = produce.PartitionProduceData(index=0, records=batch(facts))
    return produce.ProduceRequest(
        transactional_id=TXN,
        acks=-1,
        timeout_ms=10_000,
        topic_data=[produce.TopicProduceData(name=ORDERS, partition_data=[part])],
    )


def ask_fetch(facts: Facts, *, replica_id: int = -1) -> Any:
    part = fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    return fetch.FetchRequest(
        replica_id=replica_id,
        max_wait_ms=0,
        max_bytes=1 << 20,
        topics=[fetch.FetchTopic(topic=name, partitions=[part]) for name in (ORDERS, ABSENT)],
    )


def ask_fetch_by_id(facts: Facts) -> Any:
    part = fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    ids = (facts.ids[ORDERS], UNKNOWN_ID)
    return fetch.FetchRequest(
        max_wait_ms=0,
        max_bytes=1 << 20,
        topics=[fetch.FetchTopic(topic_id=each, partitions=[part]) for each in ids],
    )


def ask_list_offsets(facts: Facts) -> Any:
    part = list_offsets.ListOffsetsPartition(partition_index=0, timestamp=-2)
    topics = [
        list_offsets.ListOffsetsTopic(name=name, partitions=[part]) for name in (ORDERS, ABSENT)
    ]
    return list_offsets.ListOffsetsRequest(replica_id=-1, topics=topics)


def ask_metadata(*names: str, creates: bool = False, with_operations: bool = False) -> Any:
    return lambda facts: metadata.MetadataRequest(
        topics=[metadata.MetadataRequestTopic(name=name) for name in names],
        allow_auto_topic_creation=creates,
        include_cluster_authorized_operations=with_operations,
        include_topic_authorized_operations=with_operations,
    )


def ask_metadata_by_id(facts: Facts) -> Any:
    topics = [
        metadata.MetadataRequestTopic(topic_id=each, name=None)
        for each in (facts.ids[ORDERS], UNKNOWN_ID)
    ]
    return metadata.MetadataRequest(topics=topics, allow_auto_topic_creation=False)


def ask_epoch_end(facts: Facts) -> Any:
    part = offset_for_leader_epoch.OffsetForLeaderPartition(partition=0, leader_epoch=0)
    return offset_for_leader_epoch.OffsetForLeaderEpochRequest(
        replica_id=-1,
        topics=[
            offset_for_leader_epoch.OffsetForLeaderTopic(topic=name, partitions=[part])
            for name in (ORDERS, ABSENT)
        ],
    )


def ask_create_topic(name: str) -> Any:
    new = create_topics.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return lambda facts: create_topics.CreateTopicsRequest(topics=[new], timeout_ms=10_000)


def ask_delete_topics(facts: Facts) -> Any:
    names = ("doomed", ABSENT)
    return delete_topics.DeleteTopicsRequest(
        topics=[delete_topics.DeleteTopicState(name=name) for name in names], timeout_ms=10_000
    )


def ask_delete_topics_by_id(facts: Facts) -> Any:
    return delete_topics.DeleteTopicsRequest(
        topics=[
            delete_topics.DeleteTopicState(name=None, topic_id=each)
            for each in (facts.ids["doomed by id"], UNKNOWN_ID)
        ],
        timeout_ms=10_000,
    )


def ask_delete_records(facts: Facts) -> Any:
    part = delete_records.DeleteRecordsPartition(partition_index=0, offset=0)
    topics = [
        delete_records.DeleteRecordsTopic(name=name, partitions=[part]) for name in (ORDERS, ABSENT)
    ]
    return delete_records.DeleteRecordsRequest(topics=topics, timeout_ms=10_000)


def ask_create_partitions(facts: Facts) -> Any:
    return create_partitions.CreatePartitionsRequest(
        topics=[
            create_partitions.CreatePartitionsTopic(name=name, count=2) for name in (OTHER, ABSENT)
        ],
        timeout_ms=10_000,
    )


def ask_describe_configs(facts: Facts) -> Any:
    named = ((2, ORDERS), (2, ABSENT), (4, "1"))
    return describe_configs.DescribeConfigsRequest(
        resources=[
            describe_configs.DescribeConfigsResource(
                resource_type=kind, resource_name=name, configuration_keys=["cleanup.policy"]
            )
            for kind, name in named
        ]
    )


def ask_alter_configs(facts: Facts) -> Any:
    return alter_configs.AlterConfigsRequest(
        resources=[
            alter_configs.AlterConfigsResource(
                resource_type=2,
                resource_name=name,
                configs=[alter_configs.AlterableConfig(name="segment.ms", value="100000")],
            )
            for name in (ORDERS, ABSENT)
        ]
    )


def ask_alter_some_configs(facts: Facts) -> Any:
    change = incremental_alter_configs.AlterableConfig(
        name="segment.ms", config_operation=0, value="200000"
    )
    return incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=[
            incremental_alter_configs.AlterConfigsResource(
                resource_type=2, resource_name=name, configs=[change]
            )
            for name in (ORDERS, ABSENT)
        ]
    )


def ask_coordinator(key_type: int, key: str) -> Any:
    return lambda facts: find_coordinator.FindCoordinatorRequest(
        key_type=key_type, coordinator_keys=[key]
    )


def ask_one_coordinator(facts: Facts) -> Any:
    return find_coordinator.FindCoordinatorRequest(key_type=0, key=GROUP)


def ask_join(facts: Facts) -> Any:
    protocol = join_group.JoinGroupRequestProtocol(name="range", metadata=b"")
    return join_group.JoinGroupRequest(
        group_id=GROUP, session_timeout_ms=10_000, protocol_type="consumer", protocols=[protocol]
    )


def ask_leave(facts: Facts) -> Any:
    member = leave_group.MemberIdentity(member_id="m")
    return leave_group.LeaveGroupRequest(group_id=GROUP, members=[member])


def ask_commit(facts: Facts) -> Any:
    part = offset_commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    return offset_commit.OffsetCommitRequest(
        group_id=GROUP,
        generation_id_or_member_epoch=-1,
        topics=[
            offset_commit.OffsetCommitRequestTopic(name=name, partitions=[part])
            for name in (ORDERS, ABSENT)
        ],
    )


def ask_commit_by_id(facts: Facts) -> Any:
    part = offset_commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    return offset_commit.OffsetCommitRequest(
        group_id=GROUP,
        generation_id_or_member_epoch=-1,
        topics=[
            offset_commit.OffsetCommitRequestTopic(topic_id=each, partitions=[part])
            for each in (facts.ids[ORDERS], UNKNOWN_ID)
        ],
    )


def ask_fetch_offsets(facts: Facts) -> Any:
    topics = [
        offset_fetch.OffsetFetchRequestTopics(name=name, partition_indexes=[0])
        for name in (ORDERS, OTHER)
    ]
    one = offset_fetch.OffsetFetchRequestGroup(group_id=GROUP, topics=topics)
    return offset_fetch.OffsetFetchRequest(groups=[one])


def ask_fetch_all_offsets(facts: Facts) -> Any:
    one = offset_fetch.OffsetFetchRequestGroup(group_id=GROUP, topics=None)
    return offset_fetch.OffsetFetchRequest(groups=[one])


def ask_fetch_offsets_of_one(facts: Facts) -> Any:
    topics = [
        offset_fetch.OffsetFetchRequestTopic(name=name, partition_indexes=[0])
        for name in (ORDERS, OTHER)
    ]
    return offset_fetch.OffsetFetchRequest(group_id=GROUP, topics=topics)


def ask_delete_offsets(facts: Facts) -> Any:
    part = offset_delete.OffsetDeleteRequestPartition(partition_index=0)
    return offset_delete.OffsetDeleteRequest(
        group_id=GROUP,
        topics=[
            offset_delete.OffsetDeleteRequestTopic(name=name, partitions=[part])
            for name in (ORDERS, ABSENT)
        ],
    )


def ask_init(transactional_id: str | None) -> Any:
    return lambda facts: init_producer_id.InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=10_000
    )


def ask_add_partitions(facts: Facts) -> Any:
    return add_partitions_to_txn.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=TXN,
        v3_and_below_producer_id=facts.producer_id,
        v3_and_below_producer_epoch=facts.producer_epoch,
        v3_and_below_topics=[
            add_partitions_to_txn.AddPartitionsToTxnTopic(name=name, partitions=[0])
            for name in (ORDERS, ABSENT)
        ],
    )


def ask_add_partitions_as_broker(facts: Facts) -> Any:
    asked = add_partitions_to_txn.AddPartitionsToTxnTransaction(
        transactional_id=TXN,
        producer_id=facts.producer_id,
        producer_epoch=facts.producer_epoch,
        verify_only=True,
        topics=[add_partitions_to_txn.AddPartitionsToTxnTopic(name=ORDERS, partitions=[0])],
    )
    return add_partitions_to_txn.AddPartitionsToTxnRequest(transactions=[asked])


def ask_commit_in_transaction(facts: Facts) -> Any:
    part = txn_offset_commit.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    return txn_offset_commit.TxnOffsetCommitRequest(
        transactional_id=TXN,
        group_id=GROUP,
        producer_id=facts.producer_id,
        producer_epoch=facts.producer_epoch,
        topics=[
            txn_offset_commit.TxnOffsetCommitRequestTopic(name=name, partitions=[part])
            for name in (ORDERS, ABSENT)
        ],
    )


def ask_markers(facts: Facts) -> Any:
    marker = write_txn_markers.WritableTxnMarker(
        producer_id=987_654,
        producer_epoch=0,
        topics=[write_txn_markers.WritableTxnMarkerTopic(name=ABSENT, partition_indexes=[0])],
    )
    return write_txn_markers.WriteTxnMarkersRequest(markers=[marker])


def ask_producers(facts: Facts) -> Any:
    return describe_producers.DescribeProducersRequest(
        topics=[
            describe_producers.TopicRequest(name=name, partition_indexes=[0])
            for name in (ORDERS, ABSENT)
        ]
    )


def ask_create_acl(facts: Facts) -> Any:
    acl = create_acls.AclCreation(
        resource_type=2,
        resource_name="made",
        principal="User:made",
        host="*",
        operation=3,
        permission_type=3,
    )
    return create_acls.CreateAclsRequest(creations=[acl])


MADE: dict[str, Any] = {
    "resource_type_filter": 2,
    "resource_name_filter": "made",
    "pattern_type_filter": 3,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}


def ask_topic_partitions(*names: str) -> Any:
    return lambda facts: describe_topic_partitions.DescribeTopicPartitionsRequest(
        topics=[describe_topic_partitions.TopicRequest(name=name) for name in names]
    )


def ask_alter_quotas(facts: Facts) -> Any:
    entity = [alter_client_quotas.AlteredEntity(entity_type="user", entity_name="bob")]
    ops = [alter_client_quotas.QuotaOperation(key="producer_byte_rate", value=1e9)]
    entry = alter_client_quotas.QuotaAlteration(entity=entity, ops=ops)
    return alter_client_quotas.AlterClientQuotasRequest(entries=[entry])


def ask_move(facts: Facts) -> Any:
    """To a broker that is not there."""
    topics = [
        alter_partition_reassignments.ReassignableTopic(
            name=name,
            partitions=[
                alter_partition_reassignments.ReassignablePartition(
                    partition_index=0, replicas=[99]
                )
            ],
        )
        for name in (ORDERS, ABSENT)
    ]
    return alter_partition_reassignments.AlterPartitionReassignmentsRequest(topics=topics)
