"""ListPartitionReassignments (key 46), version 0: the partitions that are being moved.

Any broker answers, as far as it has heard of the controller's decisions. Deliberately not done: the
timeout.
"""

from collections import defaultdict
from typing import TYPE_CHECKING

from headwater.core_log.broker.dispatch import RequestContext, handles
from headwater.core_log.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker


@handles(ListPartitionReassignmentsRequest)
async def handle_list_partition_reassignments(
    broker: "Broker", request: ListPartitionReassignmentsRequest, context: RequestContext
) -> ListPartitionReassignmentsResponse:
    asked = None
    if request.topics is not None:
        asked = {
            (topic.name, index) for topic in request.topics for index in topic.partition_indexes
        }
    moving = defaultdict[str, list[OngoingPartitionReassignment]](list)
    for topic, each in broker.image.partitions:
        is_asked = asked is None or (topic.name, each.partition) in asked
        if is_asked and each.assignment.is_moving:
            moving[topic.name].append(
                OngoingPartitionReassignment(
                    partition_index=each.partition,
                    replicas=each.replicas,
                    adding_replicas=each.adding,
                    removing_replicas=each.removing,
                )
            )
    return ListPartitionReassignmentsResponse(
        error_message=None,
        topics=[
            OngoingTopicReassignment(name=name, partitions=partitions)
            for name, partitions in moving.items()
        ],
    )
