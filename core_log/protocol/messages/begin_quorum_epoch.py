"""BeginQuorumEpoch (key 53), versions 0 to 1: a new leader of the metadata quorum
tells a voter of its epoch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated
from uuid import UUID

from headwater.core_log.protocol.fields import IGNORABLE, Int16, Int32, Since, Tagged, UInt16
from headwater.core_log.protocol.message import Request, request, response, struct
from headwater.core_log.protocol.primitives import ZERO_UUID


@request(api_key=53, versions=(0, 1), flexible_from=1)
class BeginQuorumEpochRequest(Request["BeginQuorumEpochResponse"]):
    cluster_id: str | None = None
    voter_id: Annotated[Int32, Since(1), IGNORABLE] = -1
    topics: Sequence[BegunEpochTopic] = ()
    leader_endpoints: Annotated[Sequence[BegunEpochLeaderEndpoint], Since(1), IGNORABLE] = ()


@struct
class BegunEpochTopic:
    topic_name: str = ""
    partitions: Sequence[BegunEpochPartition] = ()


@struct
class BegunEpochPartition:
    partition_index: Int32 = 0
    voter_directory_id: Annotated[UUID, Since(1), IGNORABLE] = ZERO_UUID
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


@struct
class BegunEpochLeaderEndpoint:
    name: str = ""
    host: str = ""
    port: UInt16 = 0


@response(versions=(0, 1), flexible_from=1)
class BeginQuorumEpochResponse:
    error_code: Int16 = 0
    topics: Sequence[BeginEpochAnswerTopic] = ()
    node_endpoints: Annotated[Sequence[BegunEpochNodeEndpoint], Since(1), Tagged(0)] = ()


@struct
class BeginEpochAnswerTopic:
    topic_name: str = ""
    partitions: Sequence[BeginEpochAnswerPartition] = ()


@struct
class BeginEpochAnswerPartition:
    partition_index: Int32 = 0
    error_code: Int16 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


@struct
class BegunEpochNodeEndpoint:
    node_id: Int32 = 0
    host: str = ""
    port: UInt16 = 0
