"""Which brokers hold a partition, and who leads it when one of them goes or comes."""

import re
from collections.abc import Callable, Iterator, Sequence

from headwater.core_log.replication.metadata import NO_LEADER, MetadataImage, Topic
from headwater.core_log.replication.metadata_records import PartitionChangeRecord, PartitionRecord


def place(
    brokers: Sequence[int], *, first: int, count: int, replication_factor: int
) -> list[tuple[int, ...]]:
    """Deals replicas round, so that leaders, the first of each, spread evenly."""
    assert replication_factor <= len(brokers), "each replica has a broker of its own"
    return [
        tuple(brokers[(first + index + nth) % len(brokers)] for nth in range(replication_factor))
        for index in range(count)
    ]


def after_registration(
    image: MetadataImage, broker_id: int, allows_unclean: Callable[[Topic], bool]
) -> Iterator[PartitionChangeRecord]:
    """A broker has (re)started. It leads again only where nobody else in sync can, and always
    under a new epoch: what an earlier life of it wrote and lost must not be taken for the same.
    """
    for topic, each in _partitions_of(image, broker_id):
        others = tuple(replica for replica in each.in_sync if replica != broker_id)
        leader = _first_alive(image, each, others)
        if broker_id in each.in_sync and leader == NO_LEADER:
            yield _change(each, each.in_sync, broker_id)
        elif broker_id in each.in_sync:  # it must prove anew that it holds what the leader holds
            yield _change(each, others, each.leader if each.leader in others else leader)
        elif each.leader == NO_LEADER and leader == NO_LEADER and allows_unclean(topic):
            yield _change(each, (broker_id,), broker_id)


def after_loss(
    image: MetadataImage, broker_id: int, allows_unclean: Callable[[Topic], bool]
) -> Iterator[PartitionChangeRecord]:
    """A broker is gone. The last in-sync replica stays so, leaderless, until it comes back, unless
    the topic would rather go on without what only that replica holds.
    """
    for topic, each in _partitions_of(image, broker_id):
        if broker_id not in each.in_sync:
            continue
        others = tuple(replica for replica in each.in_sync if replica != broker_id)
        leader = each.leader if each.leader in others else _first_alive(image, each, others)
        if others:
            yield _change(each, others, leader)
            continue
        survivor = _first_alive(image, each, set(each.replicas) - {broker_id})
        if survivor != NO_LEADER and allows_unclean(topic):
            yield _change(each, (survivor,), survivor)
        elif each.leader != NO_LEADER:
            yield _change(each, each.in_sync, NO_LEADER)


def _partitions_of(image: MetadataImage, broker_id: int) -> Iterator[tuple[Topic, PartitionRecord]]:
    for topic in image.topics.values():
        for each in topic.partitions.values():
            if broker_id in each.replicas:
                yield topic, each


def _first_alive(
    image: MetadataImage, each: PartitionRecord, among: Sequence[int] | set[int]
) -> int:
    """In the order of the replicas, whose first is the one that should lead."""
    alive = (replica for replica in each.replicas if replica in among and image.is_alive(replica))
    return next(alive, NO_LEADER)


def _change(
    before: PartitionRecord, in_sync: tuple[int, ...], leader: int
) -> PartitionChangeRecord:
    """A leader that stays keeps its epoch, except when it starts anew itself."""
    keeps_epoch = leader == before.leader and in_sync != before.in_sync
    return PartitionChangeRecord(
        before.topic_id,
        before.partition,
        in_sync,
        leader,
        before.leader_epoch + (0 if keeps_epoch else 1),
        before.partition_epoch + 1,
    )


NAME_LENGTH_MAX = 249  # with `-<partition>` behind it, a directory name still fits 255 bytes
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def name_problem(name: str) -> str | None:
    """What is wrong with a topic's name, or None."""
    if not name:
        return "Topic name is invalid: it is empty"
    if name in (".", ".."):
        return f"Topic name is invalid: '{name}' is not allowed"
    if len(name) > NAME_LENGTH_MAX:
        return f"Topic name is invalid: {len(name)} characters, where {NAME_LENGTH_MAX} are allowed"
    if _LEGAL.fullmatch(name) is None:
        return "Topic name is invalid: only ASCII letters, digits, '.', '_' and '-' are allowed"
    return None


def collision_key(name: str) -> str:
    """Equal for names that Kafka's metrics cannot tell apart ('.' and '_' are the same there)."""
    return name.replace(".", "_")
