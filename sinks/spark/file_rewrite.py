"""One cell of a table written anew: what it holds read, changes folded in, new files written."""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from sinks.spark import parquet_files
from sinks.spark.key_ranges import Cell, DataFile
from sinks.spark.layout import Layout
from sinks.spark.merge import Step, appended, fold, joined
from sinks.spark.storage_location import Place


@dataclass(frozen=True, slots=True)
class Rewriting:
    """Everything that a task needs to know; travels to executors."""

    place: Place
    layout: Layout
    keeps_partitions: bool = False
    """Whether columns that divide the table stand in its files as well."""

    def cell(self, cell: Cell, steps: Sequence[Step]) -> list[DataFile]:
        """The new files of a cell; those that it had are to be removed."""
        base = parquet_files.read(self.place, cell, self.layout)
        return self._write(fold(base, steps, self.layout))

    def joined(self, cell: Cell, rows: pa.Table) -> list[DataFile] | None:
        """The new files of a cell that gets those of the rows whose keys it has not; None where it
        has them all."""
        found = joined(parquet_files.read(self.place, cell, self.layout), rows, self.layout)
        return None if found is None else self._write(found)

    def appended(self, events: pa.Table) -> list[DataFile]:
        """Files of changes as they are."""
        return self._write(appended(events))

    def _write(self, rows: pa.Table) -> list[DataFile]:
        return parquet_files.write(
            self.place,
            rows.select(self.layout.schema.names),
            self.layout,
            keeps_partitions=self.keeps_partitions,
        )
