"""ElectLeaders (key 43), versions 0 to 2: lets the first replicas lead, or any replica at all.

Deliberately not done: the timeout. After an unclean election a follower that has committed records
which the new leader lacks keeps them and stays out of the in-sync set, unless
unclean.leader.election.enable is set on the topic.
"""

from collections import defaultdict
from typing import TYPE_CHECKING

from headwater.core_log.broker.administration import decide_and_commit
from headwater.core_log.broker.dispatch import RequestContext, handles
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from headwater.core_log.replication.decisions import RequestRefusal
from headwater.core_log.replication.elections import ElectionType

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker


@handles(ElectLeadersRequest, is_forwarded=True)
async def handle_elect_leaders(
    broker: "Broker", request: ElectLeadersRequest, context: RequestContext
) -> ElectLeadersResponse:
    if request.election_type not in list(ElectionType):
        return ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST)
    kind, wanted = ElectionType(request.election_type), None
    if request.topic_partitions is not None:
        wanted = [
            TopicPartition(topic.topic, index)
            for topic in request.topic_partitions
            for index in topic.partitions
        ]
    decided = await decide_and_commit(
        broker, lambda: broker.controller.elections.elect(kind, wanted)
    )
    if isinstance(decided, RequestRefusal):
        return ElectLeadersResponse(error_code=decided.code)
    by_topic = defaultdict[str, list[PartitionResult]](list)
    for at, code in decided.items():
        by_topic[at.topic].append(
            PartitionResult(
                partition_id=at.partition, error_code=code, error_message=explain(at, code)
            )
        )
    return ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(topic=topic, partition_result=results)
            for topic, results in by_topic.items()
        ]
    )


def explain(at: TopicPartition, code: ErrorCode) -> str | None:
    """Returns the message of an error."""
    if code is ErrorCode.NONE:
        return None
    if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return f"No such partition as {at.topic}-{at.partition}"
    return code.meaning
