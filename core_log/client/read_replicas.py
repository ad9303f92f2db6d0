"""Replicas near this client that leaders have named, to be read in their place (KIP-392)."""

import asyncio
from collections.abc import Mapping

from headwater.core_log.client.cluster import Cluster
from headwater.core_log.links.connection import RetriableFailure
from headwater.core_log.links.node import Node
from headwater.core_log.model.log import TopicPartition

LEASE_S = 10.0
"""After it the leader is asked again: the replica may have been cut off meanwhile. Java's client
waits for five minutes."""


class ReadReplicas:
    """Brokers by partition; without one the leader is read."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._named: dict[TopicPartition, tuple[int, float]] = {}
        self.count = 0
        """How often a leader has named one."""

    def use(
        self, leaders: Mapping[Node, list[TopicPartition]]
    ) -> Mapping[Node, list[TopicPartition]]:
        """Returns the partitions by the broker to read from."""
        if not self._named:
            return leaders
        found: dict[Node, list[TopicPartition]] = {}
        for leader, partitions in leaders.items():
            for each in partitions:
                found.setdefault(self._find(each) or leader, []).append(each)
        return found

    def _find(self, partition: TopicPartition) -> Node | None:
        node_id, until_s = self._named.get(partition, (-1, 0.0))
        if asyncio.get_running_loop().time() >= until_s:
            self._named.pop(partition, None)
            return None
        return self._cluster.node(node_id)

    def name(self, partition: TopicPartition, node_id: int) -> None:
        """Called when the leader sends us to another broker."""
        if self._cluster.node(node_id) is None:
            self._cluster.forget_topic(partition.topic)  # brokers are learnt with it
            raise RetriableFailure("the address of a broker is not known", node_id=node_id)
        self._named[partition] = (node_id, asyncio.get_running_loop().time() + LEASE_S)
        self.count += 1

    def drop(self, partition: TopicPartition) -> bool:
        """Returns to the leader; returns whether another broker was read."""
        return self._named.pop(partition, None) is not None
