"""A whole log as readers see it, read in both isolations and held against each other."""

from collections.abc import Iterable
from typing import NamedTuple

from headwater.core_log.model.log import TopicPartition
from headwater.core_log.records.record_codec import PlainRecord
from tests.crash.plain_client import EARLIEST, Stored, Wire


class PartitionView(NamedTuple):
    """Everything readable in one partition from some offset on."""

    batches: list[Stored]
    """All of them, markers and aborted data included, up to the high watermark."""
    committed: list[Stored]
    """What a committed reader gets: decided, not aborted, no markers."""
    stable_offset: int
    high_watermark: int

    @property
    def records(self) -> list[PlainRecord]:
        return [record for batch in self.committed for record in batch.records]


def read_partition(
    wire: Wire, partition: TopicPartition, from_offset: int | None = None
) -> PartitionView:
    topic, index = partition
    start = wire.offset(topic, index, EARLIEST) if from_offset is None else from_offset
    committed, stable = _read_committed(wire, partition, start)
    batches, offset = list[Stored](), start
    while True:
        read = wire.fetch(topic, {index: offset}, committed=False)[index]
        assert read.error_code == 0, f"fetch of {topic}-{index}@{offset}: {read.error_code}"
        batches += read.batches
        offset = read.batches[-1].next_offset if read.batches else offset
        if offset >= read.high_watermark or not read.batches:
            return PartitionView(batches, committed, stable, read.high_watermark)


def _read_committed(wire: Wire, partition: TopicPartition, start: int) -> tuple[list[Stored], int]:
    """As a client does it: by the answers' own lists of aborted transactions."""
    topic, index = partition
    visible, offset = list[Stored](), start
    while True:
        read = wire.fetch(topic, {index: offset}, committed=True)[index]
        assert read.error_code == 0, f"fetch of {topic}-{index}@{offset}: {read.error_code}"
        visible += visible_of(read.batches, read.aborted)
        offset = read.batches[-1].next_offset if read.batches else offset
        if offset >= read.stable_offset or not read.batches:
            return visible, read.stable_offset


def visible_of(batches: Iterable[Stored], aborted: Iterable[tuple[int, int]]) -> list[Stored]:
    """What is left once aborted data and markers are taken out."""
    waiting = sorted(aborted, key=lambda each: each[1])
    dropped, visible = set[int](), list[Stored]()
    for batch in batches:
        while waiting and waiting[0][1] <= batch.base_offset:
            dropped.add(waiting.pop(0)[0])
        if batch.is_control:
            dropped.discard(batch.producer)
        elif not (batch.is_transactional and batch.producer in dropped):
            visible.append(batch)
    return visible


def faults_of(partition: TopicPartition, view: PartitionView, *, is_dense: bool) -> list[str]:
    """What no reader may ever find, whoever wrote."""
    name, faults = "{}-{}".format(*partition), list[str]()
    for earlier, later in zip(view.batches, view.batches[1:], strict=False):
        is_next = later.base_offset == earlier.next_offset
        if not is_next and (is_dense or later.base_offset < earlier.next_offset):
            faults.append(f"{name}: {earlier.next_offset} is followed by {later.base_offset}")
    told = {batch.base_offset for batch in view.committed}
    for offset, is_committed in decided_by_markers(view).items():
        if is_committed != (offset in told):
            verb = "shown" if offset in told else "hidden"
            faults.append(f"{name}: {offset} is {verb}, against its marker")
    return faults


def decided_by_markers(view: PartitionView) -> dict[int, bool]:
    """Which batches below the stable offset are committed, by the markers in the log alone."""
    undecided: dict[int, list[int]] = {}
    decided: dict[int, bool] = {}
    for batch in view.batches:
        if batch.is_control:
            decided |= dict.fromkeys(undecided.pop(batch.producer, []), batch.commits)
        elif batch.base_offset >= view.stable_offset:
            continue
        elif batch.is_transactional:
            undecided.setdefault(batch.producer, []).append(batch.base_offset)
        else:
            decided[batch.base_offset] = True
    return decided
