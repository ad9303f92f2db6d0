"""Joins the parts of each row by Arrow, without one Python object per value."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.records.json_escapes import escape
from headwater.core_log.records.row_parts import (
    RowColumn,
    RowPart,
    ValueEncoding,
    as_text,
    merge_constants,
)
from headwater.core_log.records.varint import write_varints


def join_plainly(pieces: Sequence[RowPart], rows: int, kind: pa.DataType, null: bytes) -> pa.Array:
    """Joins in C++, without one Python object per value."""
    parts = merge_constants(
        part for some in _with_numbers_together(pieces) for part in _parts(some)
    )
    if len(parts) == 1 and isinstance(parts[0], bytes):
        return pa.repeat(pa.scalar(parts[0], pa.binary()).cast(kind), rows)
    return pc.binary_join_element_wise(
        *(_of_kind(part, kind) for part in parts),
        _of_kind(b"", kind),
        null_handling="replace",
        null_replacement=null.decode(),
    )


def _with_numbers_together(pieces: Iterable[RowPart]) -> Iterator[RowPart | list[pa.Array]]:
    """Merges neighbouring varints, so that they are written at once."""
    for is_varint, some in groupby(
        pieces, lambda each: isinstance(each, RowColumn) and each.kind == ValueEncoding.VARINT
    ):
        if is_varint:
            yield [each.values for each in some if isinstance(each, RowColumn)]
        else:
            yield from some


def _parts(piece: RowPart | list[pa.Array]) -> list[bytes | pa.Array]:
    if isinstance(piece, bytes):
        return [piece]
    if isinstance(piece, list):
        return [write_varints(*(each.to_numpy() for each in piece))]
    values, form = as_text(piece)
    match form:
        case ValueEncoding.RAW:
            return [values]
        case ValueEncoding.STRING if values.null_count:
            return [pc.binary_join_element_wise('"', escape(values), '"', "")]
        case ValueEncoding.STRING:
            return [b'"', escape(values), b'"']
        case _:
            return [values.cast(pa.string())]


def _of_kind(part: bytes | pa.Array, kind: pa.DataType) -> pa.Array | pa.Scalar:
    found = pa.scalar(part, pa.binary()) if isinstance(part, bytes) else part
    return found if found.type == kind else found.cast(kind)
