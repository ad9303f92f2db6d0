"""Rows that the value format cannot express: each is rejected alone, and the others continue."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from hashlib import sha256
from typing import TypeVar

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.foundation.array_types import BoolArray
from headwater.core_log.foundation.errors import RowsRejected
from headwater.core_log.model.changes import Operation, Reject, TableChanges
from headwater.core_log.records.compression import compress
from headwater.core_log.rows.codec import Encoded
from headwater.pipelines.file.spec import StopAfter
from headwater.pipelines.loops.deliver.dead_letters import DeadLetterBudget
from headwater.pipelines.reports import RemarksMade

T = TypeVar("T")

RECORD_BYTES_MAX = 64 << 20
"""Largest record: a row of a database can be large, and a record is never divided."""
HEAD_BYTES = 64 << 10
"""Bytes left for the headers of a record and of its batch."""
DIGEST_DIGITS = 16
EXHAUSTED = "dead letters"
"""The subject of the message."""


def encode_or_reject(
    changes: TableChanges, encode: Callable[[TableChanges], list[T]]
) -> tuple[list[T], list[Reject]]:
    """Returns what could be encoded, and the rejected rows.

    The before image of an update or delete is optional: it is reduced to the key before the row is
    rejected.
    """
    rejects: list[Reject] = []
    while len(changes):
        try:
            return encode(changes), rejects
        except RowsRejected as error:
            changes, lost = _without(changes, error)
            rejects += lost
    return [], rejects


def check_sizes(
    encoded: Encoded, compression: int, *, record_bytes_max: int = RECORD_BYTES_MAX
) -> None:
    """Raises `RowsRejected` for records that no topic would accept, however well compressed."""
    room = record_bytes_max - HEAD_BYTES
    if encoded.values.nbytes + encoded.keys.nbytes <= room:
        return
    lengths = pc.add(
        pc.fill_null(pc.binary_length(encoded.values), 0),
        pc.fill_null(pc.binary_length(encoded.keys), 0),
    ).to_numpy()
    reasons = {}
    for record in np.flatnonzero(lengths > room).tolist():
        value, key = (each[record].as_buffer() for each in (encoded.values, encoded.keys))
        size = sum(len(compress(compression, each)) for each in (value, key) if each)
        if size > room:
            row = record if encoded.changes is None else encoded.changes[record].as_py()
            reasons[row] = (
                f"its record takes {size >> 20} MiB of the {record_bytes_max >> 20} MiB of"
                " max.message.bytes; `drop` of the pipeline's `transform` leaves columns out"
            )
    if reasons:
        raise RowsRejected("the rows are too large for a record", reasons=reasons)


def _without(changes: TableChanges, error: RowsRejected) -> tuple[TableChanges, list[Reject]]:
    is_bad = np.zeros(len(changes), np.bool_)
    is_bad[list(error.reasons)] = True
    if changes.before is not None:
        known = changes.before.is_valid().to_numpy(zero_copy_only=False)
        if (is_bad & known).any():
            nothing = pa.scalar(None, changes.before.type)
            before = pc.if_else(pa.array(is_bad & known), nothing, changes.before)
            return replace(changes, before=before), []
    bare = _bare(changes, is_bad)
    if bare is not None:
        return bare, []
    rejects = [_reject(changes, row, reason) for row, reason in error.reasons.items()]
    if changes.moves is not None:
        changes = replace(changes, moves=_whole_moves(changes, is_bad))
    return changes.filter(pa.array(~is_bad)), rejects


def _bare(changes: TableChanges, is_bad: BoolArray) -> TableChanges | None:
    """Returns bad deletes with only the key; None if they have nothing else, or are no deletes."""
    is_delete = is_bad & (changes.operations.to_numpy() == Operation.DELETE)
    columns, has_changed = changes.rows.columns, False
    for place, name in enumerate(changes.schema.names):
        is_set = is_delete & columns[place].is_valid().to_numpy(zero_copy_only=False)
        if name not in changes.schema.key and is_set.any():
            nothing = pa.scalar(None, columns[place].type)
            columns[place] = pc.if_else(pa.array(is_set), nothing, columns[place])
            has_changed = True
    if not has_changed:
        return None
    return replace(changes, rows=pa.RecordBatch.from_arrays(columns, schema=changes.rows.schema))


def _whole_moves(changes: TableChanges, is_bad: BoolArray) -> pa.BooleanArray:
    """Turns a changed key with a lost half into a plain delete, or a plain insert."""
    assert changes.moves is not None
    moves = changes.moves.to_numpy(zero_copy_only=False).copy()
    operations = changes.operations.to_numpy()
    for row in np.flatnonzero(moves & is_bad).tolist():
        other = row + 1 if operations[row] == Operation.DELETE else row - 1
        moves[[row, other]] = False
    return pa.array(moves)


def _reject(changes: TableChanges, row: int, reason: str) -> Reject:
    """Rejects a row; the dead letter contains the key and nothing else of the row."""
    content = orjson.dumps(
        {name: _text(changes.rows.column(name).slice(row, 1)) for name in changes.schema.key}
    )
    commits = changes.commits
    commit = commits[row].as_py() if isinstance(commits, pa.Array) else commits
    place = (
        changes.indexes[row].as_py()
        if changes.indexes is not None
        else sha256(content).hexdigest()[:DIGEST_DIGITS]
    )
    return Reject(changes.schema.table, content, reason, f"{commit}#{place}")


def _text(value: pa.Array) -> str | None:
    if pa.types.is_binary(value.type):
        return None if value[0].as_py() is None else str(value[0].as_py().hex())
    if pa.types.is_nested(value.type):
        return str(value[0])
    text = value.cast(pa.string())[0].as_py()
    return None if text is None else str(text)


class RejectBudget:
    """The limit during one run of a source. A table beyond it stays reported, because its rows are
    missing."""

    def __init__(self, pipeline: str, task: str, stop_after: StopAfter) -> None:
        self._pipeline, self._task, self._stop_after = pipeline, task, stop_after
        self._budgets: dict[str, DeadLetterBudget] = {}
        self._exhausted: set[str] = set()

    def count(self, passed: Mapping[str, int], failed: Mapping[str, int]) -> RemarksMade | None:
        """Counts `passed` rows in the log and `failed` rows in the dead-letter topic; returns a
        message if another table is beyond the limit."""
        before = len(self._exhausted)
        for table in passed.keys() | failed.keys():
            if table not in self._budgets:
                self._budgets[table] = DeadLetterBudget(
                    failures=self._stop_after.failures, of_last=self._stop_after.of_last
                )
            lost = failed.get(table, 0)
            self._budgets[table].add(passed.get(table, 0) + lost, failed=lost)
            if self._budgets[table].is_exhausted:
                self._exhausted.add(table)
        return self._remark() if len(self._exhausted) > before else None

    def _remark(self) -> RemarksMade:
        names = sorted(self._exhausted)
        limit = self._stop_after
        return RemarksMade(
            self._pipeline,
            self._task,
            EXHAUSTED,
            f"{limit.failures} or more of {limit.of_last} rows are dead letters of the source: "
            f"{', '.join(names)}",
            f"headwater dlq ls {self._pipeline} shows why; correct the rows, or raise "
            "errors.dead_letter.stop_after in the file",
            tuple(names),
        )
