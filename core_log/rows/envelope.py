"""Debezium's envelope in pieces: what a batch shares is one fragment between varying columns."""

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from core_log.changes import Cell, Operation, TableChanges
from core_log.rows.json_text import (
    EMPTY,
    NULL,
    Piece,
    constant,
    json_text,
    quote,
    value_pieces,
)

LETTERS = ("r", "c", "u", "d", "t")
"""What `op` says, by the number of the `Operation`."""


def envelope(
    changes: TableChanges, row: Sequence[Piece], before: pa.Array | None, *, now_us: int
) -> list[Piece]:
    """`row` is the row as an object; `before` holds such objects for updates, where known."""
    operations = changes.operations
    if before is None and len(pc.unique(operations)) == 1:
        operation = operations[0].as_py()
        is_delete = operation == Operation.DELETE
        opening, closing = ("", ',"after":null') if is_delete else ('null,"after":', "")
        letter: Piece = LETTERS[operation]
    else:
        is_deleted = pc.equal(operations, int(Operation.DELETE))
        opening = pc.if_else(is_deleted, "", _before_and_after(before))
        closing = pc.if_else(is_deleted, ',"after":null', "")
        letter = pa.array(LETTERS, pa.string()).take(operations)
    return [
        '{"before":', opening, *row, closing,
        ',"source":', *cells(changes.source),
        ',"transaction":', *cells(changes.transaction),
        ',"op":"', letter, f'",{_times(now_us)}}}',
    ]  # fmt: skip


def _before_and_after(before: pa.Array | None) -> Piece:
    if before is None:
        return 'null,"after":'
    return pc.binary_join_element_wise(before.fill_null(NULL), ',"after":', EMPTY)


def truncate_envelope(changes: TableChanges, *, now_us: int) -> list[Piece]:
    return [
        '{"before":null,"after":null,"source":', *cells(changes.source),
        ',"transaction":', *cells(changes.transaction),
        f',"op":"t",{_times(now_us)}}}',
    ]  # fmt: skip


def _times(now_us: int) -> str:
    return f'"ts_ms":{now_us // 1_000},"ts_us":{now_us},"ts_ns":{now_us * 1_000}'


def cells(block: Mapping[str, Cell] | None) -> list[Piece]:
    """An object whose members are columns or constants."""
    if block is None:
        return [NULL]
    pieces: list[Piece] = ["{"]
    for place, (name, cell) in enumerate(block.items()):
        pieces.append(f"{',' if place else ''}{quote(name)}:")
        is_column = isinstance(cell, pa.Array)
        pieces += value_pieces(json_text(cell)) if is_column else [constant(cell)]
    return [*pieces, "}"]
