"""Elects the leaders of partitions from the in-sync replicas, and without one of these from the
eligible ones (KIP-966): those that dropped out while the high watermark stood still."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import NamedTuple

from headwater.core_log.replication.metadata import NO_LEADER, MetadataImage, Topic
from headwater.core_log.replication.metadata_records import (
    Assignment,
    PartitionChangeRecord,
    PartitionRecord,
)


class ElectionRules(NamedTuple):
    """The settings of a topic that its elections follow."""

    min_in_sync: int
    allows_unclean: bool


RulesOf = Callable[[Topic], ElectionRules]


def after_registration(
    image: MetadataImage,
    broker_id: int,
    rules_of: RulesOf,
    *,
    is_fenced: bool = False,
    has_new_disk: bool = False,
) -> Iterator[PartitionChangeRecord]:
    """Returns the changes after a broker has (re)started: it must prove again that it has the
    leader's records. It leads only if no other replica can, once it is not fenced, and always under
    a new epoch: records that it lost before must not be mistaken for new ones. On a new disk it has
    nothing, so that it cannot be elected before it has copied everything."""
    alive = {*image.alive} - {broker_id} if is_fenced else {*image.alive, broker_id}
    lost = (broker_id,) if has_new_disk else ()
    for topic, each in _partitions_of(image, broker_id):
        others = [replica for replica in each.in_sync if replica != broker_id]
        is_restart = each.leader == broker_id
        change = change_in_sync(
            each, others, alive, rules_of(topic), is_new_epoch=is_restart, lost=lost
        )
        if change is not None:
            yield change


def after_unfencing(
    image: MetadataImage, broker_id: int, rules_of: RulesOf
) -> Iterator[PartitionChangeRecord]:
    """Returns the changes after a registered broker may lead: partitions without a leader get one
    if it is electable."""
    alive = {*image.alive, broker_id}
    for topic, each in _partitions_of(image, broker_id):
        if each.leader == NO_LEADER:
            change = change_in_sync(each, each.in_sync, alive, rules_of(topic))
            if change is not None:
                yield change


def after_loss(
    image: MetadataImage, broker_id: int, rules_of: RulesOf
) -> Iterator[PartitionChangeRecord]:
    """Returns the changes after a broker is gone. A partition without another replica that may lead
    waits for it."""
    alive = {*image.alive} - {broker_id}
    for topic, each in _partitions_of(image, broker_id):
        others = [replica for replica in each.in_sync if replica != broker_id]
        change = change_in_sync(each, others, alive, rules_of(topic))
        if change is not None:
            yield change


def after_lower_min(topic: Topic) -> Iterator[PartitionChangeRecord]:
    """Returns the changes after min.insync.replicas became lower: the high watermark may move on
    without the eligible replicas. Without an in-sync one they are the only ones that can lead."""
    for each in topic.partitions.values():
        if each.eligible and each.in_sync:
            yield change_of(each, each.in_sync, (), each.leader, is_new_epoch=False)


def change_in_sync(
    before: PartitionRecord,
    wanted: Collection[int],
    alive: Collection[int],
    rules: ElectionRules,
    *,
    is_new_epoch: bool = False,
    lost: Collection[int] = (),
    assignment: Assignment | None = None,
) -> PartitionChangeRecord | None:
    """Returns the change that makes `wanted` the in-sync set, with its leader and its eligible
    replicas; None if all stays as it is. A leader that stays keeps its epoch, unless `is_new_epoch`
    or a replica is removed. Those that have `lost` their disk are not eligible any more. A move
    ends once all that stay are in sync."""
    moved = _ended(assignment or before.assignment, wanted)
    replicas, enough = moved.replicas, moved.enough(rules.min_in_sync)
    in_sync = tuple(each for each in replicas if each in wanted)
    eligible: tuple[int, ...] = ()
    if len(in_sync) < enough:
        complete = {*before.in_sync, *before.eligible} - {*in_sync, *lost}
        eligible = tuple(each for each in replicas if each in complete)
    leader = before.leader
    if leader not in in_sync or leader not in alive:
        leader = _first(in_sync, alive)
    if leader == NO_LEADER and not in_sync:
        leader = _first(eligible, alive)
        if leader == NO_LEADER and rules.allows_unclean:
            leader, eligible = _first((*moved.origin, *moved.adding), alive), ()
        if leader != NO_LEADER:
            in_sync = (leader,)
            rest = tuple(each for each in eligible if each != leader)
            eligible = rest if len(in_sync) < enough else ()
    after = (in_sync, eligible, leader)
    is_same = after == (before.in_sync, before.eligible, before.leader)
    if is_same and moved == before.assignment and not is_new_epoch:
        return None
    is_new_epoch = is_new_epoch or not {*replicas}.issuperset(before.replicas)
    change = change_of(before, *after, is_new_epoch=is_new_epoch)
    return change if moved == before.assignment else replace(change, **moved._asdict())


def _ended(assignment: Assignment, in_sync: Collection[int]) -> Assignment:
    """Returns the assignment after its move, if all that stay are in sync."""
    target = assignment.target
    if assignment.is_moving and all(each in in_sync for each in target):
        return Assignment(target)
    return assignment


def _first(replicas: Collection[int], alive: Collection[int]) -> int:
    """Returns the first live one; the first of a partition's replicas is its preferred leader."""
    return next((each for each in replicas if each in alive), NO_LEADER)


def _partitions_of(image: MetadataImage, broker_id: int) -> Iterator[tuple[Topic, PartitionRecord]]:
    return ((topic, each) for topic, each in image.partitions if broker_id in each.replicas)


def change_of(
    before: PartitionRecord,
    in_sync: tuple[int, ...],
    eligible: tuple[int, ...],
    leader: int,
    *,
    is_new_epoch: bool,
) -> PartitionChangeRecord:
    return PartitionChangeRecord(
        before.topic_id,
        before.partition,
        in_sync,
        leader,
        before.leader_epoch + (is_new_epoch or leader != before.leader),
        before.partition_epoch + 1,
        eligible,
    )
