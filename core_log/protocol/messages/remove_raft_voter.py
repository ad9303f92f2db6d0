"""RemoveRaftVoter (key 81), version 0: removes a voter from the metadata quorum."""

from __future__ import annotations

from uuid import UUID

from headwater.core_log.protocol.fields import Int16, Int32
from headwater.core_log.protocol.message import Request, request, response
from headwater.core_log.protocol.primitives import ZERO_UUID


@request(api_key=81, versions=(0, 0), flexible_from=0)
class RemoveRaftVoterRequest(Request["RemoveRaftVoterResponse"]):
    cluster_id: str | None = ""
    voter_id: Int32 = 0
    voter_directory_id: UUID = ZERO_UUID


@response(versions=(0, 0), flexible_from=0)
class RemoveRaftVoterResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""
