"""RemoveRaftVoter (key 81), version 0: takes a voter out of the metadata quorum.

A live broker becomes a voter again as long as there are fewer than three.
"""

from typing import TYPE_CHECKING

from headwater.core_log.broker.administration import code_of
from headwater.core_log.broker.dispatch import RequestContext, handles
from headwater.core_log.broker.handlers.add_raft_voter import code_of_refusal
from headwater.core_log.foundation.errors import HeadwaterError
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.remove_raft_voter import (
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)
from headwater.core_log.replication.voters import ReplicaKey

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker


@handles(RemoveRaftVoterRequest, is_forwarded=True)
async def handle_remove_raft_voter(
    broker: "Broker", request: RemoveRaftVoterRequest, context: RequestContext
) -> RemoveRaftVoterResponse:
    if request.cluster_id not in (None, broker.cluster_id):
        return RemoveRaftVoterResponse(
            error_code=ErrorCode.INCONSISTENT_CLUSTER_ID, error_message=None
        )
    unwanted = ReplicaKey(request.voter_id, request.voter_directory_id)
    if unwanted not in broker.quorum.voters:
        return RemoveRaftVoterResponse(
            error_code=ErrorCode.VOTER_NOT_FOUND,
            error_message=f"Node {unwanted.node_id} does not vote under this directory id",
        )
    try:
        refused = await broker.active_controller.change_voters(lambda voters: voters - {unwanted})
    except HeadwaterError as error:
        return RemoveRaftVoterResponse(error_code=code_of(error), error_message=error.problem)
    if refused is not None:
        return RemoveRaftVoterResponse(
            error_code=code_of_refusal(refused), error_message=refused.value
        )
    return RemoveRaftVoterResponse(error_message=None)
