"""AddRaftVoter (key 80), versions 0 to 1: makes an observer of the metadata quorum a voter.

It must have fetched everything committed. Up to three brokers become voters by themselves.
Deliberately not done: the timeout, and an answer before the change is committed.
"""

from typing import TYPE_CHECKING

from headwater.core_log.broker.administration import code_of
from headwater.core_log.broker.dispatch import RequestContext, handles
from headwater.core_log.foundation.errors import HeadwaterError
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.add_raft_voter import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
)
from headwater.core_log.replication.quorum import QuorumRefusal
from headwater.core_log.replication.voters import ReplicaKey

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker

REFUSALS = {
    QuorumRefusal.NOT_LEADER: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    QuorumRefusal.EPOCH_UNCOMMITTED: ErrorCode.REQUEST_TIMED_OUT,
    QuorumRefusal.CHANGE_UNCOMMITTED: ErrorCode.REQUEST_TIMED_OUT,
    QuorumRefusal.NOT_CAUGHT_UP: ErrorCode.REQUEST_TIMED_OUT,
}
"""Kafka's codes for what may succeed later; anything else is an invalid request."""


def code_of_refusal(refused: QuorumRefusal) -> ErrorCode:
    return REFUSALS.get(refused, ErrorCode.INVALID_REQUEST)


@handles(AddRaftVoterRequest, is_forwarded=True)
async def handle_add_raft_voter(
    broker: "Broker", request: AddRaftVoterRequest, context: RequestContext
) -> AddRaftVoterResponse:
    if request.cluster_id not in (None, broker.cluster_id):
        return AddRaftVoterResponse(
            error_code=ErrorCode.INCONSISTENT_CLUSTER_ID, error_message=None
        )
    wanted = ReplicaKey(request.voter_id, request.voter_directory_id)
    if any(each.node_id == wanted.node_id for each in broker.quorum.voters):
        return AddRaftVoterResponse(
            error_code=ErrorCode.DUPLICATE_VOTER,
            error_message=f"Node {wanted.node_id} votes already",
        )
    try:
        refused = await broker.active_controller.change_voters(lambda voters: voters | {wanted})
    except HeadwaterError as error:
        return AddRaftVoterResponse(error_code=code_of(error), error_message=error.problem)
    if refused is not None:
        return AddRaftVoterResponse(
            error_code=code_of_refusal(refused), error_message=refused.value
        )
    return AddRaftVoterResponse(error_message=None)
