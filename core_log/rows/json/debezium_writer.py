"""Writes Debezium's envelope in parts: fields that a batch shares become one constant part."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.foundation.array_types import BoolArray
from headwater.core_log.model.changes import OP_CODES, ColumnOrValue, Operation, TableChanges
from headwater.core_log.records.row_parts import RowColumn, RowPart, ValueEncoding
from headwater.core_log.rows.json.writer import NULL, constant, join, json_text, member_name

CALM_MAX = 0.5
"""A column that changes in a smaller share of its rows is written once per run of equal values."""
AFTER, NO_AFTER = b',"after":', b',"after":null'


def envelope(
    changes: TableChanges,
    row: Sequence[RowPart],
    before: Sequence[RowPart] | None,
    *,
    now_us: int,
) -> list[RowPart]:
    """Returns the envelope's parts. `row` is an object; `before` is one for updates if it is known,
    else null."""
    operations = changes.operations
    opening: list[RowPart] = [*(before or [NULL]), AFTER]
    closing: RowPart = b""
    if len(pc.unique(operations)) == 1:
        operation = operations[0].as_py()
        code: RowPart = OP_CODES[operation].encode()
        if operation == Operation.DELETE:
            opening, closing = [], NO_AFTER
    else:
        is_deleted = pc.equal(operations, int(Operation.DELETE))
        code = _raw(pa.array(OP_CODES, pa.string()).take(operations))
        if pc.any(is_deleted).as_py():
            known = (NULL + AFTER).decode() if before is None else join(opening, len(changes))
            opening = [_raw(pc.if_else(is_deleted, "", known))]
            closing = _raw(pc.if_else(is_deleted, NO_AFTER.decode(), ""))
    return [
        b'{"before":', *opening, *row, closing,
        b',"source":', *block_parts(changes.source),
        b',"transaction":', *block_parts(changes.transaction),
        b',"op":"', code, b'",', _times(now_us), b"}",
    ]  # fmt: skip


def truncate_envelope(changes: TableChanges, *, now_us: int) -> list[RowPart]:
    return [
        b'{"before":null,"after":null,"source":', *block_parts(changes.source),
        b',"transaction":', *block_parts(changes.transaction),
        b',"op":"t",', _times(now_us), b"}",
    ]  # fmt: skip


def _times(now_us: int) -> bytes:
    return b'"ts_ms":%d,"ts_us":%d,"ts_ns":%d' % (now_us // 1_000, now_us, now_us * 1_000)


def _raw(texts: pa.Array) -> RowColumn:
    return RowColumn(texts, ValueEncoding.RAW)


def block_parts(block: Mapping[str, ColumnOrValue] | None) -> list[RowPart]:
    """Returns an object whose members are columns or constants."""
    if block is None:
        return [NULL]
    block = {name: _of_one(value) for name, value in block.items()}
    runs = _Runs.of([value for value in block.values() if isinstance(value, pa.Array)])
    parts: list[RowPart] = []
    shared: list[RowPart] = [b"{"]
    for index, (name, value) in enumerate(block.items()):
        shared += [b"," if index else b"", member_name(name)]
        if not isinstance(value, pa.Array):
            shared.append(constant(value))
        elif runs.has(value):
            shared.append(json_text(runs.firsts(value)))
        else:
            parts += [*runs.spread(shared), json_text(value)]
            shared = []
    return [*parts, *runs.spread([*shared, b"}"])]


def _of_one(value: ColumnOrValue) -> ColumnOrValue:
    """Turns columns of a single row into constants."""
    return value[0].as_py() if isinstance(value, pa.Array) and len(value) == 1 else value


class _Runs(NamedTuple):
    """Runs of rows that share much of their `source` block, like the rows of one commit: shared
    fields are written once per run."""

    columns: tuple[pa.Array, ...]
    starts: pa.Array
    """The first row of each run."""
    numbers: pa.Array
    """The run of each row."""

    @classmethod
    def of(cls, columns: Sequence[pa.Array]) -> "_Runs":
        changes = [_changes(column) for column in columns]
        calm = [
            index for index, change in enumerate(changes) if change.sum() <= CALM_MAX * len(change)
        ]
        if not calm:
            return cls((), None, None)
        is_start = np.logical_or.reduce([changes[index] for index in calm])
        numbers = np.cumsum(is_start) - 1
        chosen = tuple(columns[index] for index in calm)
        return cls(chosen, pa.array(np.flatnonzero(is_start)), pa.array(numbers))

    def has(self, column: pa.Array) -> bool:
        return any(column is each for each in self.columns)

    def firsts(self, column: pa.Array) -> pa.Array:
        return column.take(self.starts)

    def spread(self, parts: Sequence[RowPart]) -> list[RowPart]:
        """Returns parts per run as parts per row."""
        if all(isinstance(part, bytes) for part in parts):
            return list(parts)
        return [_raw(pa.DictionaryArray.from_arrays(self.numbers, join(parts, len(self.starts))))]


def _changes(column: pa.Array) -> BoolArray:
    """Returns where a column's value differs from the row before; a null always differs."""
    found = np.ones(len(column), np.bool_)
    if len(column) > 1:
        different = pc.not_equal(column.slice(1), column.slice(0, len(column) - 1))
        found[1:] = different.fill_null(True).to_numpy(zero_copy_only=False)
    return found
