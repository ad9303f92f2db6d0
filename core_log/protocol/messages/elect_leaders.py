"""ElectLeaders (key 43), versions 0 to 2: an administrator lets the first replicas lead, or any."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from headwater.core_log.protocol.fields import Int8, Int16, Int32, Since
from headwater.core_log.protocol.message import Request, request, response, struct


@request(api_key=43, versions=(0, 2), flexible_from=2)
class ElectLeadersRequest(Request["ElectLeadersResponse"]):
    election_type: Annotated[Int8, Since(1)] = 0
    topic_partitions: Sequence[TopicPartitions] | None = ()
    timeout_ms: Int32 = 60000


@struct
class TopicPartitions:
    topic: str = ""
    partitions: Sequence[Int32] = ()


@response(versions=(0, 2), flexible_from=2)
class ElectLeadersResponse:
    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, Since(1)] = 0
    replica_election_results: Sequence[ReplicaElectionResult] = ()


@struct
class ReplicaElectionResult:
    topic: str = ""
    partition_result: Sequence[PartitionResult] = ()


@struct
class PartitionResult:
    partition_id: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""
