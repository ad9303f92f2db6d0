"""ListPartitionReassignments (key 46), version 0: the partitions that are being moved."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.core_log.protocol.fields import Int16, Int32
from headwater.core_log.protocol.message import Request, request, response, struct


@request(api_key=46, versions=(0, 0), flexible_from=0)
class ListPartitionReassignmentsRequest(Request["ListPartitionReassignmentsResponse"]):
    timeout_ms: Int32 = 60000
    topics: Sequence[ListPartitionReassignmentsTopics] | None = None


@struct
class ListPartitionReassignmentsTopics:
    name: str = ""
    partition_indexes: Sequence[Int32] = ()


@response(versions=(0, 0), flexible_from=0)
class ListPartitionReassignmentsResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""
    topics: Sequence[OngoingTopicReassignment] = ()


@struct
class OngoingTopicReassignment:
    name: str = ""
    partitions: Sequence[OngoingPartitionReassignment] = ()


@struct
class OngoingPartitionReassignment:
    partition_index: Int32 = 0
    replicas: Sequence[Int32] = ()
    adding_replicas: Sequence[Int32] = ()
    removing_replicas: Sequence[Int32] = ()
