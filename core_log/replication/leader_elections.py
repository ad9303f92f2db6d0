"""Elections that somebody wants although a partition has a leader: the first replica shall lead, or
anybody at all."""

from collections.abc import Collection
from enum import IntEnum

from headwater.core_log.model.log import TopicPartition
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.replication.decisions import Decision
from headwater.core_log.replication.elections import (
    ElectionRules,
    RulesOf,
    change_in_sync,
    change_of,
)
from headwater.core_log.replication.metadata import NO_LEADER, MetadataImage
from headwater.core_log.replication.metadata_records import (
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
)

ELECTIONS_AT_ONCE_MAX = 1000  # Kafka's own limit


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
