"""OffsetForLeaderEpoch: the ends of leader epochs show where two histories of a log part."""

from collections.abc import Mapping

from headwater.core_log.client.cluster import Cluster
from headwater.core_log.links.connection import ConnectionLost
from headwater.core_log.links.node import Node
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)


async def ask_for_ends(
    cluster: Cluster, node: Node, epochs: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    topics: dict[str, list[OffsetForLeaderPartition]] = {}
    for (topic, index), epoch in epochs.items():
        part = OffsetForLeaderPartition(partition=index, leader_epoch=epoch)
        topics.setdefault(topic, []).append(part)
    request = OffsetForLeaderEpochRequest(
        replica_id=-1,
        topics=[OffsetForLeaderTopic(topic=name, partitions=p) for name, p in topics.items()],
    )
    try:
        response = await node.ask(request)
    except ConnectionLost:
        for topic in topics:
            cluster.forget_topic(topic)
        raise
    found: dict[TopicPartition, int] = {}
    for answered in response.topics:
        for line in answered.partitions:
            partition = TopicPartition(answered.topic, line.partition)
            cluster.check(line.error_code, partition)
            found[partition] = line.end_offset
    return found
