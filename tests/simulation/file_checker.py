"""Holds the files of all nodes against each other and against the rules of a replicated log."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import pairwise

from headwater.core_log.model.log import TopicPartition
from headwater.core_log.records.record_codec import decode_batch
from tests.simulation.stored_log import StoredBatch, StoredReplica

Replicas = Mapping[TopicPartition, StoredReplica]
Marks = Mapping[TopicPartition, int]
METADATA = "__cluster_metadata"
RECOVERY, LOG_START = "recovery-point-offset-checkpoint", "log-start-offset-checkpoint"


@dataclass(frozen=True)
class Assignment:
    """Who holds a partition, as the newest metadata says."""

    in_sync: tuple[int, ...]
    enough: int
    """Replicas that must hold a record before it is committed."""


@dataclass(frozen=True)
class Look:
    """All disks at one moment, by node."""

    written: Mapping[int, Replicas]
    synced: Mapping[int, Replicas]
    """All that is left if the power is cut now, at worst."""
    told: Mapping[int, Marks]
    """The high watermarks of the brokers that are up."""
    assignments: Mapping[TopicPartition, Assignment]
    compacted: frozenset[str] = frozenset()
    """Topics of which compaction may remove records."""


@dataclass
class FileChecker:
    """Remembers what was committed at former looks."""

    committed: dict[TopicPartition, dict[int, bytes]] = field(default_factory=dict)
    """By offset: a digest of the batch that begins there, or of the record in a compacted topic."""
    appended: dict[tuple[TopicPartition, int, int], bytes] = field(default_factory=dict)
    """By offset and epoch, whether it was committed or not."""
    reached: dict[TopicPartition, int] = field(default_factory=dict)
    """The highest high watermark that anybody has told."""

    def problems_of(self, look: Look) -> list[str]:
        """Everything that contradicts the rules at this moment."""
        found = list[str]()
        for at, assignment in look.assignments.items():
            told = {node: marks.get(at, 0) for node, marks in look.told.items()}
            self.reached[at] = max(self.reached.get(at, 0), *told.values(), 0)
            found += _uncommitted(at, self.reached[at], assignment, look)
        for node, replicas in look.written.items():
            for at, replica in replicas.items():
                mark = max(replica.high_watermark, look.told.get(node, {}).get(at, 0))
                name = f"{_name(at)} on node {node}"
                if at.topic in look.compacted:
                    found += self._other_records(name, at, replica, mark)
                else:
                    found += self._other_batches(name, at, replica, mark)
                if at.topic == METADATA:
                    found += _early_epochs(name, replica, look.synced[node].get(at))
        for at, assignment in look.assignments.items():
            if at.topic in look.compacted:
                found += self._unannounced(at, assignment, look)
        return found

    def _unannounced(self, at: TopicPartition, assignment: Assignment, look: Look) -> Iterable[str]:
        """What compaction has removed anywhere, every replica in sync knows to be removable:
        whoever leads next tells no lower marks than a client has read by."""
        known = self.committed.get(at, {})
        for node, replicas in look.written.items():
            if at not in replicas:
                continue
            replica = replicas[at]
            start = replica.marks.get(LOG_START, 0)
            there = {each.offset for b in replica.batches for each in decode_batch(b.content)[1]}
            kept = [each for each in known if start <= each < replica.end_offset]
            last = max((each for each in kept if each not in there), default=-1)
            for other in assignment.in_sync:
                on_disk = look.synced[other].get(at)
                marked = 0 if on_disk is None else on_disk.cleaned_to
                if marked <= last:
                    yield (
                        f"compacted unannounced: node {node} lacks offset {last} of {_name(at)}, "
                        f"and node {other}, which is in sync, knows of compaction to {marked}"
                    )

    def _other_batches(
        self, name: str, at: TopicPartition, replica: StoredReplica, mark: int
    ) -> Iterable[str]:
        known = self.committed.setdefault(at, {})
        for each in replica.batches:
            digest = blake2b(each.content, digest_size=16).digest()
            if self.appended.setdefault((at, each.base_offset, each.epoch), digest) != digest:
                yield f"two leaders: {name} has another batch at {_place(each)}, epoch {each.epoch}"
            if each.next_offset > mark:
                continue
            if known.setdefault(each.base_offset, digest) != digest:
                yield f"two values: {name} has another committed batch at {_place(each)}"

    def _other_records(
        self, name: str, at: TopicPartition, replica: StoredReplica, mark: int
    ) -> Iterable[str]:
        """A batch may have lost some of its records, and each of the others stays as it is."""
        known = self.committed.setdefault(at, {})
        for each in replica.batches:
            if each.next_offset > mark:
                continue
            for record in decode_batch(each.content)[1]:
                text = repr((record.key, record.value, record.headers))
                digest = blake2b(text.encode(), digest_size=16).digest()
                if known.setdefault(record.offset, digest) != digest:
                    yield f"two values: {name} has another record at offset {record.offset}"


def _uncommitted(
    at: TopicPartition, mark: int, assignment: Assignment, look: Look
) -> Iterable[str]:
    if not mark:
        return  # the directory may not be on disk yet
    ends = {
        node: replicas[at].end_offset for node, replicas in look.synced.items() if at in replicas
    }
    for node in assignment.in_sync:
        if ends.get(node, 0) < mark:
            yield (
                f"not on every disk: {_name(at)} is committed to {mark}, and node {node}, "
                f"which is in sync, has it to {ends.get(node, 0)}"
            )
    count = sum(end >= mark for end in ends.values())
    if count < assignment.enough:
        yield (
            f"on too few disks: {_name(at)} is committed to {mark}, which {count} of "
            f"{assignment.enough} disks have"
        )


def _early_epochs(
    name: str, replica: StoredReplica, on_disk: StoredReplica | None
) -> Iterable[str]:
    """An epoch of the metadata quorum is on disk before anything of it is written."""
    newest = max((each.epoch for each in replica.batches), default=-1)
    stored = -1 if on_disk is None else on_disk.quorum_epoch
    if stored < newest:
        yield f"epoch not on disk: {name} has batches of epoch {newest}, and stored {stored}"


def problems_of_stopped(
    replicas: Mapping[int, Replicas], *, compacted: frozenset[str] = frozenset()
) -> list[str]:
    """Everything that contradicts the format, once all brokers have stopped in order."""
    found = list[str]()
    for node, stored in replicas.items():
        for at, replica in stored.items():
            name = f"{_name(at)} on node {node}"
            found += _bad_batches(name, replica, is_compacted=at.topic in compacted)
            found += _bad_epochs(name, replica)
            found += _bad_index(name, replica)
            found += _bad_marks(name, replica)
    return found


def _bad_batches(name: str, replica: StoredReplica, *, is_compacted: bool) -> Iterable[str]:
    for each in replica.batches:
        if not each.is_sound:
            yield f"damaged: {name} has a batch with another checksum at {_place(each)}"
    for earlier, later in pairwise(replica.batches):
        if later.base_offset < earlier.next_offset:
            yield f"offset goes back: {name} from {earlier.next_offset} to {later.base_offset}"
        elif later.base_offset > earlier.next_offset and not is_compacted:
            yield f"offsets are missing: {name} from {earlier.next_offset} to {later.base_offset}"
        if later.epoch < earlier.epoch:
            yield f"epoch goes back: {name} from {earlier.epoch} to {later.epoch}"
    for segment in replica.segments:
        if segment.rest:
            yield f"torn: {name} ends with {len(segment.rest)} bytes that are no batch"
        if segment.batches and segment.batches[0].base_offset < segment.base_offset:
            yield f"misplaced: {name} has a batch below its segment {segment.base_offset}"


def _bad_epochs(name: str, replica: StoredReplica) -> Iterable[str]:
    for (epoch, start), (later_epoch, later_start) in pairwise(replica.epochs):
        if later_epoch <= epoch or later_start <= start:
            yield f"epochs out of order: {name} has {replica.epochs}"
    for each in replica.batches:
        known = [epoch for epoch, start in replica.epochs if start <= each.base_offset]
        if not known or known[-1] != each.epoch:
            told = known[-1:] or "none"
            yield f"other epoch: {name} has epoch {each.epoch} at {_place(each)}, its file {told}"


def _bad_index(name: str, replica: StoredReplica) -> Iterable[str]:
    for segment in replica.segments:
        places = {(each.next_offset - 1, each.position) for each in segment.batches}
        for entry in segment.index:
            if entry not in places:
                yield f"bad index: {name} has no batch with last offset and position {entry}"


def _bad_marks(name: str, replica: StoredReplica) -> Iterable[str]:
    for mark, offset in replica.marks.items():
        if offset > replica.end_offset:
            yield f"beyond the end: {name} has {mark} {offset}, and ends at {replica.end_offset}"
    if replica.marks.get(RECOVERY, replica.end_offset) < replica.end_offset:
        yield f"recovery point behind the end: {name} has {replica.marks[RECOVERY]}"


def _name(at: TopicPartition) -> str:
    return f"{at.topic}-{at.partition}"


def _place(batch: StoredBatch) -> str:
    return f"offset {batch.base_offset}"
