"""Columns as text, SQL literals or Python values for a driver, and values that it returns."""

import math
from base64 import b64decode, b64encode
from collections.abc import Sequence
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.foundation.errors import SinkRejected
from headwater.core_log.rows.text.bytes import from_hex, to_hex
from headwater.core_log.rows.text.datetime import (
    are_near,
    database_text,
    from_database_text,
    text_to_times,
    times_to_text,
    with_eras,
)
from headwater.core_log.rows.text.number import decimal_to_text, text_to_booleans, value_text

ParameterRows = list[tuple[Any, ...]]

TO_ESCAPE = r"[\\\t\n\r]"
ESCAPES = (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"))
DOUBLE_DIGITS = 15
"""Digits of a decimal that a double keeps."""
WORDS = {math.inf: "Infinity", -math.inf: "-Infinity"}
NAN = "NaN"
"""PostgreSQL's text for numbers that JSON does not have."""
HEX_PREFIX = r"\x"
"""PostgreSQL's; other databases return bytes, or digits alone."""


def text_of(column: pa.Array) -> pa.StringArray:
    """Returns every value as databases write it, in UTC if it has a zone."""
    kind = column.type
    if pa.types.is_string(kind):
        return column
    if pa.types.is_timestamp(kind) or pa.types.is_date32(kind):
        bare = column.cast(pa.timestamp(kind.unit)) if pa.types.is_timestamp(kind) else column
        return database_text(bare)
    if pa.types.is_decimal(kind):
        return decimal_to_text(column)
    if _is_binary(kind):
        return to_hex(column.cast(pa.binary()))
    if pa.types.is_nested(kind):
        return _nested_texts(column)
    if pa.types.is_time(kind):
        return times_to_text(column)
    if pa.types.is_duration(kind):
        return column.cast(pa.int64()).cast(pa.string())
    if pa.types.is_dictionary(kind):
        return text_of(column.cast(kind.value_type))
    return column.cast(pa.string())


def copy_text(rows: pa.RecordBatch) -> memoryview:
    """Returns the rows in the text format of PostgreSQL's COPY."""
    columns = [_copy(column) for column in rows.columns]
    lines = pc.binary_join_element_wise(
        *columns, "\t", null_handling="replace", null_replacement="\\N"
    )
    return _concat(pc.binary_join_element_wise(lines, "", "\n"))


def _copy(column: pa.Array) -> pa.StringArray:
    text = text_of(column)
    if _is_binary(column.type):
        return pc.binary_join_element_wise("\\\\x", text, "")
    if pa.types.is_timestamp(column.type) or pa.types.is_date32(column.type):
        zone = "+00" if pa.types.is_timestamp(column.type) and column.type.tz else ""
        if not are_near(column):
            return with_eras(text, zone=zone)
        return pc.binary_join_element_wise(text, zone, "") if zone else text
    if _is_textual(column.type) and pc.any(pc.match_substring_regex(text, TO_ESCAPE)).as_py():
        for character, escape in ESCAPES:
            text = pc.replace_substring(text, character, escape)
    return text


def value_lists(rows: pa.RecordBatch) -> pa.StringArray:
    """Returns each row as a list of SQL literals, `(1,'two',NULL)`, for a MySQL session with
    NO_BACKSLASH_ESCAPES."""
    columns = [_literal(column) for column in rows.columns]
    lists = pc.binary_join_element_wise(
        *columns, ",", null_handling="replace", null_replacement="NULL"
    )
    return pc.binary_join_element_wise("(", lists, ")", "")


def _literal(column: pa.Array) -> pa.StringArray:
    text, kind = text_of(column), column.type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return text
    if pa.types.is_floating(kind) and pc.all(pc.is_finite(column)).as_py() is not False:
        return text  # the others are words and need quotes
    if _is_binary(kind):
        return pc.binary_join_element_wise("X'", text, "'", "")
    if _is_textual(kind):
        text = pc.replace_substring(text, "'", "''")
    return pc.binary_join_element_wise("'", text, "'", "")


def sqlite_rows(rows: pa.RecordBatch) -> ParameterRows:
    """Returns the rows as tuples of SQLite's storage types."""
    return list(zip(*(_sqlite_values(column) for column in rows.columns), strict=True))


def sqlite_values(rows: pa.RecordBatch) -> list[Any]:
    """Returns the same values in one list, row after row."""
    width = rows.num_columns
    values: list[Any] = [None] * (rows.num_rows * width)
    for column_number, column in enumerate(rows.columns):
        values[column_number::width] = _sqlite_values(column)
    return values


def _sqlite_values(column: pa.Array) -> list[Any]:
    kind = column.type
    if pa.types.is_boolean(kind):
        return _list(column.cast(pa.int8()))
    if kind == pa.uint64():
        return _list(text_of(column))
    if pa.types.is_decimal(kind) and kind.precision <= DOUBLE_DIGITS and kind.scale >= 0:
        return _list(_nearest_doubles(column))
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or _is_binary(kind):
        return _list(column)
    return _list(text_of(column))


def _list(column: pa.Array) -> list[Any]:
    """Works as `to_pylist`, several times faster."""
    if column.null_count == 0 or not pa.types.is_primitive(column.type):
        found: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
        return found
    values = column.fill_null(0).to_numpy(zero_copy_only=False).astype(object)
    values[column.is_null().to_numpy(zero_copy_only=False)] = None
    filled: list[Any] = values.tolist()
    return filled


def _concat(lines: pa.StringArray) -> memoryview:
    """Concatenates the texts without copying them."""
    _, offsets, data = lines.buffers()
    ends = np.frombuffer(offsets, dtype=np.int32)[lines.offset : lines.offset + len(lines) + 1]
    return memoryview(data)[int(ends[0]) : int(ends[-1])]


def statements(lists: pa.StringArray, *, bytes_max: int) -> list[bytes]:
    """Joins the lists by commas, into as few texts as fit `bytes_max`."""
    if not len(lists):
        return []
    _, offsets, _ = lists.buffers()
    ends: npt.NDArray[np.int64] = np.frombuffer(offsets, dtype=np.int32)[
        lists.offset : lists.offset + len(lists) + 1
    ].astype(np.int64)
    found, start = [], 0
    while start < len(lists):
        stop = int(np.searchsorted(ends, ends[start] + bytes_max, side="right")) - 1
        stop = max(stop, start + 1)
        part = pa.ListArray.from_arrays([0, stop - start], lists.slice(start, stop - start))
        found.append(bytes(pc.binary_join(part, ",")[0].as_buffer()))
        start = stop
    return found


def _nearest_doubles(column: pa.Array) -> pa.Array:
    """Divides exact numbers once: Arrow's own cast is sometimes off by one bit."""
    column = column.cast(pa.decimal128(38, column.type.scale))
    halves = np.frombuffer(column.buffers()[1], dtype=np.int64).reshape(-1, 2)
    unscaled = halves[column.offset : column.offset + len(column), 0]
    is_null = column.is_null().to_numpy(zero_copy_only=False)
    return pa.array(unscaled / 10.0**column.type.scale, mask=is_null)


def column_of(values: Any, kind: pa.DataType, *, name: str, table: str) -> pa.Array:
    """Returns text, or the driver's Python values, as values of `kind`."""
    try:
        return _to_types(values if isinstance(values, pa.Array) else _parsed(values, kind), kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, ValueError, TypeError):
        raise SinkRejected(
            "a column of the target has values that are not of its type",
            table=table,
            column=name,
            type=str(kind),
            hint="another program has written to the table: headwater rebuild PIPELINE/TABLE "
            "--swap makes it again",
        ) from None


def _parsed(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Returns numbers and bytes as they are, all other values as text."""
    if all(value is None or type(value) is bytes for value in values):
        is_binary = _is_binary(kind)
        return pa.array(values if is_binary else [value_text(value) for value in values])
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    if is_number and not any(isinstance(value, str) for value in values):
        return pa.array(values, pa.float64() if pa.types.is_floating(kind) else None)
    return pa.array([value_text(value) for value in values], pa.string())


def _to_types(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if values.type == kind:
        return values
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), kind)
    if not pa.types.is_string(values.type):
        return values.cast(kind)
    if pa.types.is_boolean(kind):
        return text_to_booleans(values)
    if _is_binary(kind):
        has_prefix = pc.any(pc.starts_with(values, HEX_PREFIX)).as_py()
        return from_hex(values, prefix=HEX_PREFIX if has_prefix else "").cast(kind)
    if pa.types.is_timestamp(kind) or pa.types.is_date32(kind):
        bare = pa.timestamp(kind.unit) if pa.types.is_timestamp(kind) else kind
        return from_database_text(values, bare).cast(kind)
    if pa.types.is_time(kind):
        return text_to_times(values, kind, may_exceed_a_day=True)
    if pa.types.is_nested(kind):
        return _read_nested(values, kind)
    if pa.types.is_duration(kind):
        return values.cast(pa.int64()).cast(kind)
    return (_without_zeros(values) if pa.types.is_integer(kind) else values).cast(kind)


def _without_zeros(values: pa.Array) -> pa.Array:
    """The table's column may be one of decimals, as the source's was before."""
    return pc.replace_substring_regex(values, r"\.0+$", "")


def _nested_texts(column: pa.Array) -> pa.StringArray:
    """Returns lossless JSON: bytes in base64, decimals and timestamps as text, maps as lists of
    pairs."""
    texts = [None if each is None else orjson.dumps(each).decode() for each in _plain(column)]
    return pa.array(texts, pa.string())


def _read_nested(text: pa.StringArray, kind: pa.DataType) -> pa.Array:
    """Reads such text; raises `ValueError` for other text."""
    values = [None if each is None else orjson.loads(each) for each in text.to_pylist()]
    return _build(values, kind)


def _plain(column: pa.Array) -> list[Any]:
    """Returns a JSON value for each value."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _plain(column.cast(kind.value_type))
    if pa.types.is_struct(kind):
        members = [_plain(each) for each in column.flatten()]
        names = [field.name for field in kind]
        rows: list[Any] = [dict(zip(names, row, strict=True)) for row in zip(*members, strict=True)]
        return _with_nulls(rows or [{}] * len(column), column)
    if pa.types.is_map(kind):
        pairs = [[*pair] for pair in zip(_plain(column.keys), _plain(column.items), strict=True)]
        return _cut(pairs, column)
    if pa.types.is_fixed_size_list(kind):
        return _plain(column.cast(pa.list_(kind.value_type)))
    if _is_list(kind):
        return _cut(_plain(column.values), column)
    return [None if each is None else _leaf(each) for each in _leaves(column).to_pylist()]


def _leaves(column: pa.Array) -> pa.Array:
    """Returns text for types that Python does not hold completely."""
    kind = column.type
    if pa.types.is_time(kind):
        return times_to_text(column)
    if pa.types.is_timestamp(kind) or pa.types.is_date32(kind):
        return database_text(column)
    return column.cast(pa.int64()) if pa.types.is_duration(kind) else column


def _leaf(value: Any) -> Any:
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, float) and not math.isfinite(value):
        return WORDS.get(value, NAN)
    return value


def _cut(items: list[Any], column: pa.Array) -> list[Any]:
    ends = column.offsets.to_pylist()
    lists = [items[start:end] for start, end in pairwise(ends)]
    return _with_nulls(lists, column)


def _with_nulls(values: list[Any], column: pa.Array) -> list[Any]:
    is_there = column.is_valid().to_pylist()
    return [each if there else None for each, there in zip(values, is_there, strict=True)]


def _build(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    mask = pa.array([each is None for each in values], pa.bool_())
    if pa.types.is_struct(kind):
        names = {field.name for field in kind}
        if any(each is not None and {*each} != names for each in values):
            raise ValueError("the text is not this kind of struct")
        members = [
            _build([each and each[field.name] for each in values], field.type) for field in kind
        ]
        return pa.StructArray.from_arrays(members, fields=list(kind), mask=mask)
    if pa.types.is_map(kind):
        pairs = [pair for each in values for pair in each or ()]
        keys = _build([key for key, _ in pairs], kind.key_type)
        items = _build([item for _, item in pairs], kind.item_type)
        return pa.MapArray.from_arrays(_offsets(values), keys, items, kind, mask=mask)
    if _is_list(kind):
        if any(not isinstance(each, list | None) for each in values):
            raise ValueError("the text is not a list")
        flat = _build([item for each in values for item in each or ()], kind.value_type)
        plain = pa.ListArray.from_arrays(_offsets(values), flat, mask=mask)
        return plain.cast(kind)
    if pa.types.is_floating(kind):
        return pa.array([float(each) if isinstance(each, str) else each for each in values], kind)
    if _is_binary(kind):
        return pa.array([None if v is None else b64decode(v, validate=True) for v in values], kind)
    if pa.types.is_duration(kind):
        return pa.array(values, pa.int64()).cast(kind)
    if any(isinstance(each, str) for each in values) and not pa.types.is_string(kind):
        return _to_types(pa.array(values, pa.string()), kind)
    return pa.array(values, kind)


def _offsets(values: Sequence[Any]) -> pa.Array:
    ends = np.cumsum([0, *(len(each or ()) for each in values)])
    return pa.array(ends.astype(np.int32))


def _is_list(kind: pa.DataType) -> bool:
    tests = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(test(kind) for test in tests)


def _is_binary(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


def _is_textual(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_nested(kind)
        or pa.types.is_dictionary(kind)
    )
