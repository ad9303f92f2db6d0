"""Truncates in an offset range that Spark reads, and the epochs of changes between them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.core_log.model.changes import TableChanges
from headwater.core_log.model.log import TopicPartition
from headwater.sinks.sink import Truncate
from headwater.sinks.spark.layout import LakeTableLayout
from headwater.sinks.spark.merge import MergeStep, TruncateStep

EPOCH = "_headwater_epoch"
"""The number of truncates before an event."""


@dataclass(frozen=True, slots=True)
class Truncates:
    """The truncates of one table, in the order in which they apply; pickled for executors.

    A change belongs before the next truncate of its own topic, or after all: this process would
    read it there.
    """

    steps: tuple[TruncateStep, ...] = ()
    markers: Mapping[TopicPartition, Sequence[tuple[int, int]]] = field(default_factory=dict)
    """Offset and number of every truncate, by offset."""
    firsts: frozenset[tuple[TopicPartition, int]] = frozenset()
    """The one marker that stands for all markers of a truncate."""

    def __bool__(self) -> bool:
        return bool(self.steps)

    def emptied_by(self, layout: LakeTableLayout) -> int:
        """Returns whether these truncates leave nothing of what was before the last of them."""
        if layout.mode != "mirror" or layout.ignores_deletes:
            return 0
        full = [number for number, step in enumerate(self.steps, 1) if not step.where]
        return full[-1] if full else 0

    def remaining(self, layout: LakeTableLayout) -> tuple[TruncateStep, ...]:
        """Returns the truncates that must be applied row by row."""
        return self.steps[self.emptied_by(layout) :]

    def stands_for_all(self, marker: TableChanges) -> bool:
        assert marker.log_partition is not None and marker.log_offsets is not None
        return (marker.log_partition, marker.log_offsets[0].as_py()) in self.firsts

    def add_epochs(
        self, events: pa.RecordBatch, changes: TableChanges, layout: LakeTableLayout
    ) -> pa.RecordBatch:
        """Returns the changes with their epochs, without those that a later truncate removes."""
        assert changes.log_partition is not None and changes.log_offsets is not None
        epochs = self._epochs(changes.log_partition, changes.log_offsets)
        placed = events.append_column(EPOCH, pa.array(epochs, pa.int32()))
        return placed.filter(pa.array(epochs >= self.emptied_by(layout)))

    def between(self, events: pa.Table, layout: LakeTableLayout) -> list[MergeStep]:
        """Returns the events, in any order, with the truncates between them."""
        first = self.emptied_by(layout)
        epochs = np.asarray(events.column(EPOCH))
        rows = events.drop_columns([EPOCH])
        found: list[MergeStep] = []
        for number in range(first, len(self.steps) + 1):
            mine = rows.filter(pa.array(epochs == number))
            if mine.num_rows:
                found.append(mine)
            found += self.steps[number : number + 1]
        return found

    def _epochs(self, partition: TopicPartition, offsets: pa.Int64Array) -> npt.NDArray[np.int64]:
        markers = self.markers.get(partition, ())
        places = np.searchsorted(np.array([at for at, _ in markers], np.int64), offsets)
        numbers = np.array([*(number for _, number in markers), len(self.steps)], np.int64)
        found: npt.NDArray[np.int64] = numbers[places]
        return found


def truncates_of(found: Sequence[Truncate]) -> Truncates:
    """`found` are in the order in which they apply."""
    markers: dict[TopicPartition, list[tuple[int, int]]] = {}
    for number, each in enumerate(found):
        for partition, offset in each.markers.items():
            markers.setdefault(partition, []).append((offset, number))
    steps = [
        TruncateStep(each.change.committed_us[0].as_py(), each.change.truncated_where)
        for each in found
    ]
    firsts = frozenset(next(iter(each.markers.items())) for each in found)
    return Truncates(tuple(steps), markers, firsts)
