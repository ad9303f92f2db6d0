"""EndQuorumEpoch (key 54), versions 0 to 1: the leader of the metadata quorum has resigned."""

from typing import TYPE_CHECKING

from headwater.core_log.broker.dispatch import RequestContext, handles
from headwater.core_log.broker.quorum_messages import end_epoch_response, is_metadata
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.end_quorum_epoch import (
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
)
from headwater.core_log.replication.voters import ReplicaKey

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker


@handles(EndQuorumEpochRequest)
async def handle_end_quorum_epoch(
    broker: "Broker", request: EndQuorumEpochRequest, context: RequestContext
) -> EndQuorumEpochResponse:
    if request.cluster_id not in (None, broker.cluster_id):
        return EndQuorumEpochResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
    driver = broker.quorum
    if not is_metadata(request) or driver.is_alone:
        return EndQuorumEpochResponse(error_code=ErrorCode.INVALID_REQUEST)
    said = request.topics[0].partitions[0]
    code = ErrorCode.FENCED_LEADER_EPOCH
    if said.leader_epoch >= driver.leader_epoch:
        code = ErrorCode.NONE
        successors = [
            ReplicaKey(each.candidate_id, each.candidate_directory_id)
            for each in said.preferred_candidates
        ]
        now_ms = broker.clock.monotonic_ms()
        driver.do(driver.quorum.on_end_epoch(said.leader_epoch, successors, now_ms))
    return end_epoch_response(driver.leader_epoch, driver.leader_id, code)
