"""Vote (key 52), versions 0 to 2: a replica asks this voter of the metadata quorum for its vote.

An only voter has nobody to vote for.
"""

from typing import TYPE_CHECKING

from headwater.core_log.broker.dispatch import RequestContext, handles
from headwater.core_log.broker.quorum_messages import read_vote_request, vote_response
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.inter_broker_messages import MemberVoteRequest, MemberVoteResponse

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker


@handles(MemberVoteRequest, name="Vote")
async def handle_vote(
    broker: "Broker", request: MemberVoteRequest, context: RequestContext
) -> MemberVoteResponse:
    if request.cluster_id not in (None, broker.cluster_id):
        return MemberVoteResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
    ballot = read_vote_request(request)
    if ballot is None:
        return MemberVoteResponse(error_code=ErrorCode.INVALID_REQUEST)
    driver = broker.quorum
    if driver.is_alone:
        return MemberVoteResponse(error_code=ErrorCode.INCONSISTENT_VOTER_SET)
    answer, effects = driver.quorum.on_vote(ballot, broker.clock.monotonic_ms())
    driver.do(effects)  # a vote is on disk before it is given
    is_old = ballot.epoch < answer.epoch
    return vote_response(answer, code=ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.NONE)
