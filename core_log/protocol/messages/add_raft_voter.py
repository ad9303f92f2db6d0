"""AddRaftVoter (key 80), versions 0 to 1: adds a voter to the metadata quorum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated
from uuid import UUID

from headwater.core_log.protocol.fields import Int16, Int32, Since, UInt16
from headwater.core_log.protocol.message import Request, request, response, struct
from headwater.core_log.protocol.primitives import ZERO_UUID


@request(api_key=80, versions=(0, 1), flexible_from=0)
class AddRaftVoterRequest(Request["AddRaftVoterResponse"]):
    cluster_id: str | None = ""
    timeout_ms: Int32 = 0
    voter_id: Int32 = 0
    voter_directory_id: UUID = ZERO_UUID
    listeners: Sequence[AddedVoterListener] = ()
    ack_when_committed: Annotated[bool, Since(1)] = True


@struct
class AddedVoterListener:
    name: str = ""
    host: str = ""
    port: UInt16 = 0


@response(versions=(0, 1), flexible_from=0)
class AddRaftVoterResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""
