"""The brokers of a cluster, for administrators."""

from dataclasses import dataclass

from headwater.core_log.client.cluster import Cluster


@dataclass(frozen=True, slots=True)
class BrokerDescription:
    node_id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    cluster_id: str
    """Empty if the cluster does not tell."""
    controller_id: int
    brokers: tuple[BrokerDescription, ...]


async def describe_cluster(cluster: Cluster) -> ClusterDescription:
    async def attempt() -> ClusterDescription:
        found = await cluster.metadata([])
        brokers = sorted(found.brokers, key=lambda broker: broker.node_id)
        return ClusterDescription(
            found.cluster_id or "",
            found.controller_id,
            tuple(BrokerDescription(each.node_id, each.host, each.port) for each in brokers),
        )

    return await cluster.persist(attempt)
