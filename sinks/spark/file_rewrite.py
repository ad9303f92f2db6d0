"""The rewrite of one key range: read its files, merge changes, write new files."""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from headwater.sinks.spark import parquet_files
from headwater.sinks.spark.earlier_changes import find_repeated, without_repeated
from headwater.sinks.spark.key_ranges import DataFile, KeyRange
from headwater.sinks.spark.layout import LakeTableLayout
from headwater.sinks.spark.merge import (
    MergeStep,
    add_missing,
    are_rereads,
    fold,
    to_append_rows,
)
from headwater.sinks.spark.storage_location import StorageLocation


@dataclass(frozen=True, slots=True)
class FileRewrite:
    """A rewrite of files with all that a task needs to know; it is pickled for executors."""

    place: StorageLocation
    layout: LakeTableLayout
    keeps_partitions: bool = False
    """Whether partition columns are stored in the files too."""

    def cell(self, cell: KeyRange, steps: Sequence[MergeStep]) -> list[DataFile]:
        """Returns the new files of a key range; its former files are to be removed."""
        base = parquet_files.read(self.place, cell, self.layout)
        return self._write(fold(base, steps, self.layout))

    def add_missing(self, cell: KeyRange, rows: pa.Table) -> list[DataFile] | None:
        """Returns the new files with rows whose keys are missing; None if no key is missing."""
        found = add_missing(parquet_files.read(self.place, cell, self.layout), rows, self.layout)
        return None if found is None else self._write(found)

    def append(self, events: pa.Table, *, beside: Sequence[DataFile]) -> list[DataFile]:
        """Returns files of the changes, without re-read rows that `beside` tells already."""
        rows, again = to_append_rows(events), are_rereads(events, self.layout)
        if again.any():
            rows = rows.select(self.layout.schema.names)
            mine = pa.concat_batches(rows.filter(pa.array(again)).to_batches())
            others = rows.filter(pa.array(~again)).to_batches()
            again[again] = find_repeated(self.place, beside, self.layout, mine, others)
            rows = rows.filter(pa.array(~again))
        return self._write(rows) if rows.num_rows else []

    def append_all(self, events: pa.Table) -> list[DataFile]:
        """Returns files of the changes without a merge."""
        return self._write(to_append_rows(events))

    def append_news(
        self, again: Sequence[DataFile], *, beside: Sequence[DataFile]
    ) -> list[DataFile]:
        """Returns files of the re-read rows in `again` whose values are new beside the others."""
        left = without_repeated(self.place, beside, self.layout, again)
        return [file for rows in left for file in self._write(rows)]

    def _write(self, rows: pa.Table) -> list[DataFile]:
        return parquet_files.write(
            self.place,
            rows.select(self.layout.schema.names),
            self.layout,
            keeps_partitions=self.keeps_partitions,
        )
