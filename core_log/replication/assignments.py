"""The brokers of each partition: chosen for a new topic, and changed by a reassignment: new
replicas copy, and once all that stay are in sync the rest leave."""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from itertools import zip_longest
from typing import NamedTuple
from uuid import UUID

from headwater.core_log.model.log import TopicPartition
from headwater.core_log.model.replica_placement import Racks, ReplicaPlan, Replicas
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.replication.decisions import (
    DEFAULT,
    Decision,
    MorePartitions,
    NewTopic,
    RequestRefusal,
)
from headwater.core_log.replication.elections import RulesOf, change_in_sync
from headwater.core_log.replication.metadata import NO_LEADER, MetadataImage, Topic
from headwater.core_log.replication.metadata_records import (
    Assignment,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    TopicReplicasRecord,
)

GIVEN = "The manual partition assignment includes"
REPLICATION_FACTOR_MAX = 3
"""As many replicas have topics for which nobody has said how many."""
GROWING_AT_ONCE_MAX = 20


class Counts(NamedTuple):
    """Defaults for a topic without these numbers."""

    partitions: int
    replication_factor: int


def assign_new(
    image: MetadataImage, wanted: NewTopic, default: Counts
) -> list[Replicas] | RequestRefusal:
    """Returns the replicas of every partition of a new topic, in order."""
    if wanted.assignments:
        return _parse_given(image, wanted)
    if wanted.replication_factor < DEFAULT or wanted.replication_factor == 0:
        return RequestRefusal(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be at least 1, or -1 for the default",
        )
    if wanted.partition_count < DEFAULT or wanted.partition_count == 0:
        return RequestRefusal(
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions must be at least 1, or -1 for the default",
        )
    factor = wanted.replication_factor
    return _deal(
        image,
        first=len(image.topics),
        count=partition_count(wanted, default),
        factor=default.replication_factor if factor == DEFAULT else factor,
    )


def assign_more(
    image: MetadataImage, topic: Topic, wanted: MorePartitions
) -> list[Replicas] | RequestRefusal:
    """Returns the replicas of the partitions to be added."""
    have = len(topic.partitions)
    if wanted.count == have:
        return RequestRefusal(
            ErrorCode.INVALID_PARTITIONS, f"Topic already has {have} partition(s)"
        )
    if wanted.count < have:
        return RequestRefusal(
            ErrorCode.INVALID_PARTITIONS,
            f"Topic has {have} partition(s); {wanted.count} is not an increase",
        )
    count, factor = wanted.count - have, len(topic.partitions[0].replicas)
    if wanted.assignments is None:
        return _deal(image, first=have, count=count, factor=factor)
    if len(wanted.assignments) != count:
        return RequestRefusal(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{count} partition(s) to add, but {len(wanted.assignments)} assignment(s)",
        )
    for replicas in wanted.assignments:
        problem = _replicas_problem(image, replicas, factor)
        if problem is not None:
            return RequestRefusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
    return list(wanted.assignments)


def partition_count(wanted: NewTopic, default: Counts) -> int:
    if wanted.assignments:
        return len(wanted.assignments)
    return default.partitions if wanted.partition_count == DEFAULT else wanted.partition_count


def _parse_given(image: MetadataImage, wanted: NewTopic) -> list[Replicas] | RequestRefusal:
    if wanted.replication_factor != DEFAULT or wanted.partition_count != DEFAULT:
        return RequestRefusal(
            ErrorCode.INVALID_REQUEST,
            "Partition count and replication factor must be -1 when replicas are assigned",
        )
    by_partition = dict(wanted.assignments)
    if len(by_partition) < len(wanted.assignments):
        return RequestRefusal(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "A partition has more than one assignment"
        )
    if by_partition.keys() != set(range(len(by_partition))):
        return RequestRefusal(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Assigned partitions must count up from 0"
        )
    factor = len(wanted.assignments[0][1])
    for replicas in by_partition.values():
        problem = _replicas_problem(image, replicas, factor)
        if problem is not None:
            return RequestRefusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
    return [by_partition[index] for index in range(len(by_partition))]


def _replicas_problem(image: MetadataImage, replicas: Sequence[int], factor: int) -> str | None:
    """Returns the error of replicas for a new partition, or None."""
    problem = _problem_of(image, replicas)
    if problem is None and len(replicas) != factor:
        return (
            f"{GIVEN} a partition with {len(replicas)} replica(s), but this is not consistent with "
            f"previous partitions, which have {factor} replica(s)."
        )
    if problem is None and not any(image.is_alive(each) for each in replicas):
        return "All brokers specified in the manual partition assignment are fenced."
    return problem


def _problem_of(image: MetadataImage, replicas: Sequence[int]) -> str | None:
    """Returns Kafka's error for an assignment, or None."""
    if not replicas:
        return f"{GIVEN} an empty replica list."
    for broker in sorted(replicas):
        if broker not in image.brokers:
            return f"{GIVEN} broker {broker}, but no such broker is registered."
        if replicas.count(broker) > 1:
            return f"{GIVEN} the broker {broker} more than once."
    return None


def _deal(
    image: MetadataImage, *, first: int, count: int, factor: int
) -> list[Replicas] | RequestRefusal:
    if factor > len(image.brokers):
        return RequestRefusal(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Replication factor {factor} is larger than the number of brokers, "
            f"{len(image.brokers)}",
        )
    alive = image.alive
    if not alive:
        return RequestRefusal(
            ErrorCode.INVALID_REPLICATION_FACTOR, "All brokers are currently fenced"
        )
    racks = {each: broker.rack for each, broker in image.brokers.items()}
    return place(racks, alive=alive, first=first, count=count, replication_factor=factor)


def place(
    brokers: Racks, *, alive: Collection[int], first: int, count: int, replication_factor: int
) -> list[tuple[int, ...]]:
    """Assigns replicas in turn, so that leaders, the first of each, are spread evenly, and the
    replicas of a partition over racks. A broker without a rack is one of its own. A fenced broker
    gets a replica only where there are fewer live ones, as in Kafka: it copies it later."""
    assert replication_factor <= len(brokers), "each replica has a broker of its own"
    live = _in_turns({each: rack for each, rack in brokers.items() if each in alive})
    fenced = _in_turns({each: rack for each, rack in brokers.items() if each not in alive})
    placed = list[Replicas]()
    for index in range(first, first + count):
        replicas = list[int]()
        for around in (_from(live, index), _from(fenced, index)):
            while around and len(replicas) < replication_factor:
                used = Counter(brokers[each] for each in replicas if brokers[each] is not None)
                # of equals the next one in turn, since min takes the first
                replicas.append(min(around, key=lambda each: used[brokers[each]]))
                around.remove(replicas[-1])
        placed.append(tuple(replicas))
    return placed


def _from(brokers: Sequence[int], index: int) -> list[int]:
    """Returns the brokers, beginning with the one whose turn it is."""
    start = index % max(1, len(brokers))
    return [*brokers[start:], *brokers[:start]]


def _in_turns(brokers: Racks) -> list[int]:
    """Returns the brokers so that each rack has its turn."""
    racks = defaultdict[str | None, list[int]](list)
    alone = list[list[int]]()
    for each in sorted(brokers):
        if brokers[each] is None:
            alone.append([each])
        else:
            racks[brokers[each]].append(each)
    groups = sorted([*racks.values(), *alone])
    return [each for turn in zip_longest(*groups) for each in turn if each is not None]


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


class Reassignments:
    """Decides about moves and more replicas. Pure, like the rest of the controller."""

    def __init__(self, image: MetadataImage, rules_of: RulesOf) -> None:
        self._image, self._rules_of = image, rules_of

    def alter(
        self, wanted: Mapping[TopicPartition, Replicas | None], *, may_change_factor: bool = True
    ) -> Decision[dict[TopicPartition, RequestRefusal | None]]:
        """Begins a move of each partition to these replicas, in place of one under way; None
        cancels that."""
        answer: dict[TopicPartition, RequestRefusal | None] = {}
        records: list[MetadataRecord] = []
        fixed: dict[UUID, TopicReplicasRecord] = {}
        for at, replicas in wanted.items():
            outcome = self._alter(at, replicas, may_change_factor=may_change_factor)
            answer[at] = outcome if isinstance(outcome, RequestRefusal) else None
            if isinstance(outcome, PartitionChangeRecord):
                records.append(outcome)
                topic = self._image.topics[at.topic]
                before = len(topic.partitions[at.partition].assignment.origin)
                if replicas is not None and len(replicas) != before:
                    fixed[topic.topic_id] = TopicReplicasRecord(topic.topic_id, True)
        return Decision(answer, [*records, *fixed.values()])

    def grow(self, factor_max: int = REPLICATION_FACTOR_MAX) -> Decision[int]:
        """Gives partitions more replicas, where nobody has said how many there are, as long as live
        brokers are without one; returns how many partitions. Those that refuse acks=all come first,
        then internal topics. Few are copied at a time."""
        image, records = self._image, list[MetadataRecord]()
        factor = min(factor_max, len(image.alive))
        growing = {
            TopicPartition(topic.name, each.partition): (topic, each)
            for topic, each in image.partitions
            if not topic.has_fixed_replicas
            and each.leader != NO_LEADER
            and len(each.replicas) < factor_max
            and self._count_live(each.replicas) < factor
        }
        if not growing:
            return Decision(0)
        racks = {each: image.brokers[each].rack for each in image.alive}
        targets = {
            TopicPartition(topic.name, each.partition): each.assignment.target
            for topic, each in image.partitions
        }
        plan = ReplicaPlan(targets, racks)
        order = sorted(
            growing,
            key=lambda at: (not self._refuses(*growing[at]), not growing[at][0].is_internal, at),
        )
        for at in order[: max(0, GROWING_AT_ONCE_MAX - self.count_copied())]:
            while (
                len(plan.replicas[at]) < factor_max
                and self._count_live(plan.replicas[at]) < factor
                and plan.add(at)
            ):
                pass
            change = self._move(*growing[at], plan.replicas[at])
            if isinstance(change, PartitionChangeRecord):
                records.append(change)
        return Decision(len(records), records)

    def count_copied(self) -> int:
        """Returns how many partitions a live broker copies for a move. A move that waits for a dead
        broker holds up no other."""
        return sum(
            any(self._image.is_alive(new) and new not in each.in_sync for new in each.adding)
            for _, each in self._image.partitions
        )

    def _count_live(self, replicas: Replicas) -> int:
        return sum(map(self._image.is_alive, replicas))

    def _refuses(self, topic: Topic, partition: PartitionRecord) -> bool:
        enough = partition.assignment.enough(self._rules_of(topic).min_in_sync)
        return len(partition.in_sync) < enough

    def _alter(
        self, at: TopicPartition, replicas: Replicas | None, *, may_change_factor: bool
    ) -> PartitionChangeRecord | RequestRefusal | None:
        topic = self._image.topic(at.topic)
        if topic is None:
            return RequestRefusal(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {at.topic}."
            )
        before = topic.partitions.get(at.partition)
        if before is None:
            return RequestRefusal(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"Unable to find partition {at.topic}:{at.partition}.",
            )
        if replicas is None:
            return self._cancel(topic, before)
        problem = _problem_of(self._image, replicas)
        if problem is not None:
            return RequestRefusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
        size = len(before.assignment.origin)
        if not may_change_factor and len(replicas) != size:
            return RequestRefusal(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"The replication factor is changed from {size} to {len(replicas)}",
            )
        return self._move(topic, before, replicas)

    def _cancel(
        self, topic: Topic, before: PartitionRecord
    ) -> PartitionChangeRecord | RequestRefusal | None:
        if not before.assignment.is_moving:
            return RequestRefusal(
                ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress."
            )
        return self._change(topic, before, Assignment(before.assignment.origin))

    def _move(
        self, topic: Topic, before: PartitionRecord, target: Replicas
    ) -> PartitionChangeRecord | RequestRefusal | None:
        """Those that an earlier move was adding, and this one does not want, leave at once: nothing
        is promised of them."""
        origin = before.assignment.origin
        removing = tuple(each for each in origin if each not in target)
        adding = tuple(each for each in target if each not in origin)
        return self._change(topic, before, Assignment((*target, *removing), adding, removing))

    def _change(
        self, topic: Topic, before: PartitionRecord, wanted: Assignment
    ) -> PartitionChangeRecord | RequestRefusal | None:
        """Refuses what would leave nobody that has all that is committed."""
        rules = self._rules_of(topic)._replace(allows_unclean=False)
        change = change_in_sync(before, before.in_sync, self._image.alive, rules, assignment=wanted)
        if change is None or change.leader != NO_LEADER:
            return change
        if before.leader == NO_LEADER and (change.in_sync or change.eligible or change.doubtful):
            return change
        return RequestRefusal(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Unable to change the assignment of {topic.name}:{before.partition} because it would "
            "require an unclean leader election.",
        )
