"""AlterPartitionReassignments (key 45), versions 0 to 1: an administrator moves partitions to other
brokers, or cancels that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from headwater.core_log.protocol.fields import Ignorable, Int16, Int32, Since
from headwater.core_log.protocol.message import Request, request, response, struct


@request(api_key=45, versions=(0, 1), flexible_from=0)
class AlterPartitionReassignmentsRequest(Request["AlterPartitionReassignmentsResponse"]):
    timeout_ms: Int32 = 60000
    allow_replication_factor_change: Annotated[bool, Since(1)] = True
    topics: Sequence[ReassignableTopic] = ()


@struct
class ReassignableTopic:
    name: str = ""
    partitions: Sequence[ReassignablePartition] = ()


@struct
class ReassignablePartition:
    partition_index: Int32 = 0
    replicas: Sequence[Int32] | None = None


@response(versions=(0, 1), flexible_from=0)
class AlterPartitionReassignmentsResponse:
    throttle_time_ms: Int32 = 0
    allow_replication_factor_change: Annotated[bool, Since(1), Ignorable()] = True
    error_code: Int16 = 0
    error_message: str | None = ""
    responses: Sequence[ReassignableTopicResponse] = ()


@struct
class ReassignableTopicResponse:
    name: str = ""
    partitions: Sequence[ReassignablePartitionResponse] = ()


@struct
class ReassignablePartitionResponse:
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""
