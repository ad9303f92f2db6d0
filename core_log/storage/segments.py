"""The segments of one partition, oldest first: finding one, and taking some away."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from core_log.storage.files import Files
from core_log.storage.producer_snapshot import SUFFIX as SNAPSHOT
from core_log.storage.segment import SUFFIXES, Segment, file_name
from core_log.storage.swap import set_aside

OPEN_SEALED_MAX = 4
"""Segments behind the active one that keep their file and indexes at hand."""


class Segments:
    """Never empty; the last is the active one, the only one that is appended to."""

    def __init__(self, files: Files, directory: Path, segments: Iterable[Segment]) -> None:
        self._files, self.directory = files, directory
        self._segments = list(segments)
        self._recent: list[Segment] = []
        assert self._segments, "a partition has at least its active segment"
        self.active = self._segments[-1]

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __len__(self) -> int:
        return len(self._segments)

    @property
    def first(self) -> Segment:
        return self._segments[0]

    @property
    def sealed(self) -> Sequence[Segment]:
        return self._segments[:-1]

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self._segments)

    def add(self, segment: Segment) -> None:
        """Makes a fresh segment the active one."""
        self._use(self.active)
        self._segments.append(segment)
        self.active = segment

    def holding(self, offset: int) -> Segment:
        """The segment in which `offset` is, or would be."""
        if offset >= self.active.base_offset:
            return self.active
        number = bisect_right(self._segments, offset, key=lambda segment: segment.base_offset)
        segment = self._segments[max(number - 1, 0)]
        self._use(segment)
        return segment

    def from_offset(self, offset: int) -> Iterator[Segment]:
        """The segment of `offset` and all after it."""
        number = bisect_right(self._segments, offset, key=lambda segment: segment.base_offset)
        yield from self._segments[max(number - 1, 0) :]

    def after(self, segment: Segment) -> Segment | None:
        number = bisect_right(
            self._segments, segment.base_offset, key=lambda segment: segment.base_offset
        )
        return self._segments[number] if number < len(self._segments) else None

    def _use(self, segment: Segment) -> None:
        """Keeps few sealed segments open, so that a long partition needs few descriptors."""
        if segment in self._recent:
            return
        self._recent.append(segment)
        if len(self._recent) > OPEN_SEALED_MAX:
            oldest = self._recent.pop(0)
            if oldest is not self.active:
                oldest.release()

    def replace(self, gone: Sequence[Segment], fresh: Sequence[Segment]) -> None:
        """Puts `fresh` where `gone` were; the files are the caller's business."""
        kept = [segment for segment in self._segments if segment not in gone]
        self._segments = sorted([*kept, *fresh], key=lambda segment: segment.base_offset)
        self._recent = [segment for segment in self._recent if segment not in gone]
        self.active = self._segments[-1]

    def drop(self, gone: Sequence[Segment]) -> list[Path]:
        """Takes segments out and their names away; returns the files that are left to remove."""
        self.replace(gone, ())
        names = [
            file_name(segment.base_offset, suffix)
            for segment in gone
            for suffix in (*SUFFIXES, SNAPSHOT)
        ]
        return set_aside(self._files, self.directory, names)
