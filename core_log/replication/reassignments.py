"""Moves partitions to other brokers: new replicas copy, and once all that stay are in sync the rest
leave."""

from collections.abc import Mapping, Sequence
from uuid import UUID

from headwater.core_log.model.log import TopicPartition
from headwater.core_log.model.replica_placement import ReplicaPlan, Replicas
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.replication.decisions import Decision, RequestRefusal
from headwater.core_log.replication.elections import RulesOf, change_in_sync
from headwater.core_log.replication.metadata import NO_LEADER, MetadataImage, Topic
from headwater.core_log.replication.metadata_records import (
    Assignment,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    TopicReplicasRecord,
)

GROWING_AT_ONCE_MAX = 20


class Reassignments:
    """Decides about assignments. Pure, like the rest of the controller."""

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

    def grow(self, factor_max: int) -> Decision[int]:
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
        problem = self._problem_of(replicas)
        if problem is not None:
            return RequestRefusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
        size = len(before.assignment.origin)
        if not may_change_factor and len(replicas) != size:
            return RequestRefusal(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"The replication factor is changed from {size} to {len(replicas)}",
            )
        return self._move(topic, before, replicas)

    def _problem_of(self, replicas: Sequence[int]) -> str | None:
        """Returns Kafka's error for an assignment, or None."""
        start = "The manual partition assignment includes"
        if not replicas:
            return f"{start} an empty replica list."
        for broker in sorted(replicas):
            if broker not in self._image.brokers:
                return f"{start} broker {broker}, but no such broker is registered."
            if replicas.count(broker) > 1:
                return f"{start} the broker {broker} more than once."
        return None

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
