"""Committed offsets of groups, and offsets of open transactions."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from headwater.core_log.model.log import TopicPartition

NO_TOPIC_ID = UUID(int=0)


class CommittedOffset(NamedTuple):
    """The next offset that a group wants to read from a partition."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    committed_ms: int = -1
    expires_ms: int = -1
    """Set by the oldest clients only; other offsets expire by the retention."""
    topic_id: UUID = NO_TOPIC_ID


class _StoredOffset(NamedTuple):
    """A committed offset and the log offset of its record: the later record counts."""

    committed: CommittedOffset
    log_offset: int


GroupPartition = tuple[str, TopicPartition]


@dataclass(slots=True)
class GroupOffsets:
    """The offsets in one partition of `__consumer_offsets`."""

    committed: dict[str, dict[TopicPartition, _StoredOffset]] = field(default_factory=dict)
    pending: dict[int, dict[GroupPartition, _StoredOffset]] = field(default_factory=dict)
    """By producer id, the uncommitted offsets of its open transaction."""

    def groups(self) -> set[str]:
        waiting = {group for stored in self.pending.values() for group, _ in stored}
        return waiting | self.committed.keys()

    def of(self, group: str) -> Mapping[TopicPartition, CommittedOffset]:
        return {at: stored.committed for at, stored in self.committed.get(group, {}).items()}

    def get(self, group: str, partition: TopicPartition) -> CommittedOffset | None:
        stored = self.committed.get(group, {}).get(partition)
        return None if stored is None else stored.committed

    def is_pending(self, group: str, partition: TopicPartition) -> bool:
        return any((group, partition) in stored for stored in self.pending.values())

    def commit(
        self, group: str, partition: TopicPartition, offset: CommittedOffset, *, log_offset: int
    ) -> None:
        """Applies a commit. A transaction's marker can make records durable out of log order; log
        order counts."""
        stored = self.committed.setdefault(group, {})
        current = stored.get(partition)
        if current is None or current.log_offset < log_offset:
            stored[partition] = _StoredOffset(offset, log_offset)

    def commit_pending(
        self,
        producer_id: int,
        group: str,
        partition: TopicPartition,
        offset: CommittedOffset,
        *,
        log_offset: int,
    ) -> None:
        pending = self.pending.setdefault(producer_id, {})
        pending[group, partition] = _StoredOffset(offset, log_offset)

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        for (group, partition), stored in self.pending.pop(producer_id, {}).items():
            if commit:
                self.commit(group, partition, stored.committed, log_offset=stored.log_offset)

    def delete(self, group: str, partition: TopicPartition, *, log_offset: int) -> None:
        """Applies a deletion of earlier commits, including uncommitted ones."""
        stored = self.committed.get(group, {})
        if partition in stored and stored[partition].log_offset < log_offset:
            del stored[partition]
            if not stored:
                del self.committed[group]
        for producer_id, pending in list(self.pending.items()):
            waiting = pending.get((group, partition))
            if waiting is not None and waiting.log_offset < log_offset:
                del pending[group, partition]
                if not pending:
                    del self.pending[producer_id]

    def partitions_of(self, group: str) -> set[TopicPartition]:
        """Returns all partitions that a deletion of the whole group must name."""
        waiting = {at for stored in self.pending.values() for each, at in stored if each == group}
        return waiting | self.committed.get(group, {}).keys()

    def find_expired(
        self, group: str, *, now_ms: int, retention_ms: int, unused_since_ms: int | None
    ) -> Iterator[TopicPartition]:
        """Returns expired offsets; their age begins at the last use of the group."""
        for partition, stored in self.committed.get(group, {}).items():
            committed = stored.committed
            since_ms = max(committed.committed_ms, unused_since_ms or 0)
            ends_ms = committed.expires_ms if committed.expires_ms >= 0 else since_ms + retention_ms
            if now_ms >= ends_ms and not self.is_pending(group, partition):
                yield partition
