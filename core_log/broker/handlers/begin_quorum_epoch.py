"""BeginQuorumEpoch (key 53), versions 0 to 1: a new leader of the metadata quorum names itself."""

from typing import TYPE_CHECKING

from headwater.core_log.broker.dispatch import RequestContext, handles
from headwater.core_log.broker.quorum_messages import begin_epoch_response, is_metadata
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.begin_quorum_epoch import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
)

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker


@handles(BeginQuorumEpochRequest)
async def handle_begin_quorum_epoch(
    broker: "Broker", request: BeginQuorumEpochRequest, context: RequestContext
) -> BeginQuorumEpochResponse:
    if request.cluster_id not in (None, broker.cluster_id):
        return BeginQuorumEpochResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
    driver = broker.quorum
    if not is_metadata(request) or driver.is_alone:
        return BeginQuorumEpochResponse(error_code=ErrorCode.INVALID_REQUEST)
    said = request.topics[0].partitions[0]
    code = ErrorCode.FENCED_LEADER_EPOCH
    if said.leader_epoch >= driver.leader_epoch:
        code = ErrorCode.NONE
        for each in request.leader_endpoints:
            driver.places.note(said.leader_id, (each.host, each.port))
        now_ms = broker.clock.monotonic_ms()
        driver.do(driver.quorum.on_leader(said.leader_id, said.leader_epoch, now_ms))
    return begin_epoch_response(driver.leader_epoch, driver.leader_id, code)
