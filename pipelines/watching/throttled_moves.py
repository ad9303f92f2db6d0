"""Throttles replicas for as long as they move, and shows those that are throttled."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from headwater.core_log.client.quota_admin import BrokerRate, ThrottledTopic
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.model.replication_throttle import EVERY_REPLICA
from headwater.pipelines.terminal.quantities import size_text

if TYPE_CHECKING:
    from headwater.core_log.client import KafkaLog

Replicas = tuple[int, ...]
REMOVAL = "headwater cluster unthrottle"


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
