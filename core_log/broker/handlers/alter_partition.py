"""AlterPartition (key 56), versions 2 to 3: a leader proposes other in-sync sets of its partitions.

Only brokers send it, and only the active controller decides. A set without its leader is refused by
Kafka; here it is how a leader resigns whose disk has failed a partition.
"""

from typing import TYPE_CHECKING
from uuid import UUID

from headwater.core_log.broker.administration import decide_and_commit
from headwater.core_log.broker.dispatch import RequestContext, handles
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.alter_partition import (
    AlteredPartition,
    AlteredPartitionResponse,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionTopicResponse,
)
from headwater.core_log.replication.decisions import RequestRefusal
from headwater.core_log.replication.leader import InSyncProposal

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker

EPOCHS_FROM = 3


@handles(AlterPartitionRequest)
async def handle_alter_partition(
    broker: "Broker", request: AlterPartitionRequest, context: RequestContext
) -> AlterPartitionResponse:
    wanted = {
        (topic.topic_id, each.partition_index): read_proposal(each, context.api_version)
        for topic in request.topics
        for each in topic.partitions
    }
    decided = await decide_and_commit(
        broker,
        lambda: broker.controller.change_in_sync_sets(
            request.broker_id, request.broker_epoch, wanted
        ),
    )
    if isinstance(decided, RequestRefusal):
        return AlterPartitionResponse(error_code=decided.code)
    topics = [
        AlterPartitionTopicResponse(
            topic_id=topic.topic_id,
            partitions=[
                answer(broker, topic.topic_id, each.partition_index, decided)
                for each in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return AlterPartitionResponse(topics=topics)


def read_proposal(part: AlteredPartition, version: int) -> InSyncProposal:
    if version < EPOCHS_FROM:
        in_sync, epochs = frozenset(part.new_isr), dict[int, int]()
    else:
        in_sync = frozenset(each.broker_id for each in part.new_isr_with_epochs)
        epochs = {each.broker_id: each.broker_epoch for each in part.new_isr_with_epochs}
    return InSyncProposal(in_sync, part.leader_epoch, part.partition_epoch, epochs)


def answer(
    broker: "Broker",
    topic_id: UUID,
    index: int,
    decided: dict[tuple[UUID, int], RequestRefusal | None],
) -> AlteredPartitionResponse:
    """Returns the partition as it is now, or the error."""
    refused, topic = decided[topic_id, index], broker.image.topic_by_id(topic_id)
    if refused is not None:
        return AlteredPartitionResponse(partition_index=index, error_code=refused.code)
    if topic is None:  # it was deleted just now
        code = ErrorCode.UNKNOWN_TOPIC_ID
        return AlteredPartitionResponse(partition_index=index, error_code=code)
    record = topic.partitions[index]
    return AlteredPartitionResponse(
        partition_index=index,
        leader_id=record.leader,
        leader_epoch=record.leader_epoch,
        isr=record.in_sync,
        partition_epoch=record.partition_epoch,
    )
