"""Rows of a source that no column of the log holds: what it should say of them is not known."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.core_log.model.changes import Operation, TableChanges
from headwater.core_log.rows.decimal_nan import declare_nan_columns
from headwater.core_log.rows.digests import Digests
from headwater.pipelines.time_travel.verify.log_state import ComparedColumns

KEYS_NAMED = 20


@dataclass(slots=True)
class IncomparableRows:
    """Of one table, as its source was read last. Nobody may delete them from the log."""

    keys: list[pa.RecordBatch] = field(default_factory=list)
    """As targets call them."""
    nameless: int = 0
    """Rows of which not even the key could be read."""

    @property
    def count(self) -> int:
        return self.nameless + sum(len(batch) for batch in self.keys)

    def add(self, deletes: Sequence[TableChanges]) -> None:
        """Deletes of their keys, which have come the way of all changes."""
        for changes in deletes:
            keys = changes.keys
            if not keys.num_columns:
                self.nameless += len(changes)
                continue
            is_whole = np.logical_and.reduce([np.asarray(each.is_valid()) for each in keys.columns])
            self.nameless += int((~is_whole).sum())
            self.keys.append(keys.filter(pa.array(is_whole)))

    @property
    def named(self) -> list[Mapping[str, Any]]:
        """The first of the keys."""
        whole = (key for batch in self.keys for key in batch.slice(0, KEYS_NAMED).to_pylist())
        return [*islice(whole, KEYS_NAMED)]

    def digests(self, shape: ComparedColumns) -> Digests:
        of_keys = ComparedColumns(shape.schema, shape.schema.key)
        found = [of_keys.digests(of_keys.project(batch))[0] for batch in self.keys]
        return np.concatenate(found) if found else np.zeros(0, np.uint64)


def deletes_of(changes: TableChanges) -> TableChanges:
    """Of their keys alone: such changes pass every filter."""
    schema, count = declare_nan_columns(changes.schema), len(changes)
    columns = [
        changes.rows.column(each.name) if each.name in schema.key else pa.nulls(count, each.type)
        for each in schema.columns
    ]
    return replace(
        changes,
        schema=schema,
        rows=pa.RecordBatch.from_arrays(columns, schema=schema.arrow),
        operations=pa.array(np.full(count, Operation.DELETE, np.uint8)),
        before=None,
    )
