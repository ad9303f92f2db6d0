"""Chooses the brokers of a partition, and its leader when a broker goes or comes."""

import re
from collections.abc import Callable, Iterator, Sequence

from headwater.core_log.replication.metadata import NO_LEADER, MetadataImage, Topic
from headwater.core_log.replication.metadata_records import PartitionChangeRecord, PartitionRecord


def place(
    brokers: Sequence[int], *, first: int, count: int, replication_factor: int
) -> list[tuple[int, ...]]:
    """Assigns replicas in turn, so that leaders, the first of each, are spread evenly."""
    assert replication_factor <= len(brokers), "each replica has a broker of its own"
    return [
        tuple(brokers[(first + index + nth) % len(brokers)] for nth in range(replication_factor))
        for index in range(count)
    ]


def after_registration(
    image: MetadataImage, broker_id: int, allows_unclean: Callable[[Topic], bool]
) -> Iterator[PartitionChangeRecord]:
    """Returns the changes after a broker has (re)started. It leads only if no other in-sync replica
    can, and always under a new epoch: records that it lost before must not be mistaken for new
    ones."""
    for topic, each in _partitions_of(image, broker_id):
        others = tuple(replica for replica in each.in_sync if replica != broker_id)
        leader = _first_alive(image, each, others)
        if broker_id in each.in_sync and leader == NO_LEADER:
            yield _change(each, each.in_sync, broker_id)
        elif broker_id in each.in_sync:  # it must prove again that it has the leader's records
            yield _change(each, others, each.leader if each.leader in others else leader)
        elif each.leader == NO_LEADER and leader == NO_LEADER and allows_unclean(topic):
            yield _change(each, (broker_id,), broker_id)


def after_loss(
    image: MetadataImage, broker_id: int, allows_unclean: Callable[[Topic], bool]
) -> Iterator[PartitionChangeRecord]:
    """Returns the changes after a broker is gone. The last in-sync replica stays in sync, without a
    leader, until it is back, unless the topic allows an unclean election."""
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
    """Returns the first live broker; the first of the replicas is the preferred leader."""
    alive = (replica for replica in each.replicas if replica in among and image.is_alive(replica))
    return next(alive, NO_LEADER)


def _change(
    before: PartitionRecord, in_sync: tuple[int, ...], leader: int
) -> PartitionChangeRecord:
    """Returns the change. A leader that stays keeps its epoch, unless it restarts itself."""
    keeps_epoch = leader == before.leader and in_sync != before.in_sync
    return PartitionChangeRecord(
        before.topic_id,
        before.partition,
        in_sync,
        leader,
        before.leader_epoch + (0 if keeps_epoch else 1),
        before.partition_epoch + 1,
    )


NAME_LENGTH_MAX = 249  # with `-<partition>` appended, a directory name is at most 255 bytes long
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def name_problem(name: str) -> str | None:
    """Returns the error of a topic's name, or None."""
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
    """Returns an equal key for names that Kafka's metrics cannot tell apart ('.' and '_' are the
    same there)."""
    return name.replace(".", "_")
