"""Vote (key 52) between our brokers, with a private field for a voter whose log was cut."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from headwater.core_log.protocol.fields import IGNORABLE, Int16, Int32, Since, Tagged
from headwater.core_log.protocol.message import Request, request, response, struct
from headwater.core_log.protocol.messages.vote import VoteNodeEndpoint, VoteTopic

IS_DOUBTFUL = 10_000
"""Tag of our own, far above Kafka's."""


@request(api_key=52, versions=(0, 2), flexible_from=0)
class MemberVoteRequest(Request["MemberVoteResponse"]):
    cluster_id: str | None = None
    voter_id: Annotated[Int32, Since(1), IGNORABLE] = -1
    topics: Sequence[VoteTopic] = ()


@response(versions=(0, 2), flexible_from=0)
class MemberVoteResponse:
    error_code: Int16 = 0
    topics: Sequence[MemberVotedTopic] = ()
    node_endpoints: Annotated[Sequence[VoteNodeEndpoint], Since(1), Tagged(0)] = ()


@struct
class MemberVotedTopic:
    topic_name: str = ""
    partitions: Sequence[MemberVotedPartition] = ()


@struct
class MemberVotedPartition:
    partition_index: Int32 = 0
    error_code: Int16 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0
    vote_granted: bool = False
    is_doubtful: Annotated[bool, Tagged(IS_DOUBTFUL)] = False
