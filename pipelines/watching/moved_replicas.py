"""Plans where replicas go, and follows them until they are there."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from headwater.core_log.foundation.errors import ConfigError, LogRejected
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.model.replica_placement import ReplicaPlan

if TYPE_CHECKING:
    from headwater.core_log.client import KafkaLog
    from headwater.core_log.client.cluster_admin import Move

Replicas = tuple[int, ...]
Assignments = Mapping[TopicPartition, Replicas]
LOOK_S = 0.5


async def assignments_of(log: "KafkaLog") -> dict[TopicPartition, Replicas]:
    """Returns the replicas of every partition; of one that moves, those it will have."""
    moves = await log.brokers.moves()
    found = {
        TopicPartition(topic.name, each.partition): each.replicas
        for topic in await log.topics.all()
        for each in topic.partitions
    }
    for at, move in moves.items():
        found[at] = tuple(each for each in move.replicas if each not in move.removing)
    return found


async def plan_of(log: "KafkaLog", *, without: int | None = None) -> ReplicaPlan:
    """Returns a plan for the brokers that are there."""
    brokers = (await log.describe_cluster()).brokers
    racks = {each.node_id: each.rack for each in brokers if each.node_id != without}
    return ReplicaPlan(await assignments_of(log), racks)


async def plan_drain(log: "KafkaLog", node: int) -> Assignments:
    """Raises if a partition has no other broker to go to."""
    plan = await plan_of(log, without=node)
    for at in [at for at, replicas in plan.replicas.items() if node in replicas]:
        if not plan.leave(at, node):
            raise LogRejected(
                "broker cannot be drained: a partition has replicas on all others that are there",
                hint="start another broker, or give the topic fewer replicas: "
                "headwater cluster move TOPIC --to ...",
                broker=node,
                partition=f"{at.topic}-{at.partition}",
            )
    return plan.changes


async def plan_balance(log: "KafkaLog") -> Assignments:
    plan = await plan_of(log)
    plan.balance()
    return plan.changes


async def plan_move(log: "KafkaLog", place: str, replicas: Replicas) -> Assignments:
    """Of a topic's partitions each begins with another of the replicas, so that all lead some."""
    found = await find_places(log, place)
    is_alone = len(found) == 1
    return {at: _turned(replicas, by=0 if is_alone else at.partition) for at in found}


def _turned(replicas: Replicas, *, by: int) -> Replicas:
    first = by % len(replicas)
    return replicas[first:] + replicas[:first]


async def find_places(log: "KafkaLog", place: str) -> Sequence[TopicPartition]:
    """Returns the partitions of a topic, or the one that `TOPIC-PARTITION` names."""
    known = [
        TopicPartition(topic.name, each.partition)
        for topic in await log.topics.all()
        for each in topic.partitions
    ]
    found = [at for at in known if at.topic == place]
    found = found or [at for at in known if f"{at.topic}-{at.partition}" == place]
    if not found:
        raise ConfigError("no such topic or partition", name=place)
    return sorted(found)


async def carry_out(
    log: "KafkaLog", changes: Assignments, *, at_once: int, note: Callable[[str], None]
) -> None:
    """Begins the moves, few at a time, and returns once all are over. What is begun goes on if this
    ends before."""
    left, total, said = sorted(changes), len(changes), ""
    under_way = set[TopicPartition]()
    while left or under_way:
        moves = await log.brokers.moves()
        under_way &= moves.keys()
        begun = left[: at_once - len(under_way)]
        if begun:
            left = left[len(begun) :]
            await log.brokers.move({at: changes[at] for at in begun})
            under_way |= {*begun}
            continue
        if under_way:
            copied = await share_copied(log, {at: moves[at] for at in under_way})
            over = total - len(left) - len(under_way)
            text = (
                f"{over} of {total} partition(s) moved, {len(under_way)} are copied to {copied:.0%}"
            )
            if text != said:
                note(text)
                said = text
            await asyncio.sleep(LOOK_S)


async def share_copied(log: "KafkaLog", moves: "Mapping[TopicPartition, Move]") -> float:
    """Returns which part of their bytes the replicas that are added have."""
    sizes = await log.brokers.replica_sizes()
    have = wanted = 0
    for at, move in moves.items():
        whole = max((sizes.get(each, {}).get(at, 0) for each in move.replicas), default=0)
        wanted += whole * len(move.adding)
        have += sum(min(sizes.get(each, {}).get(at, 0), whole) for each in move.adding)
    return have / wanted if wanted else 1.0
