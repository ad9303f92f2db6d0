"""The brokers of a cluster and the quorum of its metadata, for administrators."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from headwater.core_log.client.broker_errors import check
from headwater.core_log.client.cluster import Cluster
from headwater.core_log.protocol.messages.api_versions import ApiVersionsRequest
from headwater.core_log.protocol.messages.describe_quorum import (
    DescribeQuorumPartition,
    DescribeQuorumRequest,
    DescribeQuorumTopic,
)

METADATA_TOPIC = "__cluster_metadata"
METADATA_VERSIONS = ("headwater.metadata.version", "metadata.version")
"""The feature whose level is the version of the metadata: ours, and that of Apache Kafka."""


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
