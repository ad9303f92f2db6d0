"""Record headers as columns: encoded from constants and columns, read by name."""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.foundation.array_types import Int64Array
from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.records.record_codec import encode_varint
from headwater.core_log.records.row_writer import RowColumn, RowPart, ValueEncoding, join
from headwater.core_log.records.varint import read_varints, write_varints

NO_HEADERS = b"\0"
NOTHING = pa.scalar(b"", pa.binary())
FEW = 8
"""Up to this number of rows, encoding one by one is faster."""
NONE: Mapping[str, pa.BinaryArray] = {}


def encode_headers(headers: Sequence[tuple[str, bytes | None]]) -> bytes:
    """Returns headers that are the same for every record of a batch."""
    parts = [encode_varint(len(headers))]
    for name, value in headers:
        parts += [_encode_name(name), encode_varint(-1 if value is None else len(value))]
        parts += [value or b""]
    return b"".join(parts)


def encode_header_columns(
    headers: Mapping[str, bytes | pa.BinaryArray | None],
    rows: int,
    *,
    where_valid: Mapping[str, pa.BinaryArray] = NONE,
) -> pa.BinaryArray:
    """Returns one encoded set of headers per record; a value is a constant or a column with nulls.

    Those of `where_valid` come last, and only records with a value have them.
    """
    if 0 < rows <= FEW:
        return pa.array(_few_headers(headers, rows, where_valid), pa.binary())
    parts: list[RowPart] = []
    constant = encode_varint(len(headers))
    if where_valid:
        counts = np.full(rows, len(headers), dtype=np.int64)
        for column in where_valid.values():
            counts += column.is_valid().to_numpy(zero_copy_only=False)
        parts, constant = [_varints(counts)], b""
    for name, value in headers.items():
        constant += _encode_name(name)
        if isinstance(value, bytes | None):
            constant += encode_varint(-1 if value is None else len(value)) + (value or b"")
            continue
        parts += [
            constant,
            _varints(lengths_or_minus_one(value)),
            RowColumn(value, ValueEncoding.RAW),
        ]
        constant = b""
    parts.append(constant)
    parts += [RowColumn(_whole_headers(*each), ValueEncoding.RAW) for each in where_valid.items()]
    return join(parts, rows, kind=pa.binary())


def _varints(numbers: Int64Array) -> RowColumn:
    return RowColumn(pa.array(numbers), ValueEncoding.VARINT)


def _few_headers(
    headers: Mapping[str, bytes | pa.BinaryArray | None],
    rows: int,
    where_valid: Mapping[str, pa.BinaryArray],
) -> list[bytes]:
    """Returns the same, encoded one by one: calls on columns take longer than so few rows."""
    always = {
        name: [value] * rows if isinstance(value, bytes | None) else value.to_pylist()
        for name, value in headers.items()
    }
    sometimes = {name: column.to_pylist() for name, column in where_valid.items()}
    return [
        encode_headers(
            [(name, values[row]) for name, values in always.items()]
            + [(name, values[row]) for name, values in sometimes.items() if values[row] is not None]
        )
        for row in range(rows)
    ]


def _whole_headers(name: str, column: pa.BinaryArray) -> pa.BinaryArray:
    """Returns name and value of each header; nothing if the column is null."""
    lengths = lengths_or_minus_one(column)
    opening = pa.scalar(_encode_name(name), pa.binary())
    found = pc.binary_join_element_wise(opening, write_varints(lengths), column, NOTHING)
    return found.fill_null(b"")


def header_lists(encoded: pa.BinaryArray) -> pa.ListArray:
    """Returns every record's headers as a list of (key, value) pairs, in their order."""
    counts, names, values = _split(encoded)
    offsets = np.append(0, np.cumsum(counts)).astype(np.int32)
    pairs = pa.StructArray.from_arrays([names, values], ["key", "value"])
    return pa.ListArray.from_arrays(pa.array(offsets), pairs)


def header_column(encoded: pa.BinaryArray, name: str) -> pa.BinaryArray:
    """Returns the last value of one header per record, null if there is none."""
    counts, names, values = _split(encoded)
    found = np.flatnonzero(np.asarray(pc.equal(names, pa.scalar(name.encode(), pa.binary()))))
    owners = np.repeat(np.arange(len(counts)), counts)[found]
    chosen = np.full(len(counts), -1, dtype=np.int64)
    chosen[owners] = found  # the last assignment to a repeated row counts
    return values.take(pa.array(chosen, mask=chosen < 0))


def lengths_or_minus_one(column: pa.BinaryArray) -> Int64Array:
    if not len(column):
        return np.zeros(0, np.int64)
    bounds = np.frombuffer(column.buffers()[1], np.int32)[column.offset :][: len(column) + 1]
    lengths = np.diff(bounds).astype(np.int64)
    if column.null_count:
        lengths[column.is_null().to_numpy(zero_copy_only=False)] = -1
    return lengths


def _encode_name(name: str) -> bytes:
    encoded = name.encode()
    return encode_varint(len(encoded)) + encoded


def _split(encoded: pa.BinaryArray) -> tuple[Int64Array, pa.BinaryArray, pa.BinaryArray]:
    """Returns the counts per record, and all names and values in record order.

    The n-th header of all records is read at once: the loop is as long as the longest set.
    """
    bounds = np.frombuffer(encoded.buffers()[1], np.int32)[encoded.offset :][: len(encoded) + 1]
    data = np.frombuffer(encoded.buffers()[2] or b"\0", np.uint8)
    starts, ends = bounds[:-1].astype(np.int64), bounds[1:].astype(np.int64)
    counts, position = read_varints(data, starts)
    if ((counts < 0) | (counts > (ends - position) // 2)).any():
        raise DecodeError("record cannot hold its headers")
    firsts = np.cumsum(counts) - counts
    marks = np.empty((int(counts.sum()), 4), dtype=np.int64)
    is_null = np.zeros(len(marks), dtype=np.bool_)
    for index in range(int(counts.max(initial=0))):
        rows = np.flatnonzero(counts > index)
        at, limit = firsts[rows] + index, ends[rows]
        length, start = read_varints(data, position[rows])
        if ((length < 0) | (length > limit - start)).any():
            raise DecodeError("header name is longer than its record, or missing")
        value_length, value_start = read_varints(data, start + length)
        if ((value_length < -1) | (value_length > limit - value_start)).any():
            raise DecodeError("header value is longer than its record")
        end = value_start + value_length.clip(0)
        marks[at] = np.stack((start, start + length, value_start, end), axis=1)
        is_null[at], position[rows] = value_length < 0, end
    if (position != ends).any():
        raise DecodeError("record goes on after its headers")
    slices = slices_between(marks.ravel(), encoded.buffers()[2])
    rows = np.arange(0, 4 * len(marks), 4)
    names = slices.take(pa.array(rows))
    return counts, names, slices.take(pa.array(rows + 2, mask=is_null))


def slices_between(marks: Int64Array, data: pa.Buffer) -> pa.BinaryArray:
    """Returns the bytes between neighbouring marks of one buffer as a column, without copying."""
    bounds = np.append(marks, marks[-1:]).astype(np.int32)
    if not len(marks):
        return pa.array([], pa.binary())
    return pa.Array.from_buffers(pa.binary(), len(marks), [None, pa.py_buffer(bounds), data])
