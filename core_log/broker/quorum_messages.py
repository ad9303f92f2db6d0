"""The quorum's messages in Kafka's schemas, there and back."""

from typing import Any, NamedTuple

from headwater.core_log.broker.quorum_log import LISTENER
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.inter_broker_messages import (
    MemberVotedPartition,
    MemberVotedTopic,
    MemberVoteRequest,
    MemberVoteResponse,
)
from headwater.core_log.protocol.messages.begin_quorum_epoch import (
    BeginEpochAnswerPartition,
    BeginEpochAnswerTopic,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    BegunEpochLeaderEndpoint,
    BegunEpochPartition,
    BegunEpochTopic,
)
from headwater.core_log.protocol.messages.end_quorum_epoch import (
    EndedEpochLeaderEndpoint,
    EndedEpochPartition,
    EndedEpochTopic,
    EndEpochAnswerPartition,
    EndEpochAnswerTopic,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    ReplicaInfo,
)
from headwater.core_log.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ReplicaState,
)
from headwater.core_log.protocol.messages.fetch_snapshot import (
    FetchSnapshotRequest,
    SnapshotPartition,
    SnapshotTopic,
    WantedSnapshot,
)
from headwater.core_log.protocol.messages.update_raft_voter import (
    KRaftVersionRange,
    UpdateRaftVoterRequest,
    VoterListener,
)
from headwater.core_log.protocol.messages.vote import VotePartition, VoteTopic
from headwater.core_log.protocol.primitives import ZERO_UUID
from headwater.core_log.replication.metadata import METADATA_ID, METADATA_TOPIC
from headwater.core_log.replication.quorum import (
    BeginQuorumEpochMessage,
    EndQuorumEpochMessage,
    QuorumFetch,
)
from headwater.core_log.replication.voters import (
    Ballot,
    BallotAnswer,
    QuorumVersions,
    ReplicaKey,
    Voter,
)

FETCH_WAIT_MS = 500
FETCH_BYTES_MAX = 8 << 20
SNAPSHOT_BYTES_MAX = 1 << 20


class Sender(NamedTuple):
    """This node, as its messages name it."""

    replica: ReplicaKey
    cluster_id: str
    host: str
    port: int


def vote_request(ballot: Ballot, sender: Sender) -> MemberVoteRequest:
    partition = VotePartition(
        replica_epoch=ballot.epoch,
        replica_id=ballot.candidate.node_id,
        replica_directory_id=ballot.candidate.directory_id,
        voter_directory_id=ballot.voter.directory_id,
        last_offset_epoch=ballot.last_epoch,
        last_offset=ballot.end_offset,
        pre_vote=ballot.is_pre_vote,
    )
    return MemberVoteRequest(
        cluster_id=sender.cluster_id,
        voter_id=ballot.voter.node_id,
        topics=(VoteTopic(topic_name=METADATA_TOPIC, partitions=(partition,)),),
    )


def read_vote_request(request: MemberVoteRequest) -> Ballot | None:
    """Returns the ballot; None for anything but the metadata's partition."""
    if not is_metadata(request):
        return None
    asked = request.topics[0].partitions[0]
    return Ballot(
        candidate=ReplicaKey(asked.replica_id, asked.replica_directory_id),
        voter=ReplicaKey(request.voter_id, asked.voter_directory_id),
        epoch=asked.replica_epoch,
        last_epoch=asked.last_offset_epoch,
        end_offset=asked.last_offset,
        is_pre_vote=asked.pre_vote,
    )


def vote_response(answer: BallotAnswer, *, code: ErrorCode = ErrorCode.NONE) -> MemberVoteResponse:
    partition = MemberVotedPartition(
        error_code=code,
        leader_id=answer.leader,
        leader_epoch=answer.epoch,
        vote_granted=answer.is_granted,
        is_doubtful=answer.is_doubtful,
    )
    return MemberVoteResponse(
        topics=(MemberVotedTopic(topic_name=METADATA_TOPIC, partitions=(partition,)),)
    )


def read_vote_response(response: MemberVoteResponse) -> BallotAnswer | None:
    """Returns the answer; None if the voter refuses to take part."""
    if response.error_code or not is_metadata(response):
        return None
    said = response.topics[0].partitions[0]
    if said.error_code not in (ErrorCode.NONE, ErrorCode.FENCED_LEADER_EPOCH):
        return None
    return BallotAnswer(
        said.vote_granted, said.leader_epoch, said.leader_id, is_doubtful=said.is_doubtful
    )


def begin_epoch_request(
    message: BeginQuorumEpochMessage, sender: Sender
) -> BeginQuorumEpochRequest:
    partition = BegunEpochPartition(
        voter_directory_id=message.voter.directory_id,
        leader_id=sender.replica.node_id,
        leader_epoch=message.epoch,
    )
    endpoint = BegunEpochLeaderEndpoint(name=LISTENER, host=sender.host, port=sender.port)
    return BeginQuorumEpochRequest(
        cluster_id=sender.cluster_id,
        voter_id=message.voter.node_id,
        topics=(BegunEpochTopic(topic_name=METADATA_TOPIC, partitions=(partition,)),),
        leader_endpoints=(endpoint,),
    )


def begin_epoch_response(epoch: int, leader: int, code: ErrorCode) -> BeginQuorumEpochResponse:
    partition = BeginEpochAnswerPartition(error_code=code, leader_id=leader, leader_epoch=epoch)
    topic = BeginEpochAnswerTopic(topic_name=METADATA_TOPIC, partitions=(partition,))
    return BeginQuorumEpochResponse(topics=(topic,))


def end_epoch_request(message: EndQuorumEpochMessage, sender: Sender) -> EndQuorumEpochRequest:
    partition = EndedEpochPartition(
        leader_id=sender.replica.node_id,
        leader_epoch=message.epoch,
        preferred_candidates=tuple(
            ReplicaInfo(candidate_id=each.node_id, candidate_directory_id=each.directory_id)
            for each in message.successors
        ),
    )
    endpoint = EndedEpochLeaderEndpoint(name=LISTENER, host=sender.host, port=sender.port)
    return EndQuorumEpochRequest(
        cluster_id=sender.cluster_id,
        topics=(EndedEpochTopic(topic_name=METADATA_TOPIC, partitions=(partition,)),),
        leader_endpoints=(endpoint,),
    )


def end_epoch_response(epoch: int, leader: int, code: ErrorCode) -> EndQuorumEpochResponse:
    partition = EndEpochAnswerPartition(error_code=code, leader_id=leader, leader_epoch=epoch)
    topic = EndEpochAnswerTopic(topic_name=METADATA_TOPIC, partitions=(partition,))
    return EndQuorumEpochResponse(topics=(topic,))


def fetch_request(
    asked: QuorumFetch, sender: Sender, *, high_watermark: int, start_offset: int
) -> FetchRequest:
    partition = FetchPartition(
        partition=0,
        current_leader_epoch=asked.epoch,
        fetch_offset=asked.offset,
        last_fetched_epoch=asked.last_epoch,
        log_start_offset=start_offset,
        partition_max_bytes=FETCH_BYTES_MAX,
        replica_directory_id=sender.replica.directory_id,
        high_watermark=high_watermark,
    )
    return FetchRequest(
        cluster_id=sender.cluster_id,
        replica_state=ReplicaState(replica_id=sender.replica.node_id),
        max_wait_ms=FETCH_WAIT_MS,
        max_bytes=FETCH_BYTES_MAX,
        topics=(FetchTopic(topic_id=METADATA_ID, partitions=(partition,)),),
    )


def update_voter_request(voter: Voter, epoch: int, cluster_id: str) -> UpdateRaftVoterRequest:
    lowest, highest = voter.versions
    return UpdateRaftVoterRequest(
        cluster_id=cluster_id,
        current_leader_epoch=epoch,
        voter_id=voter.key.node_id,
        voter_directory_id=voter.key.directory_id,
        listeners=(VoterListener(name=LISTENER, host=voter.host, port=voter.port),),
        k_raft_version_feature=KRaftVersionRange(
            min_supported_version=lowest, max_supported_version=highest
        ),
    )


def read_update_voter_request(request: UpdateRaftVoterRequest) -> Voter | None:
    """Returns the voter as its next record should be; None for what cannot be one."""
    key = ReplicaKey(request.voter_id, request.voter_directory_id)
    places = [(each.host, each.port) for each in request.listeners if each.name == LISTENER]
    said = request.k_raft_version_feature
    versions = QuorumVersions(said.min_supported_version, said.max_supported_version)
    is_range = 0 <= versions.lowest <= versions.highest
    if key.node_id < 0 or key.directory_id == ZERO_UUID or not places or not is_range:
        return None
    return Voter(key, *places[0], versions)


def snapshot_request(
    epoch: int, end_offset: int, snapshot_epoch: int, position: int, sender: Sender
) -> FetchSnapshotRequest:
    partition = SnapshotPartition(
        current_leader_epoch=epoch,
        snapshot_id=WantedSnapshot(end_offset=end_offset, epoch=snapshot_epoch),
        position=position,
        replica_directory_id=sender.replica.directory_id,
    )
    return FetchSnapshotRequest(
        cluster_id=sender.cluster_id,
        replica_id=sender.replica.node_id,
        max_bytes=SNAPSHOT_BYTES_MAX,
        topics=(SnapshotTopic(name=METADATA_TOPIC, partitions=(partition,)),),
    )


def is_metadata(message: Any) -> bool:
    """Whether the message of the quorum is about the metadata's partition, and nothing else."""
    return [
        (topic.topic_name, each.partition_index)
        for topic in message.topics
        for each in topic.partitions
    ] == [(METADATA_TOPIC, 0)]
