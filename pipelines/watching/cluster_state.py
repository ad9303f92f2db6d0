"""The state of a cluster: its nodes, its quorum, and the partitions that are not well."""

import asyncio
import re
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from headwater.core_log.client.cluster_admin import (
    NO_QUORUM,
    ClusterDescription,
    Move,
    QuorumDescription,
)
from headwater.core_log.client.topic_admin import PartitionDescription, TopicDescription
from headwater.core_log.foundation.errors import LogRejected, LogUnavailable
from headwater.core_log.model.log import TopicPartition
from headwater.pipelines.terminal.quantities import size_text
from headwater.pipelines.watching.moved_replicas import CopyProgress, progress_of, throttles_shown

if TYPE_CHECKING:
    from headwater.core_log.client import KafkaLog

MIN_IN_SYNC = "min.insync.replicas"
ANSWER_S = 5.0
"""Wait for the leader of the quorum, or for all brokers; without one, there is no answer for
longer."""
T = TypeVar("T")
AWAY = "away"
OF_PARTITION = re.compile(r"(.+)-\d+ (.+)")


@dataclass(frozen=True, slots=True)
class NodeState:
    """One node, which may have brokers, votes, or both."""

    node: int
    address: str
    """`away` if it is fenced or has not registered."""
    vote: str
    """`leader`, `voter`, `observer` or `none`, in the metadata quorum."""
    metadata_lag: int | None
    """Records of the metadata that it lacks, as far as the leader of the quorum knows."""
    leads: int
    replicas: int
    in_sync: int


@dataclass(frozen=True, slots=True)
class ClusterState:
    cluster_id: str
    quorum: str
    nodes: Sequence[NodeState]
    problems: Sequence[str]
    """Empty if every node is there and every replica is in sync."""
    moves: Sequence[str] = ()
    """The partitions that are being moved, and how far."""
    throttles: Sequence[str] = ()
    """The topics that are copied at a rate."""
    metadata_version: int | None = None
    """The version in which the metadata is written; None if the cluster does not tell."""


async def read_state(log: "KafkaLog", topics: Sequence[TopicDescription]) -> ClusterState:
    """Returns the state of the cluster that has the log, with all its topics."""
    found, names = await log.describe_cluster(), [each.name for each in topics]
    least = await log.topics.config_of_each(names, MIN_IN_SYNC)
    moves, throttled = await log.brokers.moves(), await log.throttles.topics(names)
    state = state_of(
        found,
        await _within(log.describe_quorum(), NO_QUORUM),
        topics,
        {name: int(value or 1) for name, value in least.items()},
        moves,
        copied=await _within(progress_of(log, moves), {}) if moves else {},
        throttles=throttles_shown(
            throttled, await _within(log.throttles.rates(), {}) if throttled else {}
        ),
    )
    version = await _within(log.describe_metadata_version(), None)
    return replace(state, metadata_version=version)


async def _within(answer: Awaitable[T], otherwise: T) -> T:
    """Returns the answer, or else what stands for it where the cluster does not give it."""
    try:
        async with asyncio.timeout(ANSWER_S):
            return await answer
    except (TimeoutError, LogUnavailable, LogRejected):
        return otherwise


def state_of(
    cluster: ClusterDescription,
    quorum: QuorumDescription,
    topics: Sequence[TopicDescription],
    min_in_sync: Mapping[str, int],
    moves: Mapping[TopicPartition, Move] | None = None,
    *,
    copied: Mapping[TopicPartition, CopyProgress] | None = None,
    throttles: Sequence[str] = (),
) -> ClusterState:
    """`min_in_sync` is min.insync.replicas by topic."""
    moves, copied = moves or {}, copied or {}
    voters = " ".join(map(str, sorted(quorum.voters)))
    has_leader = quorum.leader_id >= 0
    leads = f"leader {quorum.leader_id}, epoch {quorum.epoch}, voters {voters}"
    partitions = [each for topic in topics for each in topic.partitions]
    nodes = _nodes(cluster, quorum, partitions)
    return ClusterState(
        cluster.cluster_id,
        leads if has_leader else "no leader",
        nodes,
        [
            *([] if has_leader else ["the metadata quorum has no leader"]),
            *(f"node {each.node} is away" for each in nodes if each.address == AWAY),
            *_problems_of_partitions(topics, min_in_sync, moves),
        ],
        [_move_named(at, each, copied.get(at)) for at, each in sorted(moves.items())],
        throttles,
    )


def _nodes(
    cluster: ClusterDescription,
    quorum: QuorumDescription,
    partitions: Sequence[PartitionDescription],
) -> list[NodeState]:
    addresses = {each.node_id: f"{each.host}:{each.port}" for each in cluster.brokers}
    assigned = {node for each in partitions for node in each.replicas}
    ends = {**quorum.observers, **quorum.voters}
    known = sorted(addresses.keys() | quorum.voters.keys() | assigned)
    newest = max(ends.values(), default=-1)
    return [
        NodeState(
            node,
            addresses.get(node, AWAY),
            _vote_of(node, quorum),
            newest - ends[node] if ends.get(node, -1) >= 0 else None,
            sum(each.leader == node for each in partitions),
            sum(node in each.replicas for each in partitions),
            sum(node in each.in_sync for each in partitions),
        )
        for node in known
    ]


def _vote_of(node: int, quorum: QuorumDescription) -> str:
    if node == quorum.leader_id:
        return "leader"
    if node in quorum.voters:
        return "voter"
    return "observer" if node in quorum.observers else "none"


def _problems_of_partitions(
    topics: Sequence[TopicDescription],
    min_in_sync: Mapping[str, int],
    moves: Mapping[TopicPartition, Move],
) -> Iterable[str]:
    """A replica that is added just now is nothing to worry about."""
    for topic in topics:
        for each in topic.partitions:
            name = f"{topic.name}-{each.partition}"
            move = moves.get(TopicPartition(topic.name, each.partition))
            adding = () if move is None else move.adding
            settled = [node for node in each.replicas if node not in adding]
            in_sync = f"in sync on {_nodes_named(each.in_sync)} of {_nodes_named(each.replicas)}"
            least = min(min_in_sync.get(topic.name, 1), len(settled))
            if each.leader < 0:
                yield f"{name} is offline: {in_sync}"
            elif len(each.in_sync) < least:
                yield f"{name} takes no acks=all: {in_sync}, min.insync.replicas is {least}"
            elif not {*settled} <= {*each.in_sync}:
                yield f"{name} is under-replicated: {in_sync}"


def shorten(problems: Sequence[str]) -> list[str]:
    """Returns one line for the partitions of a topic that have the same problem."""
    others = dict[tuple[str, ...], list[str]]()
    for each in problems:
        found = OF_PARTITION.fullmatch(each)
        others.setdefault(found.groups() if found else (each,), []).append(each)
    return [
        first if not rest else f"{first} (and {len(rest)} more of the topic)"
        for first, *rest in others.values()
    ]


def _move_named(at: TopicPartition, move: Move, copied: CopyProgress | None) -> str:
    to = [each for each in move.replicas if each not in move.removing]
    text = f"{at.topic}-{at.partition} is being moved to {_nodes_named(to)}"
    if copied is None:
        return text
    return f"{text}: {copied.share:.0%}, {size_text(copied.left)} left"


def _nodes_named(nodes: Sequence[int]) -> str:
    return " ".join(map(str, sorted(nodes))) or "none"
