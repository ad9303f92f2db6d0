"""UpdateRaftVoter (key 82), version 0: a voter of the metadata quorum tells its
leader where it listens now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated
from uuid import UUID

from headwater.core_log.protocol.fields import Int16, Int32, Tagged, UInt16
from headwater.core_log.protocol.message import Request, request, response, struct
from headwater.core_log.protocol.primitives import ZERO_UUID


@struct
class KRaftVersionRange:
    min_supported_version: Int16 = 0
    max_supported_version: Int16 = 0


@request(api_key=82, versions=(0, 0), flexible_from=0)
class UpdateRaftVoterRequest(Request["UpdateRaftVoterResponse"]):
    cluster_id: str | None = ""
    current_leader_epoch: Int32 = 0
    voter_id: Int32 = 0
    voter_directory_id: UUID = ZERO_UUID
    listeners: Sequence[VoterListener] = ()
    k_raft_version_feature: KRaftVersionRange = KRaftVersionRange()


@struct
class VoterListener:
    name: str = ""
    host: str = ""
    port: UInt16 = 0


@struct
class QuorumLeader:
    leader_id: Int32 = -1
    leader_epoch: Int32 = -1
    host: str = ""
    port: Int32 = 0


@response(versions=(0, 0), flexible_from=0)
class UpdateRaftVoterResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    current_leader: Annotated[QuorumLeader, Tagged(0)] = QuorumLeader()
