"""Fetch, BrokerRegistration and Vote between our brokers, with private fields."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated
from uuid import UUID

from headwater.core_log.protocol.fields import IGNORABLE, Int8, Int16, Int32, Int64, Since, Tagged
from headwater.core_log.protocol.message import Request, request, response, struct
from headwater.core_log.protocol.messages.broker_registration import (
    BrokerFeature,
    BrokerListener,
)
from headwater.core_log.protocol.messages.broker_registration import (
    BrokerRegistrationResponse as BrokerRegistrationResponse,
)
from headwater.core_log.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    ForgottenTopic,
    LeaderIdAndEpoch,
    NodeEndpoint,
    ReplicaState,
    SnapshotId,
)
from headwater.core_log.protocol.messages.vote import VoteNodeEndpoint, VoteTopic
from headwater.core_log.protocol.primitives import ZERO_UUID

CLEANED_TO, DELETES_DROPPED_TO = 10_000, 10_001
"""Tags of our own, far above Kafka's. In a request they are what the follower has stored, in an
answer what the leader has announced."""
HAS_READERS = 10_002
"""Tag of our own: clients wait at the follower, so that it is to be told of a new high watermark at
once."""
AGREED_TO = 10_003
"""Tag of our own: the mark of compaction that all in sync have stored. In a request it is what the
follower knows of that. Brokers of an older version neither tell nor read it."""
DROPS = 10_004
"""Tag of our own: how often the leader has dropped deletes or ends of transactions, counted from 1,
where it has compacted. Brokers of an older version do not tell it."""

NO_SESSION, NO_SESSION_EPOCH, FULL_FETCH, SESSION_EPOCH_MAX = 0, -1, 0, 0x7FFF_FFFF
"""The id of no session, and the epochs of a fetch that wants none, and of one that begins one."""
FORMER_DIRECTORY_ID, LOSSES = 10_000, 10_001
IS_DOUBTFUL = 10_000
"""Tags of our own, far above Kafka's."""


def next_session_epoch(epoch: int) -> int:
    return 1 if epoch == SESSION_EPOCH_MAX else epoch + 1


@request(api_key=1, versions=(18, 18), flexible_from=12)
class ReplicaFetchRequest(Request["ReplicaFetchResponse"]):
    cluster_id: Annotated[str | None, Tagged(0)] = None
    replica_state: Annotated[ReplicaState, Tagged(1)] = ReplicaState()
    max_wait_ms: Int32 = 0
    min_bytes: Int32 = 0
    max_bytes: Int32 = 0x7FFF_FFFF
    isolation_level: Int8 = 0
    session_id: Int32 = 0
    session_epoch: Int32 = -1
    topics: Sequence[ReplicaFetchTopic] = ()
    forgotten_topics_data: Sequence[ForgottenTopic] = ()
    rack_id: str = ""


@struct
class ReplicaFetchTopic:
    topic_id: UUID = ZERO_UUID
    partitions: Sequence[ReplicaFetchPartition] = ()


@struct
class ReplicaFetchPartition:
    partition: Int32 = 0
    current_leader_epoch: Int32 = -1
    fetch_offset: Int64 = 0
    last_fetched_epoch: Int32 = -1
    log_start_offset: Int64 = -1
    partition_max_bytes: Int32 = 0
    replica_directory_id: Annotated[UUID, Tagged(0)] = ZERO_UUID
    high_watermark: Annotated[Int64, Tagged(1)] = 0x7FFF_FFFF_FFFF_FFFF
    cleaned_to: Annotated[Int64, Tagged(CLEANED_TO)] = 0
    deletes_dropped_to: Annotated[Int64, Tagged(DELETES_DROPPED_TO)] = 0
    has_readers: Annotated[bool, Tagged(HAS_READERS)] = False
    agreed_to: Annotated[Int64, Tagged(AGREED_TO)] = 0


@response(versions=(18, 18), flexible_from=12)
class ReplicaFetchResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    session_id: Int32 = 0
    responses: Sequence[ReplicaFetchTopicResponse] = ()
    node_endpoints: Annotated[Sequence[NodeEndpoint], Tagged(0)] = ()


@struct
class ReplicaFetchTopicResponse:
    topic_id: UUID = ZERO_UUID
    partitions: Sequence[ReplicaFetchPartitionResponse] = ()


@struct
class ReplicaFetchPartitionResponse:
    partition_index: Int32 = 0
    error_code: Int16 = 0
    high_watermark: Int64 = 0
    last_stable_offset: Int64 = -1
    log_start_offset: Int64 = -1
    diverging_epoch: Annotated[EpochEndOffset, Tagged(0)] = EpochEndOffset()
    current_leader: Annotated[LeaderIdAndEpoch, Tagged(1)] = LeaderIdAndEpoch()
    snapshot_id: Annotated[SnapshotId, Tagged(2)] = SnapshotId()
    cleaned_to: Annotated[Int64, Tagged(CLEANED_TO)] = 0
    deletes_dropped_to: Annotated[Int64, Tagged(DELETES_DROPPED_TO)] = 0
    agreed_to: Annotated[Int64, Tagged(AGREED_TO)] = 0
    drops: Annotated[Int64, Tagged(DROPS)] = 0
    aborted_transactions: Sequence[AbortedTransaction] | None = ()
    preferred_read_replica: Int32 = -1
    records: memoryview | None = None


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
