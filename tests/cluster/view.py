"""Who leads what in a cluster, asked of its nodes one after another."""

import asyncio
from collections.abc import Iterable, Mapping
from struct import Struct
from typing import Any

from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.protocol import frames, message
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.add_raft_voter import AddRaftVoterRequest
from headwater.core_log.protocol.messages.describe_quorum import (
    DescribedQuorumPartition,
    DescribeQuorumPartition,
    DescribeQuorumRequest,
    DescribeQuorumTopic,
    QuorumReplica,
)
from headwater.core_log.protocol.messages.find_coordinator import FindCoordinatorRequest
from headwater.core_log.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponsePartition,
)
from headwater.core_log.replication.metadata import METADATA_TOPIC
from tests.cluster.nodes import COUNT

LENGTH = Struct(">i")
ANSWER_S_MAX = 3.0
"""A frozen node does not answer: the next one is asked."""


async def ask(address: str, request: Any, version: int) -> Any:
    """One request over a connection of its own."""
    host, _, port = address.rpartition(":")
    async with asyncio.timeout(ANSWER_S_MAX):
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            writer.write(frames.encode_request(request, version, 1, "view"))
            (size,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
            answer = memoryview(await reader.readexactly(size))
        finally:
            writer.close()
    _, body = frames.read_response_header(answer, type(request).api_key, version)
    return message.decode(message.response_type(type(request)), answer, version, body)


NO_ANSWER = (OSError, TimeoutError, asyncio.IncompleteReadError, DecodeError)


class ClusterView:
    """What the nodes say, which may be no longer or not yet so."""

    def __init__(self, addresses: Mapping[int, str]) -> None:
        self._addresses = addresses

    async def leader(self, at: TopicPartition, nodes: Iterable[int]) -> list[int]:
        """Returns nobody where nobody leads, or nobody can be asked; so do the others."""
        found = await self._partition(at, nodes)
        return [] if found is None or found.leader_id < 0 else [found.leader_id]

    async def followers(self, at: TopicPartition, nodes: Iterable[int]) -> list[int]:
        found = await self._partition(at, nodes)
        if found is None:
            return []
        return [each for each in found.replica_nodes if each != found.leader_id]

    async def _partition(
        self, at: TopicPartition, nodes: Iterable[int]
    ) -> MetadataResponsePartition | None:
        for node in nodes:
            try:
                return find(await self.metadata(node), at)
            except NO_ANSWER:
                continue
        return None

    async def metadata(self, node: int) -> MetadataResponse:
        answer: MetadataResponse = await ask(
            self._addresses[node], MetadataRequest(topics=None), 12
        )
        return answer

    async def controller(self, nodes: Iterable[int]) -> list[int]:
        found = await self._quorum(nodes)
        return [] if found is None else [found.leader_id]

    async def _quorum(self, nodes: Iterable[int]) -> DescribedQuorumPartition | None:
        topic = DescribeQuorumTopic(
            topic_name=METADATA_TOPIC, partitions=[DescribeQuorumPartition()]
        )
        for node in nodes:
            try:
                answer = await ask(self._addresses[node], DescribeQuorumRequest(topics=[topic]), 2)
            except NO_ANSWER:
                continue
            if answer.error_code == 0:
                found: DescribedQuorumPartition = answer.topics[0].partitions[0]
                if found.error_code == 0 and found.leader_id >= 0:
                    return found
        return None

    async def coordinator(self, name: str, kind: int, nodes: Iterable[int]) -> list[int]:
        """`kind` is 0 for a group and 1 for a transactional id."""
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[name])
        for node in nodes:
            try:
                found = (await ask(self._addresses[node], request, 4)).coordinators[0]
            except NO_ANSWER:
                continue
            if found.error_code == 0:
                return [found.node_id]
        return []

    async def out_of_sync(self, nodes: Iterable[int], wanted: int) -> list[str]:
        """Returns partitions that are not led or not in sync on `wanted` nodes, in the eyes of any
        of these nodes. All their replicas are enough, if these are three at least."""
        problems = list[str]()
        for node in nodes:
            try:
                told = await self.metadata(node)
            except NO_ANSWER as error:
                problems.append(f"node {node} does not answer: {error!r}")
                continue
            if len(told.brokers) < wanted:
                problems.append(f"node {node} knows {len(told.brokers)} brokers")
            problems += [
                f"{topic.name}-{each.partition_index} by node {node}: leader {each.leader_id}, "
                f"in sync {list(each.isr_nodes)}"
                for topic in told.topics
                for each in topic.partitions
                if each.leader_id < 0
                or len(each.isr_nodes) < min(wanted, max(COUNT, len(each.replica_nodes)))
            ]
        return problems

    async def without_vote(self, nodes: Iterable[int], others_max: int = 0) -> list[str]:
        """Returns nodes that copy the metadata and do not vote yet, as one does with a new disk, if
        they are more than so many."""
        awake = list(nodes)
        if (found := await self._quorum(awake)) is None:
            return ["nobody tells who votes"]
        waiting = [each.replica_id for each in waiting_for_a_vote(found)]
        problems = [f"node {each} has no vote" for each in waiting if each in awake]
        return problems if len(problems) > others_max else []

    async def give_votes(self, nodes: Iterable[int]) -> list[str]:
        """Asks for a vote of each node that has none, as `kafka-metadata-quorum add-controller`
        does; returns these nodes with the answer."""
        awake = list(nodes)
        if (found := await self._quorum(awake)) is None:
            return ["nobody tells who votes"]
        problems = list[str]()
        for each in waiting_for_a_vote(found):
            request = AddRaftVoterRequest(
                cluster_id=None,
                timeout_ms=int(ANSWER_S_MAX * 1_000),
                voter_id=each.replica_id,
                voter_directory_id=each.replica_directory_id,
            )
            try:
                answer = await ask(self._addresses[awake[0]], request, 1)
                said = f"{ErrorCode(answer.error_code).name} {answer.error_message}"
            except NO_ANSWER as error:
                said = repr(error)
            problems.append(f"node {each.replica_id} had no vote: {said}")
        return problems


def waiting_for_a_vote(found: DescribedQuorumPartition) -> list[QuorumReplica]:
    """Observers but those whose node has a vote under a newer directory."""
    heard = {each.replica_id: each.last_fetch_timestamp for each in found.current_voters}
    return [
        each
        for each in found.observers
        if each.last_fetch_timestamp > heard.get(each.replica_id, -1)
    ]


def find(told: MetadataResponse, at: TopicPartition) -> MetadataResponsePartition | None:
    for topic in told.topics:
        for each in topic.partitions:
            if (topic.name, each.partition_index) == at:
                return each
    return None
