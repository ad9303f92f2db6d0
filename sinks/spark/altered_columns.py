"""Columns of a lake table that have other names than in its files, or a value that these lack."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from headwater.core_log.foundation.errors import RebuildNeeded
from headwater.core_log.model.table_schema import Column, TableSchema
from headwater.sinks.evolution import may_rename
from headwater.sinks.held_columns import HeldColumns
from headwater.sinks.spark.layout import REBUILD


@dataclass(slots=True)
class AlteredColumns:
    """Followed through the forms of a stretch, from what the files of the table have."""

    held: HeldColumns
    renamed: dict[str, str] = field(default_factory=dict)
    """Names of now to those in the files."""
    filled: dict[str, Column] = field(default_factory=dict)
    left: frozenset[str] = frozenset()
    """Names in the files that are no column's any more, or another one's."""

    def rename(
        self,
        schema: TableSchema,
        present: pa.Schema,
        *,
        policy: Mapping[str, str],
        partition_by: Collection[str],
    ) -> pa.Schema:
        """The columns that the table has, under their names in this form."""
        renames = self.held.find_renames(schema, _same(schema)) if may_rename(policy) else {}
        renames = {old: new for old, new in renames.items() if old in present.names}
        for old, new in renames.items():
            is_taken = new in present.names and new not in renames
            if is_taken or old in partition_by:
                raise RebuildNeeded(
                    "a column cannot get its new name in place",
                    table=str(schema.table),
                    column=old,
                    becomes=new,
                    why="it divides the table" if old in partition_by else "the name is taken",
                    hint=REBUILD,
                )
        self.filled = {renames.get(name, name): each for name, each in self.filled.items()}
        in_files = {new: self.renamed.pop(old, old) for old, new in renames.items()}
        self.renamed |= {new: old for new, old in in_files.items() if new not in self.filled}
        self.left |= set(renames) - set(renames.values())
        return pa.schema([each.with_name(renames.get(each.name, each.name)) for each in present])

    def learn(self, schema: TableSchema, *, skipped: Collection[str], is_new: bool) -> None:
        """The table has the columns of this form; `is_new`: it had no files before."""
        names = {name: name for name in schema.names if name not in skipped}
        if not is_new:
            self.filled |= self.held.find_fills(schema, names)
        self.held = self.held.learnt(schema, names)


def _same(schema: TableSchema) -> dict[str, str]:
    return {name: name for name in schema.names}
