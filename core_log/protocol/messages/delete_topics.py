"""DeleteTopics (key 20), versions 1 to 6: an administrator deletes topics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated
from uuid import UUID

from headwater.core_log.protocol.fields import IGNORABLE, Int16, Int32, NullableSince, Since, Until
from headwater.core_log.protocol.message import Request, request, response, struct
from headwater.core_log.protocol.primitives import ZERO_UUID


@request(api_key=20, versions=(1, 6), flexible_from=4)
class DeleteTopicsRequest(Request["DeleteTopicsResponse"]):
    topics: Annotated[Sequence[DeleteTopicState], Since(6)] = ()
    topic_names: Annotated[Sequence[str], Until(5), IGNORABLE] = ()
    timeout_ms: Int32 = 0


@struct
class DeleteTopicState:
    name: str | None = None
    topic_id: UUID = ZERO_UUID


@response(versions=(1, 6), flexible_from=4)
class DeleteTopicsResponse:
    throttle_time_ms: Int32 = 0
    responses: Sequence[DeletableTopicResult] = ()


@struct
class DeletableTopicResult:
    name: Annotated[str | None, NullableSince(6)] = ""
    topic_id: Annotated[UUID, Since(6), IGNORABLE] = ZERO_UUID
    error_code: Int16 = 0
    error_message: Annotated[str | None, Since(5), IGNORABLE] = None
