"""DescribeQuorum (key 55), versions 0 to 2: the leader of the metadata quorum, its voters and what
is committed.

A broker alone leads a quorum of one voter.
"""

from typing import TYPE_CHECKING

from headwater.core_log.broker.dispatch import RequestContext, handles
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

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker

NODES_FROM = 2
LISTENER = "PLAINTEXT"


@handles(DescribeQuorumRequest)
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
    quorum, now_ms = broker.quorum, broker.clock.now_ms()
    voters = [
        QuorumReplica(
            replica_id=voter.node_id,
            replica_directory_id=voter.directory_id if has_directories else ZERO_UUID,
            log_end_offset=quorum.end_offset,
            last_fetch_timestamp=now_ms,
            last_caught_up_timestamp=now_ms,
        )
        for voter in quorum.voters
    ]
    return DescribedQuorumPartition(
        error_message=None,
        leader_id=broker.node_id,
        leader_epoch=quorum.leader_epoch,
        high_watermark=quorum.high_watermark,
        current_voters=voters,
    )


def list_nodes(broker: "Broker", context: RequestContext) -> list[QuorumNode]:
    """Returns the voters' addresses; our own as the client knows it."""
    host, port = context.listener_host, context.listener_port
    listener = QuorumListener(name=LISTENER, host=host, port=port)
    return [
        QuorumNode(node_id=each.node_id, listeners=(listener,)) for each in broker.quorum.voters
    ]


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
