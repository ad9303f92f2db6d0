"""UpdateRaftVoter (key 82), version 0: a voter of the metadata quorum tells its leader where it
listens now, and which versions of the quorum's protocol it supports.

The answer comes before the record is committed, as in Kafka: who reads another one tells it again.
"""

from typing import TYPE_CHECKING

from headwater.core_log.broker.dispatch import RequestContext, handles
from headwater.core_log.broker.quorum_messages import read_update_voter_request
from headwater.core_log.broker.voter_places import NOWHERE
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.update_raft_voter import (
    QuorumLeader,
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
)
from headwater.core_log.replication.voters import QUORUM_VERSIONS

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker

FINALIZED = QUORUM_VERSIONS.highest
"""The version in which the voters of this quorum are records."""


@handles(UpdateRaftVoterRequest)
async def handle_update_raft_voter(
    broker: "Broker", request: UpdateRaftVoterRequest, context: RequestContext
) -> UpdateRaftVoterResponse:
    code, driver = update(broker, request), broker.quorum
    host, port = broker.address_of(driver.leader_id) or NOWHERE
    leader = QuorumLeader(
        leader_id=driver.leader_id, leader_epoch=driver.leader_epoch, host=host, port=port
    )
    return UpdateRaftVoterResponse(error_code=code, current_leader=leader)


def update(broker: "Broker", request: UpdateRaftVoterRequest) -> ErrorCode:
    driver, epoch = broker.quorum, request.current_leader_epoch
    if request.cluster_id not in (None, broker.cluster_id):
        return ErrorCode.INCONSISTENT_CLUSTER_ID
    if epoch < driver.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if epoch > driver.leader_epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    if not driver.is_leader:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    voter = read_update_voter_request(request)
    if voter is None:
        return ErrorCode.INVALID_REQUEST
    if not driver.may_record_voters:
        return ErrorCode.REQUEST_TIMED_OUT
    if not voter.versions.lowest <= FINALIZED <= voter.versions.highest:
        return ErrorCode.INVALID_REQUEST
    if voter.key not in driver.voters:
        return ErrorCode.VOTER_NOT_FOUND
    driver.update_voter(voter)
    return ErrorCode.NONE
