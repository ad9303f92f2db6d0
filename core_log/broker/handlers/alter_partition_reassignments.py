"""AlterPartitionReassignments (key 45), versions 0 to 1: moves partitions to other brokers.

The replicas that are added copy the partition; once all that stay are in sync the rest leave. A
second move in place of one under way drops at once what only the first was adding. Deliberately not
done: the timeout, and giving up records (a move or a cancellation that would need an unclean
election is refused whatever the topic allows).
"""

from typing import TYPE_CHECKING

from headwater.core_log.broker.administration import decide_and_commit
from headwater.core_log.broker.dispatch import RequestContext, handles
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from headwater.core_log.replication.decisions import RequestRefusal

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker

DONE = RequestRefusal(ErrorCode.NONE)


@handles(AlterPartitionReassignmentsRequest, is_forwarded=True)
async def handle_alter_partition_reassignments(
    broker: "Broker", request: AlterPartitionReassignmentsRequest, context: RequestContext
) -> AlterPartitionReassignmentsResponse:
    wanted = {
        TopicPartition(topic.name, each.partition_index): (
            None if each.replicas is None else tuple(each.replicas)
        )
        for topic in request.topics
        for each in topic.partitions
    }
    may_change_factor = request.allow_replication_factor_change
    decided = await decide_and_commit(
        broker,
        lambda: broker.controller.reassignments.alter(wanted, may_change_factor=may_change_factor),
    )
    if isinstance(decided, RequestRefusal):
        return AlterPartitionReassignmentsResponse(
            error_code=decided.code,
            error_message=decided.message,
            allow_replication_factor_change=may_change_factor,
        )
    return AlterPartitionReassignmentsResponse(
        error_message=None,
        allow_replication_factor_change=may_change_factor,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    answer(index, decided[TopicPartition(topic.name, index)])
                    for index in (each.partition_index for each in topic.partitions)
                ],
            )
            for topic in request.topics
        ],
    )


def answer(index: int, refused: RequestRefusal | None) -> ReassignablePartitionResponse:
    outcome = refused or DONE
    return ReassignablePartitionResponse(
        partition_index=index, error_code=outcome.code, error_message=outcome.message
    )
