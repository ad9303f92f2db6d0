"""One cell of a table written anew: what it holds read, changes folded in, new files written."""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from headwater.sinks.spark import parquet_files
from headwater.sinks.spark.key_ranges import DataFile, KeyRange
from headwater.sinks.spark.layout import LakeTableLayout
from headwater.sinks.spark.merge import MergeStep, add_missing, fold, to_append_rows
from headwater.sinks.spark.storage_location import StorageLocation


@dataclass(frozen=True, slots=True)
class FileRewrite:
    """Everything that a task needs to know; travels to executors."""

    place: StorageLocation
    layout: LakeTableLayout
    keeps_partitions: bool = False
    """Whether columns that divide the table stand in its files as well."""

    def cell(self, cell: KeyRange, steps: Sequence[MergeStep]) -> list[DataFile]:
        """The new files of a cell; those that it had are to be removed."""
        base = parquet_files.read(self.place, cell, self.layout)
        return self._write(fold(base, steps, self.layout))

    def add_missing(self, cell: KeyRange, rows: pa.Table) -> list[DataFile] | None:
        """The new files of a cell that gets those of the rows whose keys it has not; None where it
        has them all."""
        found = add_missing(parquet_files.read(self.place, cell, self.layout), rows, self.layout)
        return None if found is None else self._write(found)

    def append(self, events: pa.Table) -> list[DataFile]:
        """Files of changes as they are."""
        return self._write(to_append_rows(events))

    def _write(self, rows: pa.Table) -> list[DataFile]:
        return parquet_files.write(
            self.place,
            rows.select(self.layout.schema.names),
            self.layout,
            keeps_partitions=self.keeps_partitions,
        )
