"""BrokerRegistration (key 62) and Vote (key 52) between our brokers, with private fields for what
replicas have lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated
from uuid import UUID

from headwater.core_log.protocol.fields import IGNORABLE, Int16, Int32, Int64, Since, Tagged
from headwater.core_log.protocol.message import Request, request, response, struct
from headwater.core_log.protocol.messages.broker_registration import (
    BrokerFeature,
    BrokerListener,
)
from headwater.core_log.protocol.messages.broker_registration import (
    BrokerRegistrationResponse as BrokerRegistrationResponse,
)
from headwater.core_log.protocol.messages.vote import VoteNodeEndpoint, VoteTopic
from headwater.core_log.protocol.primitives import ZERO_UUID

FORMER_DIRECTORY_ID, LOSSES = 10_000, 10_001
IS_DOUBTFUL = 10_000
"""Tags of our own, far above Kafka's."""


@request(api_key=62, versions=(0, 4), flexible_from=0)
class MemberRegistrationRequest(Request["BrokerRegistrationResponse"]):
    broker_id: Int32 = 0
    cluster_id: str = ""
    incarnation_id: UUID = ZERO_UUID
    listeners: Sequence[BrokerListener] = ()
    features: Sequence[BrokerFeature] = ()
    rack: str | None = ""
    is_migrating_zk_broker: Annotated[bool, Since(1)] = False
    log_dirs: Annotated[Sequence[UUID], Since(2), IGNORABLE] = ()
    previous_broker_epoch: Annotated[Int64, Since(3), IGNORABLE] = -1
    former_directory_id: Annotated[UUID, Tagged(FORMER_DIRECTORY_ID)] = ZERO_UUID
    """The directory has the partitions that it had under this id."""
    losses: Annotated[Sequence[ReplicaLoss], Tagged(LOSSES)] = ()


@struct
class ReplicaLoss:
    """A replica that lacks, or may lack, records that it had on its disk."""

    topic_id: UUID = ZERO_UUID
    partition: Int32 = 0
    is_certain: bool = False
    last_epoch: Int32 = -1
    end_offset: Int64 = 0


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
