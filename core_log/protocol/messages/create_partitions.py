"""CreatePartitions (key 37), versions 0 to 3: an administrator adds partitions to topics."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.core_log.protocol.fields import Int16, Int32
from headwater.core_log.protocol.message import Request, request, response, struct


@request(api_key=37, versions=(0, 3), flexible_from=2)
class CreatePartitionsRequest(Request["CreatePartitionsResponse"]):
    topics: Sequence[CreatePartitionsTopic] = ()
    timeout_ms: Int32 = 0
    validate_only: bool = False


@struct
class CreatePartitionsTopic:
    name: str = ""
    count: Int32 = 0
    assignments: Sequence[CreatePartitionsAssignment] | None = ()


@struct
class CreatePartitionsAssignment:
    broker_ids: Sequence[Int32] = ()


@response(versions=(0, 3), flexible_from=2)
class CreatePartitionsResponse:
    throttle_time_ms: Int32 = 0
    results: Sequence[CreatePartitionsTopicResult] = ()


@struct
class CreatePartitionsTopicResult:
    name: str = ""
    error_code: Int16 = 0
    error_message: str | None = None
