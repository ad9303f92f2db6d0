"""Reads the files of partitions without owning them: counts their content, and reports what is
wrong."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from headwater.core_log.foundation.errors import ConfigError, CorruptLog
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.records.batch_header import DELETE_HORIZON, HEADER_BYTES, BatchHeader
from headwater.core_log.storage.checkpoints import CLEANED_TO, RECOVERY_POINTS, OffsetCheckpoint
from headwater.core_log.storage.files import File, Files
from headwater.core_log.storage.index import (
    OFFSET_ENTRY,
    TIME_ENTRY,
    AbortedIndex,
    AbortedTransaction,
    IndexFile,
)
from headwater.core_log.storage.properties import LOG_DIRECTORY, partition_named
from headwater.core_log.storage.scan import CheckedBatches, find_batch, is_zero
from headwater.core_log.storage.segment import ABORTED, INDEX, LOG, TIMES, file_name
from headwater.core_log.storage.swap import SWAP, base_offsets

KAFKAS_CLEANED_TO = "cleaner-offset-checkpoint"
CUT, DAMAGED = ".cut-", ".damaged-"
"""Suffixes of files with whole batches that followed damage, which recovery moved there, and of
segments from before `headwater log mend`."""


@dataclass(frozen=True, slots=True)
class SegmentSurvey:
    """One segment by its files, up to the first invalid batch."""

    base_offset: int
    end_offset: int
    batches: int
    records: int
    size: int
    first_timestamp: int
    max_timestamp: int
    index_sizes: dict[str, int]


def partition_directories(files: Files, directory: Path) -> dict[TopicPartition, Path]:
    """Returns the partitions of a data directory, of its log directory, or the one partition
    given."""
    if not files.exists(directory):
        raise ConfigError("the directory does not exist", path=str(directory))
    if base_offsets(files.names(directory)):
        name = directory.resolve().name  # a copy may have any
        return {partition_named(name) or TopicPartition(name, 0): directory}
    inner = directory / LOG_DIRECTORY
    root = inner if files.exists(inner) else directory
    found = {
        partition: root / name
        for name in files.names(root)
        if (partition := partition_named(name)) and base_offsets(files.names(root / name))
    }
    if not found:
        raise ConfigError(
            "the directory contains no log",
            path=str(directory),
            hint="name a data directory, or one partition's, such as data/log/orders-0",
        )
    return dict(sorted(found.items()))


def batches(
    files: Files, directory: Path, base_offset: int
) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Yields position, header and bytes of every valid batch of a segment, until the first invalid
    one."""
    file = files.open(directory / file_name(base_offset, LOG))
    return iter(CheckedBatches(file, 0, file.size(), next_offset=base_offset, may_skip=True))


def survey_segment(files: Files, directory: Path, base_offset: int) -> SegmentSurvey:
    """Counts the content of a segment."""
    count = records = 0
    first_timestamp = max_timestamp = -1
    end_offset = base_offset
    for _, header, _ in batches(files, directory, base_offset):
        count += 1
        records += header.record_count
        end_offset = header.next_offset
        if count == 1:
            # Compaction stores the time to drop tombstones in place of the first record's time.
            is_moved = bool(header.attributes & DELETE_HORIZON)
            first_timestamp = header.max_timestamp if is_moved else header.base_timestamp
        max_timestamp = max(max_timestamp, header.max_timestamp)
    paths = {
        suffix: directory / file_name(base_offset, suffix) for suffix in (INDEX, TIMES, ABORTED)
    }
    return SegmentSurvey(
        base_offset=base_offset,
        end_offset=end_offset,
        batches=count,
        records=records,
        size=files.size(directory / file_name(base_offset, LOG)),
        first_timestamp=first_timestamp,
        max_timestamp=max_timestamp,
        index_sizes={
            suffix: files.size(path) for suffix, path in paths.items() if files.exists(path)
        },
    )


@dataclass(frozen=True, slots=True)
class LogFinding:
    """One problem; `is_damage` unless the next start repairs it."""

    file: str
    problem: str
    position: int | None = None
    first_offset: int | None = None
    next_offset: int | None = None
    """The offset at which the log continues; None if nothing follows."""
    is_damage: bool = True


@dataclass(slots=True)
class VerificationStats:
    """Counts of what was read and found valid."""

    segments: int = 0
    batches: int = 0
    size: int = 0
    start_offset: int | None = None
    end_offset: int = 0


@dataclass(frozen=True, slots=True)
class Promise:
    """The checkpoints' offsets of a partition."""

    recovery_point: int = 0
    """Everything below was on disk: damage there is a loss, above it the unfinished end of a
    crash."""
    cleaned_to: int | None = None
    """Compaction may have left gaps below; None if that is not known."""


def promise_of(files: Files, log_directory: Path, partition: TopicPartition) -> Promise:
    """Returns what the checkpoints in the log's directory, ours or Kafka's, say of one partition.

    A partition that was copied without them promises nothing.
    """
    found = {}
    for name in (RECOVERY_POINTS, CLEANED_TO, KAFKAS_CLEANED_TO):
        if files.exists(log_directory / name):
            found[name] = OffsetCheckpoint(files, log_directory / name).get(*partition)
    cleaned_to = found.get(CLEANED_TO) or found.get(KAFKAS_CLEANED_TO)
    return Promise(
        recovery_point=found.get(RECOVERY_POINTS) or 0,
        cleaned_to=cleaned_to or (0 if RECOVERY_POINTS in found else None),
    )


def verify_partition(
    files: Files, directory: Path, promise: Promise, tally: VerificationStats
) -> Iterator[LogFinding]:
    """Reads everything once: batches by checksum, offsets for gaps, indexes against the batches."""
    names = files.names(directory)
    yield from _set_aside(directory, names)
    bases = base_offsets(names)
    expected: int | None = None
    for base in bases:
        path = directory / file_name(base, LOG)
        if expected is not None and base < expected:
            yield LogFinding(
                str(path), "segment begins before the end of the one before it", 0, base
            )
        elif expected is not None and base > expected:
            yield from _gap(path, 0, expected, base, promise)
        check = SegmentCheck(files, directory, base, promise, is_last=base == bases[-1])
        yield from check.findings()
        expected = max(check.end_offset, base)
        tally.segments += 1
        tally.batches += check.batches
        tally.size += check.size
        tally.end_offset = expected
    tally.start_offset = bases[0] if bases else None


def _set_aside(directory: Path, names: list[str]) -> Iterator[LogFinding]:
    """Finds files that are not part of the log but may be missed by somebody."""
    for name in sorted(names):
        if CUT in name:
            problem = "batches behind a damaged place, set aside by an earlier start"
            yield LogFinding(str(directory / name), problem, is_damage=False)
        elif DAMAGED in name:
            problem = "a segment as it was before it was mended"
            yield LogFinding(str(directory / name), problem, is_damage=False)
        elif name.endswith(SWAP):
            problem = "an interrupted compaction, which the next start completes"
            yield LogFinding(str(directory / name), problem, is_damage=False)


def _gap(
    path: Path, position: int, offset: int, found: int, promise: Promise
) -> Iterator[LogFinding]:
    """Missing offsets below the cleaned offset come from compaction; anywhere else they are a
    loss."""
    if promise.cleaned_to is None or offset >= promise.cleaned_to:
        known = promise.cleaned_to is not None
        yield LogFinding(str(path), "offsets are missing", position, offset, found, is_damage=known)


class SegmentCheck:
    """One pass over a segment and its indexes."""

    def __init__(
        self, files: Files, directory: Path, base: int, promise: Promise, *, is_last: bool
    ) -> None:
        self._files, self._promise, self._is_last = files, promise, is_last
        self.base_offset = self.end_offset = base
        self.batches = 0
        self._path = directory / file_name(base, LOG)
        self._file: File = files.open(self._path)
        self.size = self._file.size()
        self._index = OffsetIndexCheck(files, directory / file_name(base, INDEX), base)
        self._times = TimeIndexCheck(files, directory / file_name(base, TIMES), base)
        self._aborted = AbortedIndexCheck(files, directory / file_name(base, ABORTED))

    def findings(self) -> Iterator[LogFinding]:
        position = 0
        while position < self.size:
            checked = CheckedBatches(
                self._file, position, self.size, next_offset=self.end_offset, may_skip=True
            )
            yield from self._follow(checked)
            if checked.damage is None:
                break
            position = checked.damage.position
            following = find_batch(self._file, position + 1, self.size, offset=self.end_offset)
            yield from self._find_lost(position, following, checked.damage.reason)
            if following is None:
                return  # indexes of a lost part report nothing new
            position = following
            head = BatchHeader.read(self._file.read(position, HEADER_BYTES))
            self.end_offset = head.base_offset
            self._index.skip_to(position)
        for index in (self._index, self._times, self._aborted):
            yield from index.finish(self.end_offset)

    def _follow(self, checked: CheckedBatches) -> Iterator[LogFinding]:
        for position, header, _ in checked:
            if header.base_offset > self.end_offset:
                yield from _gap(
                    self._path, position, self.end_offset, header.base_offset, self._promise
                )
            self.end_offset = header.next_offset
            self.batches += 1
            yield from self._index.see(position, header)
            yield from self._times.see(position, header)
            yield from self._aborted.see(position, header)

    def _find_lost(self, position: int, following: int | None, reason: str) -> Iterator[LogFinding]:
        if following is None and is_zero(self._file, position, self.size):
            return  # space that was reserved and never written
        next_offset = None
        if following is not None:
            head = BatchHeader.read(self._file.read(following, HEADER_BYTES))
            next_offset = head.base_offset
        is_tail = following is None and self._is_last
        is_tail = is_tail and self.end_offset >= self._promise.recovery_point
        problem = f"unfinished end, cut at the next start: {reason}" if is_tail else reason
        yield LogFinding(
            str(self._path),
            problem,
            position,
            self.end_offset,
            next_offset,
            is_damage=not is_tail,
        )


class OffsetIndexCheck:
    """Checks that every entry has the last offset of the batch that begins at its position."""

    def __init__(self, files: Files, path: Path, base: int) -> None:
        self._path, self._base = path, base
        self._entries = _entries(IndexFile(files, path, OFFSET_ENTRY, is_new=False))
        self._next = next(self._entries, None)

    def see(self, position: int, header: BatchHeader) -> Iterator[LogFinding]:
        while self._next is not None and self._next[1] <= position:
            relative, at = self._next
            if at != position or self._base + relative != header.last_offset:
                yield self._wrong("offset index has a wrong position", relative, at)
                self._next = None  # entries after one wrong entry report nothing new
                return
            self._next = next(self._entries, None)

    def skip_to(self, position: int) -> None:
        """Skips entries of lost batches; they are not wrong."""
        while self._next is not None and self._next[1] < position:
            self._next = next(self._entries, None)

    def finish(self, end_offset: int) -> Iterator[LogFinding]:
        if self._next is not None:
            yield self._wrong("offset index points beyond the last batch", *self._next)

    def _wrong(self, problem: str, relative: int, at: int) -> LogFinding:
        return LogFinding(str(self._path), problem, at, self._base + relative)


class TimeIndexCheck:
    """Checks that no batch up to an entry's offset has a later timestamp than the entry."""

    def __init__(self, files: Files, path: Path, base: int) -> None:
        self._path, self._base = path, base
        self._entries = _entries(IndexFile(files, path, TIME_ENTRY, is_new=False))
        self._next = next(self._entries, None)

    def see(self, position: int, header: BatchHeader) -> Iterator[LogFinding]:
        while self._next is not None and self._base + self._next[1] < header.base_offset:
            previous, self._next = self._next, next(self._entries, None)
            if self._next is not None and self._next[0] <= previous[0]:
                yield self._wrong("time index does not grow", self._next[1])
                self._next = None
        if self._next is not None and header.max_timestamp > self._next[0]:
            yield self._wrong("time index hides a batch with a later time", self._next[1])
            self._next = None

    def finish(self, end_offset: int) -> Iterator[LogFinding]:
        while self._next is not None:
            if self._base + self._next[1] >= end_offset:
                yield self._wrong("time index points beyond the last batch", self._next[1])
                return
            self._next = next(self._entries, None)

    def _wrong(self, problem: str, relative: int) -> LogFinding:
        return LogFinding(str(self._path), problem, None, self._base + relative)


class AbortedIndexCheck:
    """Checks that every entry has its marker in the segment."""

    def __init__(self, files: Files, path: Path) -> None:
        self._path = path
        self._missing: dict[int, AbortedTransaction] = {}
        self._problem = ""
        try:
            entries = AbortedIndex(files, path, is_new=False).entries
            self._missing = {entry.last_offset: entry for entry in entries}
        except CorruptLog as error:
            self._problem = error.problem

    def see(self, position: int, header: BatchHeader) -> Iterator[LogFinding]:
        entry = self._missing.get(header.base_offset)
        if entry is not None and header.is_control and header.producer_id == entry.producer_id:
            del self._missing[header.base_offset]
        return iter(())

    def finish(self, end_offset: int) -> Iterator[LogFinding]:
        if self._problem:
            yield LogFinding(str(self._path), self._problem)
        for offset in self._missing:
            problem = "transaction index names a marker that is not there"
            yield LogFinding(str(self._path), problem, None, offset)


def _entries(index: IndexFile) -> Iterator[tuple[int, int]]:
    return (index.entry(number) for number in range(index.count))
