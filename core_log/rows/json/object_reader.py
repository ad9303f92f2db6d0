"""Reads JSON objects into typed columns: all at once, or one by one if something does not fit."""

import json as json_of_python
from collections.abc import Mapping, Sequence
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json

from headwater.core_log.foundation.errors import RowsRejected
from headwater.core_log.records.json_escapes import quote
from headwater.core_log.records.record_views import RecordField
from headwater.core_log.rows.arrow_buffers import stretches
from headwater.core_log.rows.column_types import type_text
from headwater.core_log.rows.json.scanner import is_ready_for, scanner_for
from headwater.core_log.rows.json.strict_reader import NOT_FINITE, carrier, read_strictly
from headwater.core_log.rows.map_columns import has_map
from headwater.core_log.rows.rejects import UNFIT
from headwater.core_log.rows.text.bytes import from_base64
from headwater.core_log.rows.value_classes import misfit

NULL_MEMBER = b":n"
"""Prefix that identifies a null: no other value begins like this."""
OPENING, CLOSING = ord("{"), ord("}")


def read_objects(texts: pa.StringArray, kind: pa.StructType) -> list[pa.Array]:
    """Returns a column per field of `kind`, as JSON carries it: bytes are still base64 text.

    Strict: a missing, unknown, repeated or mistyped field raises `RowsRejected`, which names fields
    and never values. Whitespace between tokens is allowed, but costs speed.
    """
    scanner = scanner_for(kind) if is_ready_for(len(texts)) else None
    scanned = None if scanner is None else scanner.objects(RecordField.of(texts))
    if scanned is not None:
        return scanned
    try:
        return read_together(texts, kind)
    except UNFIT:
        return _read_one_by_one(texts, kind)


def read_together(texts: pa.StringArray, kind: pa.StructType) -> list[pa.Array]:
    """Reads without compiled code; raises `ValueError` if it is not sure that everything fits."""
    if not kind.num_fields or not len(texts) or has_map(kind):
        raise ValueError("nothing to read in columns")
    data, offsets = stretches(texts)
    if (data[offsets[:-1]] != OPENING).any() or (data[offsets[1:] - 1] != CLOSING).any():
        raise ValueError("the records are not JSON objects")
    lines = _as_lines(texts)
    try:
        columns = _parse(lines, kind)
    except UNFIT:
        columns = _parse(_with_bare_floats(lines, kind), kind)
    if any(len(column) != len(texts) for column in columns):
        raise ValueError("a record holds more than one object")
    if not _all_members_there(columns, lines, kind) or not _floats_fit(columns):
        raise ValueError("a field is missing, or a number is too large")
    return columns


def _as_lines(texts: pa.StringArray) -> pa.Buffer:
    lines = pc.binary_join(pa.ListArray.from_arrays([0, len(texts)], texts), "\n")[0].as_buffer()
    if np.count_nonzero(np.frombuffer(lines, np.uint8) == ord("\n")) != len(texts) - 1:
        raise ValueError("an object goes over several lines")
    return lines


def _parse(lines: pa.Buffer, kind: pa.StructType) -> list[pa.Array]:
    from pyarrow import json as arrow_json  # imported late: not every codec reads JSON

    table = arrow_json.read_json(
        pa.BufferReader(lines),
        read_options=arrow_json.ReadOptions(use_threads=False, block_size=lines.size + 1),
        parse_options=arrow_json.ParseOptions(
            explicit_schema=pa.schema(list(kind)), unexpected_field_behavior="error"
        ),
    )
    return [column.combine_chunks() for column in table.columns]


def _with_bare_floats(lines: pa.Buffer, kind: pa.StructType) -> pa.Buffer:
    """Arrow's parser reads `NaN` as a number, where Debezium writes it as a string."""
    text = lines.to_pybytes()
    for member in kind:
        if pa.types.is_floating(member.type):
            for word in NOT_FINITE:
                name = quote(member.name)
                text = text.replace(f'{name}:"{word}"'.encode(), f"{name}:{word}".encode())
    return pa.py_buffer(text)


def _all_members_there(columns: Sequence[pa.Array], lines: pa.Buffer, kind: pa.StructType) -> bool:
    """Arrow reads a missing field as null, so the nulls must be as many as are written.

    Text in a string that looks like a null is still in the result, so the sums are equal only if no
    field is missing. Spaces, and names that look like a null, make them differ: the slow reader
    then decides.
    """
    null_count = sum(map(_null_members, columns))
    if not null_count:
        return True
    if any(NULL_MEMBER.decode() in name for name in names_in(kind)):
        return False
    text = np.frombuffer(lines, np.uint8)
    colon, letter = NULL_MEMBER
    written = int(np.count_nonzero((text[:-1] == colon) & (text[1:] == letter)))
    return written == null_count + sum(map(_null_mentions, columns))


def _null_members(column: pa.Array) -> int:
    """Returns how many fields of objects are null in this column, including itself."""
    found = int(column.null_count)
    if pa.types.is_struct(column.type):
        return found + sum(map(_null_members, column.drop_null().flatten()))
    if pa.types.is_list(column.type):
        items = column.flatten()
        return found + _null_members(items) - int(items.null_count)
    return found


def _null_mentions(column: pa.Array) -> int:
    """Returns how often strings contain the text of a null field."""
    if pa.types.is_struct(column.type):
        return sum(map(_null_mentions, column.flatten()))
    if pa.types.is_list(column.type):
        return _null_mentions(column.flatten())
    if column.type != pa.string() or NULL_MEMBER not in bytes(stretches(column)[0]):
        return 0
    return pc.sum(pc.count_substring(column, NULL_MEMBER.decode())).as_py() or 0


def names_in(kind: pa.DataType) -> list[str]:
    if pa.types.is_list(kind):
        return names_in(kind.value_type)
    if not pa.types.is_struct(kind):
        return []
    return [name for member in kind for name in (member.name, *names_in(member.type))]


def _floats_fit(columns: Sequence[pa.Array]) -> bool:
    """Returns whether no number exceeded a 32-bit float's range and became infinite."""
    return not any(
        column.type == pa.float32() and pc.any(pc.is_inf(column)).as_py() for column in columns
    )


def _read_one_by_one(texts: pa.StringArray, kind: pa.StructType) -> list[pa.Array]:
    rows, reasons = [], {}
    for place, text in enumerate(texts.to_pylist()):
        try:
            row = read_strictly(text.encode(), kind)
            if row is None:
                raise ValueError("the value is not an object")
            rows.append(row)
        except ValueError as error:
            reasons[place] = str(error)
    if reasons:
        raise RowsRejected("rows do not fit their schema", reasons=reasons)
    return [
        pa.array([row[member.name] for row in rows], member.type, from_pandas=False)
        for member in kind
    ]


def without_carrier(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Returns the column in its wire type; raises `ValueError` if text is not base64."""
    if carrier(kind) == kind:
        return column
    if kind == pa.binary():
        return from_base64(column)
    mask = column.is_null() if column.null_count else None
    if pa.types.is_list(kind):
        counts = pc.list_value_length(column).fill_null(0)
        offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(counts)])
        items = without_carrier(column.flatten(), kind.value_type)
        return pa.ListArray.from_arrays(offsets, items, mask=mask)
    members = [
        without_carrier(part, member.type)
        for part, member in zip(column.flatten(), kind, strict=True)
    ]
    return pa.StructArray.from_arrays(members, fields=list(kind), mask=mask)


def misfit_in(document: bytes, types: Mapping[str, pa.DataType]) -> str:
    """Returns the field of one object that does not fit; empty if none is the cause by itself."""
    try:
        found = json_of_python.loads(document, parse_float=Decimal)
    except (ValueError, ArithmeticError, RecursionError):
        return ""
    if not isinstance(found, dict):
        return ""
    for name, kind in types.items():
        value = found.get(name)
        if isinstance(value, dict | list) or _is_read(document, name, kind):
            continue
        if isinstance(value, str) and not pa.types.is_decimal(kind):
            return f"field /{name} is {type_text(kind)} and the value is a text"
        return misfit(f"field /{name}", kind, value)
    return ""


def _is_read(document: bytes, name: str, kind: pa.DataType) -> bool:
    options = json.ParseOptions(
        explicit_schema=pa.schema([(name, kind)]), unexpected_field_behavior="ignore"
    )
    try:
        json.read_json(pa.BufferReader(document), parse_options=options)
    except pa.ArrowInvalid:
        return False
    return True
