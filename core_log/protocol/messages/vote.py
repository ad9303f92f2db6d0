"""Vote (key 52), versions 0 to 2: a replica asks a voter of the metadata quorum
for its vote, or before that whether it would get it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated
from uuid import UUID

from headwater.core_log.protocol.fields import IGNORABLE, Int16, Int32, Int64, Since, Tagged, UInt16
from headwater.core_log.protocol.message import Request, request, response, struct
from headwater.core_log.protocol.primitives import ZERO_UUID


@request(api_key=52, versions=(0, 2), flexible_from=0)
class VoteRequest(Request["VoteResponse"]):
    cluster_id: str | None = None
    voter_id: Annotated[Int32, Since(1), IGNORABLE] = -1
    topics: Sequence[VoteTopic] = ()


@struct
class VoteTopic:
    topic_name: str = ""
    partitions: Sequence[VotePartition] = ()


@struct
class VotePartition:
    partition_index: Int32 = 0
    replica_epoch: Int32 = 0
    replica_id: Int32 = 0
    replica_directory_id: Annotated[UUID, Since(1), IGNORABLE] = ZERO_UUID
    voter_directory_id: Annotated[UUID, Since(1), IGNORABLE] = ZERO_UUID
    last_offset_epoch: Int32 = 0
    last_offset: Int64 = 0
    pre_vote: Annotated[bool, Since(2)] = False


@response(versions=(0, 2), flexible_from=0)
class VoteResponse:
    error_code: Int16 = 0
    topics: Sequence[VotedTopic] = ()
    node_endpoints: Annotated[Sequence[VoteNodeEndpoint], Since(1), Tagged(0)] = ()


@struct
class VotedTopic:
    topic_name: str = ""
    partitions: Sequence[VotedPartition] = ()


@struct
class VotedPartition:
    partition_index: Int32 = 0
    error_code: Int16 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0
    vote_granted: bool = False


@struct
class VoteNodeEndpoint:
    node_id: Int32 = 0
    host: str = ""
    port: UInt16 = 0
