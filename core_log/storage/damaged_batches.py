"""Replaces unreadable batches by empty ones, so that every reader can skip them."""

from collections.abc import Iterator
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import NamedTuple

from headwater.core_log.foundation.errors import CorruptBatch, DecodeError
from headwater.core_log.records.batch_header import HEADER_BYTES, BatchHeader
from headwater.core_log.records.record_codec import decode_batch, encode_batch
from headwater.core_log.storage.files import File, Files, write_all
from headwater.core_log.storage.properties import Loss, note_loss
from headwater.core_log.storage.scan import CheckedBatches, find_batch
from headwater.core_log.storage.segment import INDEX, LOG, TIMES, Segment, file_name
from headwater.core_log.storage.swap import base_offsets, cleaned_path
from headwater.core_log.storage.verification import DAMAGED, Promise

COPY_BYTES = 1 << 20
INDEX_INTERVAL_BYTES = 4096


class DamagedBatches(NamedTuple):
    """An unreadable part of a segment, and the offsets that were in it."""

    position: int
    end_position: int
    first_offset: int
    next_offset: int
    leader_epoch: int
    reason: str


class Emptied(NamedTuple):
    """The result for one damaged part of a segment."""

    file: str
    copy: str
    """Path of the unchanged copy of the segment."""
    reason: str
    first_offset: int
    next_offset: int


def empty_damaged(
    files: Files, directory: Path, promise: Promise, *, now_ms: int
) -> Iterator[Emptied]:
    """Empties the damaged batches of a partition that no process has open. Offsets and all other
    batches stay; a copy of each changed segment is left beside it. The unfinished end of a crash
    is left to the next start."""
    bases = base_offsets(files.names(directory))
    for base, following in zip_longest(bases, bases[1:]):
        file = files.open(directory / file_name(base, LOG))
        reach = promise.recovery_point if following is None else following
        found = list(_damaged(file, base, reach, is_last=following is None))
        if found:
            note_loss(files, directory, Loss.CERTAIN)
            segment = Mended(files, directory, base, promise.recovery_point)
            copy = segment.copy(now_ms)
            segment.write(found)
            for each in found:
                offsets = (each.first_offset, each.next_offset)
                yield Emptied(str(segment.path), str(copy), each.reason, *offsets)


def _damaged(file: File, base: int, reach: int, *, is_last: bool) -> Iterator[DamagedBatches]:
    """`reach` is the offset that the segment must reach at least."""
    position, offset, size, epoch = 0, base, file.size(), 0
    while position < size:
        checked = CheckedBatches(file, position, size, next_offset=offset, may_skip=True)
        for begin, header, batch in checked:
            epoch = header.leader_epoch
            if reason := _unreadable(batch):
                end = begin + header.total_bytes
                offsets = (header.base_offset, header.next_offset)
                yield DamagedBatches(begin, end, *offsets, epoch, reason)
        position, offset = checked.position, checked.next_offset
        if checked.damage is None:
            break
        following = find_batch(file, position + 1, size, offset=offset)
        if following is None and is_last and offset >= reach:
            break
        if following is None:
            end, next_offset = size, max(reach, offset)
        else:
            head = BatchHeader.read(file.read(following, HEADER_BYTES))
            end, next_offset = following, head.base_offset
        yield DamagedBatches(position, end, offset, next_offset, epoch, checked.damage.reason)
        position, offset = end, next_offset
    if is_last and position >= size and offset < reach:
        reason = "log ends before its recovery point"
        yield DamagedBatches(size, size, offset, reach, epoch, reason)


def _unreadable(batch: memoryview) -> str:
    try:
        decode_batch(batch)
    except (DecodeError, CorruptBatch) as error:
        return error.problem
    return ""


class Mended:
    """A segment while it is rewritten. One rename puts it in place; before that the old one is
    unchanged."""

    def __init__(self, files: Files, directory: Path, base: int, recovery_point: int) -> None:
        self.path = directory / file_name(base, LOG)
        self._files, self._directory, self._base = files, directory, base
        self._recovery_point = recovery_point
        self._source, self._size = files.open(self.path), files.size(self.path)

    def copy(self, now_ms: int) -> Path:
        path = self.path.with_name(f"{self.path.name}{DAMAGED}{now_ms}")
        file = self._files.open(path, create=True)
        _copy(self._source, 0, self._size, file, 0)
        file.sync()
        return path

    def write(self, damaged: list[DamagedBatches]) -> None:
        fresh_path = cleaned_path(self._directory, self._base, LOG)
        self._files.remove(fresh_path)
        fresh, position, written = self._files.open(fresh_path, create=True), 0, 0
        for each in damaged:
            written = _copy(self._source, position, each.position, fresh, written)
            for batch in self._empty_batches(each):
                write_all(fresh, written, batch)
                written += len(batch)
            position = each.end_position
        written = _copy(self._source, position, self._size, fresh, written)
        fresh.sync()
        for suffix in (INDEX, TIMES):
            self._files.remove(self._directory / file_name(self._base, suffix))
        self._files.rename(fresh_path, self.path)
        self._files.sync_directory(self._directory)
        self._index(written)

    def _empty_batches(self, damaged: DamagedBatches) -> Iterator[bytearray]:
        """Returns batches without records, as Kafka's cleaner leaves them. One ends at the recovery
        point, as every opening expects."""
        first, last = damaged.first_offset, damaged.next_offset
        bounds = [first, *([self._recovery_point] * (first < self._recovery_point < last)), last]
        for begin, end in pairwise(bounds):
            if begin < end:
                yield encode_batch(
                    [],
                    base_offset=begin,
                    last_offset_delta=end - begin - 1,
                    leader_epoch=damaged.leader_epoch,
                )

    def _index(self, size: int) -> None:
        segment = Segment(
            self._files,
            self._directory,
            self._base,
            index_interval=INDEX_INTERVAL_BYTES,
            is_new=False,
        )
        segment.size = size
        segment.rebuild_indexes()


def _copy(source: File, begin: int, end: int, target: File, at: int) -> int:
    """Copies the range; returns the new end of the target."""
    while begin < end:
        chunk = source.read(begin, min(COPY_BYTES, end - begin))
        write_all(target, at, chunk)
        begin, at = begin + len(chunk), at + len(chunk)
    return at
