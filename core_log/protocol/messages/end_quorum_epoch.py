"""EndQuorumEpoch (key 54), versions 0 to 1: a leader of the metadata quorum resigns, and
names those that may follow it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated
from uuid import UUID

from headwater.core_log.protocol.fields import IGNORABLE, Int16, Int32, Since, Tagged, UInt16, Until
from headwater.core_log.protocol.message import Request, request, response, struct
from headwater.core_log.protocol.primitives import ZERO_UUID


@request(api_key=54, versions=(0, 1), flexible_from=1)
class EndQuorumEpochRequest(Request["EndQuorumEpochResponse"]):
    cluster_id: str | None = None
    topics: Sequence[EndedEpochTopic] = ()
    leader_endpoints: Annotated[Sequence[EndedEpochLeaderEndpoint], Since(1), IGNORABLE] = ()


@struct
class EndedEpochTopic:
    topic_name: str = ""
    partitions: Sequence[EndedEpochPartition] = ()


@struct
class EndedEpochPartition:
    partition_index: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0
    preferred_successors: Annotated[Sequence[Int32], Until(0), IGNORABLE] = ()
    preferred_candidates: Annotated[Sequence[ReplicaInfo], Since(1), IGNORABLE] = ()


@struct
class ReplicaInfo:
    candidate_id: Int32 = 0
    candidate_directory_id: UUID = ZERO_UUID


@struct
class EndedEpochLeaderEndpoint:
    name: str = ""
    host: str = ""
    port: UInt16 = 0


@response(versions=(0, 1), flexible_from=1)
class EndQuorumEpochResponse:
    error_code: Int16 = 0
    topics: Sequence[EndEpochAnswerTopic] = ()
    node_endpoints: Annotated[Sequence[EndedEpochNodeEndpoint], Since(1), Tagged(0)] = ()


@struct
class EndEpochAnswerTopic:
    topic_name: str = ""
    partitions: Sequence[EndEpochAnswerPartition] = ()


@struct
class EndEpochAnswerPartition:
    partition_index: Int32 = 0
    error_code: Int16 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


@struct
class EndedEpochNodeEndpoint:
    node_id: Int32 = 0
    host: str = ""
    port: UInt16 = 0
