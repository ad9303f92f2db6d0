"""Brokers, the metadata quorum, and the places of partitions for administrators."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from headwater.core_log.client.cluster import Cluster
from headwater.core_log.client.retry_policy import check
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from headwater.core_log.protocol.messages.api_versions import ApiVersionsRequest
from headwater.core_log.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from headwater.core_log.protocol.messages.describe_quorum import (
    DescribeQuorumPartition,
    DescribeQuorumRequest,
    DescribeQuorumTopic,
)
from headwater.core_log.protocol.messages.elect_leaders import ElectLeadersRequest
from headwater.core_log.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
)
from headwater.core_log.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from headwater.core_log.protocol.messages.unregister_broker import UnregisterBrokerRequest

PARTITIONS_PER_REQUEST = 1000
PREFERRED = 0
NOT_REFUSED = (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)
METADATA_TOPIC = "__cluster_metadata"
METADATA_VERSIONS = ("headwater.metadata.version", "metadata.version")
"""The feature whose level is the version of the metadata: ours, and that of Apache Kafka."""


@dataclass(frozen=True, slots=True)
class Move:
    """A partition on its way to other brokers."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class ClusterAdmin:
    """Administration of a cluster; every answer comes from it, without a cache."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def move(self, wanted: Mapping[TopicPartition, Sequence[int] | None]) -> None:
        """Begins moves of partitions to these brokers; None cancels one under way."""
        places = sorted(wanted)
        for first in range(0, len(places), PARTITIONS_PER_REQUEST):
            await self._move({at: wanted[at] for at in places[first:][:PARTITIONS_PER_REQUEST]})

    async def _move(self, wanted: Mapping[TopicPartition, Sequence[int] | None]) -> None:
        by_topic = defaultdict[str, list[ReassignablePartition]](list)
        for at, replicas in wanted.items():
            by_topic[at.topic].append(
                ReassignablePartition(partition_index=at.partition, replicas=replicas)
            )
        request = AlterPartitionReassignmentsRequest(
            topics=[
                ReassignableTopic(name=name, partitions=each) for name, each in by_topic.items()
            ]
        )

        async def attempt() -> None:
            answer = await self._cluster.ask_any(request)
            check(answer.error_code, message=answer.error_message)
            for topic in answer.responses:
                for each in topic.partitions:
                    check(
                        each.error_code,
                        message=each.error_message,
                        topic=topic.name,
                        partition=each.partition_index,
                    )

        await self._cluster.persist(attempt)

    async def moves(self) -> Mapping[TopicPartition, Move]:
        async def attempt() -> Mapping[TopicPartition, Move]:
            answer = await self._cluster.ask_any(ListPartitionReassignmentsRequest())
            check(answer.error_code, message=answer.error_message)
            return {
                TopicPartition(topic.name, each.partition_index): Move(
                    tuple(each.replicas),
                    tuple(each.adding_replicas),
                    tuple(each.removing_replicas),
                )
                for topic in answer.topics
                for each in topic.partitions
            }

        return await self._cluster.persist(attempt)

    async def elect_preferred(self) -> Mapping[TopicPartition, str]:
        """Lets first replicas lead again; returns those for which that is not possible now."""

        async def attempt() -> Mapping[TopicPartition, str]:
            request = ElectLeadersRequest(election_type=PREFERRED, topic_partitions=None)
            answer = await self._cluster.ask_any(request)
            check(answer.error_code)
            return {
                TopicPartition(topic.topic, each.partition_id): ErrorCode(each.error_code).meaning
                for topic in answer.replica_election_results
                for each in topic.partition_result
                if each.error_code not in NOT_REFUSED
            }

        return await self._cluster.persist(attempt)

    async def replica_sizes(self) -> Mapping[int, Mapping[TopicPartition, int]]:
        """Returns by broker the bytes of its replicas."""

        async def attempt() -> Mapping[int, Mapping[TopicPartition, int]]:
            found = dict[int, dict[TopicPartition, int]]()
            for broker in (await self._cluster.metadata([])).brokers:
                node, sizes = self._cluster.node(broker.node_id), dict[TopicPartition, int]()
                assert node is not None, "the metadata makes a broker known"
                found[broker.node_id] = sizes
                for directory in (await node.ask(DescribeLogDirsRequest(topics=None))).results:
                    for topic in directory.topics:
                        for part in topic.partitions:
                            at = TopicPartition(topic.name, part.partition_index)
                            sizes[at] = part.partition_size
            return found

        return await self._cluster.persist(attempt)

    async def remove_voter(self, node_id: int, directory_id: UUID) -> None:
        request = RemoveRaftVoterRequest(
            cluster_id=None, voter_id=node_id, voter_directory_id=directory_id
        )

        async def attempt() -> None:
            answer = await self._cluster.ask_any(request)
            if answer.error_code != ErrorCode.VOTER_NOT_FOUND:  # a lost answer is asked for again
                check(answer.error_code, message=answer.error_message, node=node_id)

        await self._cluster.persist(attempt)

    async def unregister(self, node_id: int) -> None:
        async def attempt() -> None:
            answer = await self._cluster.ask_any(UnregisterBrokerRequest(broker_id=node_id))
            if answer.error_code != ErrorCode.BROKER_ID_NOT_REGISTERED:
                check(answer.error_code, message=answer.error_message, node=node_id)

        await self._cluster.persist(attempt)


@dataclass(frozen=True, slots=True)
class BrokerDescription:
    node_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    cluster_id: str
    """Empty if the cluster does not tell."""
    controller_id: int
    brokers: tuple[BrokerDescription, ...]


@dataclass(frozen=True, slots=True)
class QuorumDescription:
    leader_id: int
    """-1 if nobody leads."""
    epoch: int
    voters: Mapping[int, int]
    """By node: the end of its metadata log, as far as the leader knows; -1 if it does not."""
    observers: Mapping[int, int]
    directories: Mapping[int, UUID] = field(default_factory=dict)
    """By voter: the id of its data directory, without which it is not removed."""


NO_QUORUM = QuorumDescription(-1, -1, {}, {})
"""No leader answers for the quorum."""


async def describe_cluster(cluster: Cluster) -> ClusterDescription:
    async def attempt() -> ClusterDescription:
        found = await cluster.metadata([])
        brokers = sorted(found.brokers, key=lambda broker: broker.node_id)
        return ClusterDescription(
            found.cluster_id or "",
            found.controller_id,
            tuple(
                BrokerDescription(each.node_id, each.host, each.port, each.rack) for each in brokers
            ),
        )

    return await cluster.persist(attempt)


async def describe_metadata_version(cluster: Cluster) -> int | None:
    """Returns the version in which the cluster writes its metadata; None if it does not tell."""

    async def attempt() -> int | None:
        answer = await cluster.ask_any(ApiVersionsRequest())
        levels = {each.name: each.max_version_level for each in answer.finalized_features}
        return next((levels[name] for name in METADATA_VERSIONS if name in levels), None)

    return await cluster.persist(attempt)


async def describe_quorum(cluster: Cluster) -> QuorumDescription:
    topic = DescribeQuorumTopic(topic_name=METADATA_TOPIC, partitions=[DescribeQuorumPartition()])
    request = DescribeQuorumRequest(topics=[topic])

    async def attempt() -> QuorumDescription:
        answer = await cluster.ask_any(request)
        check(answer.error_code)
        found = answer.topics[0].partitions[0]
        check(found.error_code, topic=METADATA_TOPIC)
        return QuorumDescription(
            found.leader_id,
            found.leader_epoch,
            {each.replica_id: each.log_end_offset for each in found.current_voters},
            {each.replica_id: each.log_end_offset for each in found.observers},
            {each.replica_id: each.replica_directory_id for each in found.current_voters},
        )

    return await cluster.persist(attempt)
