"""What lies in the log directory of one broker, read by docs/log-format.md and by nothing of the
product but its CRC."""

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from crc32c import crc32c

from headwater.core_log.model.log import TopicPartition

LOG = "/data/log"
HEAD = struct.Struct(">qiibIhiqqqhii")
FRAME_BYTES, CHECKED_FROM = 12, 21
INDEX_ENTRY = struct.Struct(">ii")
Disk = Mapping[str, bytes]
"""Contents by path."""


class StoredBatch(NamedTuple):
    base_offset: int
    next_offset: int
    epoch: int
    position: int
    content: bytes

    @property
    def is_sound(self) -> bool:
        checksum: int = HEAD.unpack_from(self.content)[4]
        return checksum == crc32c(self.content[CHECKED_FROM:])


@dataclass(frozen=True)
class Segment:
    base_offset: int
    batches: Sequence[StoredBatch]
    rest: bytes
    """Bytes at the end that are no whole batch."""
    index: Sequence[tuple[int, int]] = ()
    """Last offset and position of some batches."""


@dataclass(frozen=True)
class StoredReplica:
    """One partition on one disk."""

    segments: Sequence[Segment]
    epochs: Sequence[tuple[int, int]] = ()
    """Epochs and their first offsets, as its file says."""
    marks: Mapping[str, int] = field(default_factory=dict)
    """The numbers of this partition in each checkpoint, by the checkpoint's name."""

    quorum_epoch: int = -1
    """In `quorum-state`, beside the log of the metadata alone."""

    @cached_property
    def batches(self) -> Sequence[StoredBatch]:
        return [each for segment in self.segments for each in segment.batches]

    @property
    def end_offset(self) -> int:
        if self.batches:
            return self.batches[-1].next_offset
        return self.segments[-1].base_offset if self.segments else 0

    @property
    def high_watermark(self) -> int:
        return self.marks.get("replication-offset-checkpoint", 0)

    @property
    def cleaned_to(self) -> int:
        """Below this offset compaction may have removed records."""
        return self.marks.get("cleaned-to-offset-checkpoint", 0)


def read_disk(disk: Disk) -> dict[TopicPartition, StoredReplica]:
    marks = dict[TopicPartition, dict[str, int]]()
    for path, content in disk.items():
        directory, _, name = path.rpartition("/")
        if directory == LOG and name.endswith("-checkpoint"):
            for topic, partition, offset in _lines(content):
                marks.setdefault(TopicPartition(topic, int(partition)), {})[name] = int(offset)
    files = dict[TopicPartition, dict[str, bytes]]()
    for path, content in disk.items():
        directory, _, name = path.removeprefix(f"{LOG}/").rpartition("/")
        topic, _, partition = directory.rpartition("-")
        if topic and partition.isdecimal():
            files.setdefault(TopicPartition(topic, int(partition)), {})[name] = content
    return {at: _read_replica(each, marks.get(at, {})) for at, each in sorted(files.items())}


def _read_replica(files: Disk, marks: Mapping[str, int]) -> StoredReplica:
    segments = [
        _read_segment(int(base), content, files.get(f"{base}.index", b""))
        for name, content in sorted(files.items())
        if name.endswith(".log") and (base := name.removesuffix(".log")).isdecimal()
    ]
    lines = _lines(files.get("leader-epoch-checkpoint", b""))
    epochs = [(int(epoch), int(start)) for epoch, start in lines]
    state = json.loads(files.get("quorum-state", b'{"leaderEpoch": -1}'))
    return StoredReplica(segments, epochs, marks, int(state["leaderEpoch"]))


def _read_segment(base: int, content: bytes, index: bytes) -> Segment:
    batches, position = list[StoredBatch](), 0
    while position + HEAD.size <= len(content):
        base_offset, length, epoch, magic, _, _, last, *_ = HEAD.unpack_from(content, position)
        end = position + FRAME_BYTES + length
        if magic != 2 or last < 0 or length < HEAD.size - FRAME_BYTES or end > len(content):
            break
        whole = content[position:end]
        batches.append(StoredBatch(base_offset, base_offset + last + 1, epoch, position, whole))
        position = end
    whole_entries = index[: len(index) // INDEX_ENTRY.size * INDEX_ENTRY.size]
    entries = [(base + offset, at) for offset, at in INDEX_ENTRY.iter_unpack(whole_entries)]
    return Segment(base, batches, content[position:], entries)


def _lines(checkpoint: bytes) -> list[list[str]]:
    """Without version and count."""
    return [line.split(" ") for line in checkpoint.decode().splitlines()[2:]]
