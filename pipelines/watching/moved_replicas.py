"""Plans where replicas go, throttles their copies, and follows them until they are there."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from headwater.core_log.client.quota_admin import BrokerRate, ThrottledTopic
from headwater.core_log.foundation.errors import ConfigError, HeadwaterError, LogRejected
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.model.replica_placement import EVERY_REPLICA, ReplicaPlan
from headwater.pipelines.terminal.quantities import duration_text, size_text

if TYPE_CHECKING:
    from headwater.core_log.client import KafkaLog
    from headwater.core_log.client.cluster_admin import Move

Replicas = tuple[int, ...]
Assignments = Mapping[TopicPartition, Replicas]
REMOVAL = "headwater cluster unthrottle"
LOOK_S = 0.5
STALLED_S = 60.0
SHOWN_MAX = 5
SEEN_S_MIN = 2.0
"""How long a copy is watched before it is said how long it will take."""


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
                "the broker cannot be drained: a partition has replicas on all other live brokers",
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
    """Plans the move; each partition of a topic begins with another of the replicas, so that all
    lead some."""
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
        raise ConfigError("the topic or partition does not exist", name=place)
    return sorted(found)


@dataclass(frozen=True, slots=True)
class CopyPace:
    """How fast replicas are copied."""

    at_once: int
    """Partitions at the same time."""
    bytes_per_s: int | None = None
    """The rate of each broker; None for no limit."""


async def carry_out(
    log: "KafkaLog", changes: Assignments, *, pace: CopyPace, note: Callable[[str], None]
) -> None:
    """Begins the moves, few at a time, and returns once all are over. Moves that have begun go on
    if this ends before."""
    rate = pace.bytes_per_s if changes else None
    if rate is not None:
        await throttle(log, changes, rate)
    left = sorted(changes)
    try:
        await _move(log, changes, left, pace.at_once, MoveReport(len(changes), note))
    except LogRejected:  # nothing more is begun, so that nothing else needs its rate
        if rate is not None:
            moves = await log.brokers.moves()
            await unthrottle(log, [at for at in changes if at not in moves])
        raise
    except (asyncio.CancelledError, HeadwaterError):
        note(_unfinished(len(left), is_throttled=rate is not None))
        raise
    if rate is not None and not await unthrottle(log, changes.keys()):
        note(f"brokers keep their rate while other partitions move; {REMOVAL} ends it")


async def _move(
    log: "KafkaLog",
    changes: Assignments,
    left: list[TopicPartition],
    at_once: int,
    report: "MoveReport",
) -> None:
    """Takes what it begins out of `left`."""
    under_way = set[TopicPartition]()
    while left or under_way:
        moves = await log.brokers.moves()
        under_way &= moves.keys()
        begun = left[: at_once - len(under_way)]
        if begun:
            await log.brokers.move({at: changes[at] for at in begun})
            del left[: len(begun)]
            under_way |= {*begun}
            continue
        if under_way:
            copied = await progress_of(log, {at: moves[at] for at in under_way})
            report.tell(len(left), copied, asyncio.get_running_loop().time())
            await asyncio.sleep(LOOK_S)


def _unfinished(left: int, *, is_throttled: bool) -> str:
    """Says what becomes of moves whose command ends before them."""
    again = f"to begin the other {left}" if left else "to follow them"
    text = f"moves that have begun go on; give the command again {again}"
    if is_throttled:
        text += f". The rate stays until that command is done, or until {REMOVAL}"
    return text


class CopyProgress(NamedTuple):
    """The bytes that new replicas have, and those that they will have."""

    have: int
    wanted: int

    @property
    def left(self) -> int:
        return self.wanted - self.have

    @property
    def share(self) -> float:
        return self.have / self.wanted if self.wanted else 1.0


async def progress_of(
    log: "KafkaLog", moves: "Mapping[TopicPartition, Move]"
) -> Mapping[TopicPartition, CopyProgress]:
    """Returns how far each move is, by the sizes of replicas."""
    sizes = await log.brokers.replica_sizes()
    found = dict[TopicPartition, CopyProgress]()
    for at, move in moves.items():
        whole = max((sizes.get(each, {}).get(at, 0) for each in move.replicas), default=0)
        have = sum(min(sizes.get(each, {}).get(at, 0), whole) for each in move.adding)
        found[at] = CopyProgress(have, whole * len(move.adding))
    return found


def total_of(copied: Iterable[CopyProgress]) -> CopyProgress:
    each = list(copied)
    return CopyProgress(sum(one.have for one in each), sum(one.wanted for one in each))


class MoveReport:
    """Tells how far moves are, whenever that has changed by a percent."""

    def __init__(self, count: int, note: Callable[[str], None]) -> None:
        self._count, self._note, self._said = count, note, ""
        self._watched: Collection[TopicPartition] = ()
        self._begun = (0, 0.0)
        """The bytes that were left of these when they were seen first, and when that was."""
        self._left_bytes, self._shrank_s = 0, 0.0

    def tell(self, left: int, copied: Mapping[TopicPartition, CopyProgress], now_s: float) -> None:
        total = total_of(copied.values())
        if self._watched != copied.keys():
            self._watched, self._begun = copied.keys(), (total.left, now_s)
            self._left_bytes, self._shrank_s = total.left, now_s
        over = self._count - left - len(copied)
        text = (
            f"{over} of {self._count} partition(s) moved, "
            f"{len(copied)} are copied to {total.share:.0%}"
        )
        if text != self._said:
            self._said = text
            self._note(f"{text}, {self._left_shown(copied, total, now_s)}" if total.left else text)
        if total.left < self._left_bytes:
            self._left_bytes, self._shrank_s = total.left, now_s
        elif total.left and now_s - self._shrank_s > STALLED_S:
            self._shrank_s = inf
            self._note(
                f"no less is left than {STALLED_S:.0f} s ago: a broker is away, or others write "
                "faster than the rate"
            )

    def _left_shown(
        self, copied: Mapping[TopicPartition, CopyProgress], total: CopyProgress, now_s: float
    ) -> str:
        begun_bytes, begun_s = self._begun
        gained, passed_s = begun_bytes - total.left, now_s - begun_s
        time = ""
        if gained > 0 and passed_s >= SEEN_S_MIN:
            time = f" for about {duration_text(total.left * passed_s / gained * 1_000)}"
        most = sorted(copied.items(), key=lambda each: -each[1].left)[:SHOWN_MAX]
        names = [f"{at.topic}-{at.partition} {size_text(one.left)}" for at, one in most if one.left]
        more = f" and {len(copied) - SHOWN_MAX} others" if len(copied) > SHOWN_MAX else ""
        return f"{size_text(total.left)} left{time}: {', '.join(names)}{more}"


class Copy(NamedTuple):
    """The copy of one partition: the brokers that have its records, and those that get them."""

    sources: Replicas
    targets: Replicas


async def copies_of(
    log: "KafkaLog", changes: Mapping[TopicPartition, Replicas]
) -> Mapping[TopicPartition, Copy]:
    """Returns the partitions that are to be copied, or are being copied."""
    moves = await log.brokers.moves()
    found = dict[TopicPartition, Copy]()
    for topic in await log.topics.all():
        for each in topic.partitions:
            at = TopicPartition(topic.name, each.partition)
            adding = moves[at].adding if at in moves else ()
            sources = tuple(node for node in each.replicas if node not in adding)
            targets = tuple(node for node in changes.get(at, ()) if node not in sources)
            if targets:
                found[at] = Copy(sources, targets)
    return found


async def throttle(
    log: "KafkaLog", changes: Mapping[TopicPartition, Replicas], bytes_per_s: int
) -> None:
    """Throttles what the changes copy, and nothing else."""
    copies = await copies_of(log, changes)
    by_topic = defaultdict[str, dict[int, Copy]](dict)
    for at, copy in copies.items():
        by_topic[at.topic][at.partition] = copy
    known, wanted = await log.throttles.topics(by_topic), dict[str, ThrottledTopic]()
    for topic, moved in by_topic.items():
        leaders, followers = known.get(topic, ThrottledTopic("", ""))
        wanted[topic] = ThrottledTopic(
            merge(leaders, {at: copy.sources for at, copy in moved.items()}),
            merge(followers, {at: copy.targets for at, copy in moved.items()}),
        )
    await log.throttles.set_topics(wanted)
    brokers = {node for each in copies.values() for node in (*each.sources, *each.targets)}
    await log.throttles.set_rate(brokers, bytes_per_s)


async def unthrottle(log: "KafkaLog", partitions: Collection[TopicPartition]) -> bool:
    """Ends the throttles of partitions that have moved. Returns whether the rates of all brokers
    are removed, too; they stay while others move."""
    by_topic = defaultdict[str, set[int]](set)
    for at in partitions:
        by_topic[at.topic].add(at.partition)
    known, left = await log.throttles.topics(by_topic), dict[str, ThrottledTopic]()
    for topic, (leaders, followers) in known.items():
        moved: dict[int, Replicas] = dict.fromkeys(by_topic[topic], ())
        left[topic] = ThrottledTopic(merge(leaders, moved), merge(followers, moved))
    await log.throttles.set_topics(left)
    if await log.brokers.moves():
        return False
    await remove_rates(log)
    return True


async def remove_all(log: "KafkaLog") -> tuple[Sequence[str], Mapping[int, int]]:
    """Returns the topics that had throttled replicas, and the rates that brokers had."""
    known = await log.throttles.topics([each.name for each in await log.topics.all()])
    await log.throttles.set_topics(dict.fromkeys(known, ThrottledTopic("", "")))
    return sorted(known), await remove_rates(log)


async def remove_rates(log: "KafkaLog") -> Mapping[int, int]:
    """Removes the rates that brokers have of their own; returns them."""
    own = {
        node: each.bytes_per_s
        for node, each in (await log.throttles.rates()).items()
        if each.is_own
    }
    await log.throttles.set_rate(own, None)
    return own


def merge(given: str, moved: Mapping[int, Replicas]) -> str:
    """Returns the list with these brokers for the partitions that move, and all others as they are;
    `*` has everything already."""
    names = [each.strip() for each in given.split(",") if each.strip()]
    if EVERY_REPLICA in names:
        return EVERY_REPLICA
    kept = [each for each in names if int(each.split(":")[0]) not in moved]
    return ",".join([*kept, *(f"{at}:{node}" for at, each in moved.items() for node in each)])


def throttles_shown(
    topics: Mapping[str, ThrottledTopic], rates: Mapping[int, BrokerRate]
) -> Sequence[str]:
    """Returns a line for the topics that are copied at a rate; a list without a rate does
    nothing."""
    if not topics or not rates:
        return []
    lowest, highest = (choose(each.bytes_per_s for each in rates.values()) for choose in (min, max))
    span = size_text(lowest) + ("" if lowest == highest else f" to {size_text(highest)}")
    nodes = " ".join(map(str, sorted(rates)))
    return [
        f"{name} is copied at {span} per second on {nodes}; {REMOVAL} ends that"
        for name in sorted(topics)
    ]
