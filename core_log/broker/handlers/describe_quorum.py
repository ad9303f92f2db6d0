"""DescribeQuorum (key 55), versions 0 to 2: the leader of the metadata quorum, its voters and what
is committed.

The leader answers it. A broker alone leads a quorum of one voter.
"""

from typing import TYPE_CHECKING

from headwater.core_log.broker.dispatch import RequestContext, address_for, handles
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.describe_quorum import (
    DescribedQuorumPartition,
    DescribedQuorumTopic,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    QuorumListener,
    QuorumNode,
    QuorumReplica,
)
from headwater.core_log.protocol.primitives import ZERO_UUID
from headwater.core_log.replication.metadata import METADATA_TOPIC
from headwater.core_log.replication.voters import ReplicaKey

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker

NODES_FROM = 2
LISTENER = "PLAINTEXT"
OBSERVER_MS = 300_000
"""After so long without a fetch a replica is no observer any more, as in Kafka: it may be one of a
disk that was replaced."""


@handles(DescribeQuorumRequest, is_forwarded=True)
async def handle_describe_quorum(
    broker: "Broker", request: DescribeQuorumRequest, context: RequestContext
) -> DescribeQuorumResponse:
    asked = [
        (topic.topic_name, each.partition_index)
        for topic in request.topics
        for each in topic.partitions
    ]
    if asked != [(METADATA_TOPIC, 0)]:
        return refused_response(request)
    has_nodes = context.api_version >= NODES_FROM
    topic = DescribedQuorumTopic(
        topic_name=METADATA_TOPIC, partitions=(describe(broker, has_directories=has_nodes),)
    )
    return DescribeQuorumResponse(
        error_message=None, topics=(topic,), nodes=list_nodes(broker, context) if has_nodes else ()
    )


def describe(broker: "Broker", *, has_directories: bool) -> DescribedQuorumPartition:
    quorum = broker.quorum
    if not quorum.is_leader:
        return DescribedQuorumPartition(
            error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, error_message=None
        )

    def replica(key: ReplicaKey) -> QuorumReplica:
        offset, heard_ms, caught_up_ms = quorum.progress_of(key)
        return QuorumReplica(
            replica_id=key.node_id,
            replica_directory_id=key.directory_id if has_directories else ZERO_UUID,
            log_end_offset=offset,
            last_fetch_timestamp=heard_ms,
            last_caught_up_timestamp=caught_up_ms,
        )

    now_ms = broker.clock.now_ms()
    observers = [replica(each) for each in quorum.observers]
    return DescribedQuorumPartition(
        error_message=None,
        leader_id=broker.node_id,
        leader_epoch=quorum.leader_epoch,
        high_watermark=quorum.high_watermark,
        current_voters=[replica(each) for each in quorum.voters],
        observers=[each for each in observers if now_ms - each.last_fetch_timestamp < OBSERVER_MS],
    )


def list_nodes(broker: "Broker", context: RequestContext) -> list[QuorumNode]:
    """Returns the voters' addresses; our own as the client knows it."""
    nodes = []
    for each in broker.quorum.voters:
        known = broker.address_of(each.node_id)
        if each.node_id == broker.node_id:
            known = address_for(broker, context)
        if known is not None:
            listener = QuorumListener(name=LISTENER, host=known[0], port=known[1])
            nodes.append(QuorumNode(node_id=each.node_id, listeners=(listener,)))
    return nodes


def refused_response(request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    """Returns Kafka's error for any other topic or partition."""
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    topics = [
        DescribedQuorumTopic(
            topic_name=topic.topic_name,
            partitions=[
                DescribedQuorumPartition(
                    partition_index=each.partition_index,
                    error_code=code,
                    error_message="the partition is not the one of the metadata",
                )
                for each in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return DescribeQuorumResponse(error_message=None, topics=topics)
