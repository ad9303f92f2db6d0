"""Elects the leaders of partitions from the in-sync replicas, and without one of these from the
eligible ones (KIP-966): those that dropped out while the high watermark stood still."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import NamedTuple
from uuid import UUID

from headwater.core_log.model.log import TopicPartition
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.replication.decisions import Decision
from headwater.core_log.replication.metadata import NO_LEADER, MetadataImage, Topic
from headwater.core_log.replication.metadata_records import (
    Assignment,
    Doubt,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
)

ELECTIONS_AT_ONCE_MAX = 1000  # Kafka's own limit


class ElectionRules(NamedTuple):
    """The settings of a topic that its elections follow, and who stands last in them."""

    min_in_sync: int
    allows_unclean: bool
    unheard: Collection[int] = ()
    """Brokers that this controller has not heard yet: they may be gone."""


RulesOf = Callable[[Topic], ElectionRules]


@dataclass(frozen=True, slots=True)
class Losses:
    """The losses that a broker reports at its registration, by topic and partition."""

    certain: Collection[tuple[UUID, int]] = ()
    """They lack records that were on disk."""
    doubtful: Mapping[tuple[UUID, int], Doubt] = field(default_factory=dict)
    """They may lack some."""
    has_new_disk: bool = False
    """Nothing is left of any of them."""
    is_older_copy: bool = False
    """All of them are as they were in an earlier life of the broker."""

    def is_certain(self, partition: PartitionRecord) -> bool:
        at = (partition.topic_id, partition.partition)
        return self.has_new_disk or self.is_older_copy or at in self.certain


NO_LOSSES = Losses()


def after_registration(
    image: MetadataImage,
    broker_id: int,
    rules_of: RulesOf,
    *,
    is_fenced: bool = False,
    losses: Losses = NO_LOSSES,
) -> Iterator[PartitionChangeRecord]:
    """Returns the changes after a broker has (re)started: it must prove again that it has the
    leader's records. It leads only if no other replica can, once it is not fenced, and always under
    a new epoch: records that it lost before must not be mistaken for new ones. On a new disk it has
    nothing, so that it cannot be elected before it has copied everything; neither can it where it
    has lost records, unless there is no other replica that had them."""
    alive = {*image.alive} - {broker_id} if is_fenced else {*image.alive, broker_id}
    for topic, each in _partitions_of(image, broker_id):
        others = [replica for replica in each.in_sync if replica != broker_id]
        is_restart = each.leader == broker_id
        complete = _complete(each)
        is_lost = losses.is_certain(each) and (losses.has_new_disk or complete != {broker_id})
        doubt = losses.doubtful.get((each.topic_id, each.partition))
        doubtful = [known for known in each.doubtful if not is_lost or known.broker_id != broker_id]
        if doubt is not None and broker_id in complete and not is_lost:
            doubtful = [*(known for known in doubtful if known.broker_id != broker_id), doubt]
        change = change_in_sync(
            each,
            others,
            alive,
            rules_of(topic),
            is_new_epoch=is_restart,
            lost=(broker_id,) if is_lost else (),
            doubtful=doubtful,
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


def after_unclean_allowed(
    image: MetadataImage, topic: Topic, rules: ElectionRules
) -> Iterator[PartitionChangeRecord]:
    """Returns the changes after unclean elections were allowed: where nobody leads a live replica
    does. Kafka elects it within five minutes."""
    for each in topic.partitions.values():
        if each.leader == NO_LEADER and not each.in_sync:
            change = change_in_sync(each, (), image.alive, rules)
            if change is not None:
                yield change


def change_in_sync(
    before: PartitionRecord,
    wanted: Collection[int],
    alive: Collection[int],
    rules: ElectionRules,
    *,
    is_new_epoch: bool = False,
    lost: Collection[int] = (),
    doubtful: Collection[Doubt] | None = None,
    assignment: Assignment | None = None,
) -> PartitionChangeRecord | None:
    """Returns the change that makes `wanted` the in-sync set, with its leader and its eligible
    replicas; None if all stays as it is. A leader that stays keeps its epoch, unless `is_new_epoch`
    or a replica is removed. Those that have `lost` records are not eligible any more, nor are the
    `doubtful`. A move ends once all that stay are in sync."""
    moved = _ended(assignment or before.assignment, wanted)
    replicas, enough = moved.replicas, moved.enough(rules.min_in_sync)
    in_sync = tuple(each for each in replicas if each in wanted)
    doubts = {
        each.broker_id: each
        for each in (before.doubtful if doubtful is None else doubtful)
        if each.broker_id in replicas and each.broker_id not in in_sync
    }
    eligible: tuple[int, ...] = ()
    if len(in_sync) < enough:
        complete = {*before.in_sync, *before.eligible} - {*in_sync, *lost, *doubts}
        eligible = tuple(each for each in replicas if each in complete)
    leader = before.leader
    if leader not in in_sync or leader not in alive:
        leader = _first(in_sync, alive, rules)
    if leader == NO_LEADER and not in_sync:
        leader = _first(eligible, alive, rules)
        if leader == NO_LEADER and not eligible:
            leader = _most_complete(doubts, replicas, alive)
        if leader == NO_LEADER and rules.allows_unclean:
            leader, eligible = _first((*moved.origin, *moved.adding), alive, rules), ()
        if leader != NO_LEADER:
            in_sync = (leader,)
            rest = tuple(each for each in eligible if each != leader)
            eligible = rest if len(in_sync) < enough else ()
    left = () if leader != NO_LEADER else tuple(doubts[each] for each in replicas if each in doubts)
    after = (in_sync, eligible, leader)
    is_same = (*after, left) == (before.in_sync, before.eligible, before.leader, before.doubtful)
    if is_same and moved == before.assignment and not is_new_epoch:
        return None
    is_new_epoch = is_new_epoch or not {*replicas}.issuperset(before.replicas)
    change = change_of(before, *after, is_new_epoch=is_new_epoch, doubtful=left)
    return change if moved == before.assignment else replace(change, **moved._asdict())


def _complete(partition: PartitionRecord) -> set[int]:
    """Returns the replicas of which one has all that is committed, as far as is known."""
    doubtful = (each.broker_id for each in partition.doubtful)
    return {*partition.in_sync, *partition.eligible, *doubtful}


def _most_complete(
    doubts: Mapping[int, Doubt], replicas: Collection[int], alive: Collection[int]
) -> int:
    """Returns the doubtful replica that has most, once all of them are back."""
    if not doubts or any(each not in alive for each in doubts):
        return NO_LEADER
    found = [doubts[each] for each in replicas if each in doubts]
    return max(found, key=lambda each: (each.last_epoch, each.end_offset)).broker_id


def _ended(assignment: Assignment, in_sync: Collection[int]) -> Assignment:
    """Returns the assignment after its move, if all that stay are in sync."""
    target = assignment.target
    if assignment.is_moving and all(each in in_sync for each in target):
        return Assignment(target)
    return assignment


def _first(replicas: Collection[int], alive: Collection[int], rules: ElectionRules) -> int:
    """Returns the first live one; the first of a partition's replicas is its preferred leader."""
    living = (each for each in replicas if each in alive)
    # of equals the first one, since min takes that
    return min(living, key=lambda each: each in rules.unheard, default=NO_LEADER)


def _partitions_of(image: MetadataImage, broker_id: int) -> Iterator[tuple[Topic, PartitionRecord]]:
    return ((topic, each) for topic, each in image.partitions if broker_id in each.replicas)


def change_of(
    before: PartitionRecord,
    in_sync: tuple[int, ...],
    eligible: tuple[int, ...],
    leader: int,
    *,
    is_new_epoch: bool,
    doubtful: tuple[Doubt, ...] = (),
) -> PartitionChangeRecord:
    return PartitionChangeRecord(
        before.topic_id,
        before.partition,
        in_sync,
        leader,
        before.leader_epoch + (is_new_epoch or leader != before.leader),
        before.partition_epoch + 1,
        eligible,
        doubtful=doubtful,
    )


class ElectionType(IntEnum):
    """Kinds of elections, with ElectLeaders' numbers."""

    PREFERRED = 0
    UNCLEAN = 1


class LeaderElections:
    """Decides about leaders. Pure, like the rest of the controller."""

    def __init__(self, image: MetadataImage, rules_of: RulesOf) -> None:
        self._image, self._rules_of = image, rules_of

    def elect(
        self, kind: ElectionType, wanted: Collection[TopicPartition] | None
    ) -> Decision[dict[TopicPartition, ErrorCode]]:
        """Elects the leaders of these partitions, or of all; of all, those where nothing is to be
        done are left out of the answer."""
        answer, records = dict[TopicPartition, ErrorCode](), list[MetadataRecord]()
        known = {
            TopicPartition(topic.name, each.partition): (topic, each)
            for topic, each in self._image.partitions
        }
        alive = self._image.alive
        for at in known if wanted is None else wanted:
            if at not in known:
                answer[at] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                continue
            topic, before = known[at]
            outcome = elect(before, kind, alive, self._rules_of(topic))
            if isinstance(outcome, PartitionChangeRecord):
                records.append(outcome)
                answer[at] = ErrorCode.NONE
            elif wanted is not None or outcome is not ErrorCode.ELECTION_NOT_NEEDED:
                answer[at] = outcome
        return Decision(answer, records)

    def balance(self) -> Decision[int]:
        """Lets first replicas lead again, as far as they can; returns how many."""
        records = self.elect(ElectionType.PREFERRED, None).records[:ELECTIONS_AT_ONCE_MAX]
        return Decision(len(records), records)


def elect(
    before: PartitionRecord, kind: ElectionType, alive: Collection[int], rules: ElectionRules
) -> PartitionChangeRecord | ErrorCode:
    """Returns the change of an election that somebody wants, or the reason why there is none: the
    first replica leads already or cannot, or somebody leads whose records would be given up."""
    if kind is ElectionType.UNCLEAN:
        if before.leader != NO_LEADER:
            return ErrorCode.ELECTION_NOT_NEEDED
        rules = rules._replace(allows_unclean=True)
        change = change_in_sync(before, before.in_sync, alive, rules)
        has_leader = change is not None and change.leader != NO_LEADER
        return change if change and has_leader else ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    first = before.replicas[0]
    if first == before.leader:
        return ErrorCode.ELECTION_NOT_NEEDED
    if first not in before.in_sync or first not in alive:
        return ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    return change_of(before, before.in_sync, before.eligible, first, is_new_epoch=True)
