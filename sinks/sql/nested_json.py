"""Lists, structs and maps as lossless JSON, and back."""

import math
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from headwater.core_log.rows.text.datetime import database_text, times_to_text

WORDS = {math.inf: "Infinity", -math.inf: "-Infinity"}
NAN = "NaN"
"""PostgreSQL's text for numbers that JSON does not have."""
OfLeaf = Callable[[pa.StringArray, pa.DataType], pa.Array]


def nested_texts(column: pa.Array) -> pa.StringArray:
    """Returns bytes in base64, decimals and timestamps as text, maps as lists of pairs."""
    texts = [None if each is None else orjson.dumps(each).decode() for each in _plain(column)]
    return pa.array(texts, pa.string())


def read(text: pa.StringArray, kind: pa.DataType, of_leaf: OfLeaf) -> pa.Array:
    """Reads such text; `of_leaf` reads text values inside. Raises `ValueError` for other text."""
    values = [None if each is None else orjson.loads(each) for each in text.to_pylist()]
    return _build(values, kind, of_leaf)


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


def _build(values: Sequence[Any], kind: pa.DataType, of_leaf: OfLeaf) -> pa.Array:
    mask = pa.array([each is None for each in values], pa.bool_())
    if pa.types.is_struct(kind):
        names = {field.name for field in kind}
        if any(each is not None and {*each} != names for each in values):
            raise ValueError("the text is not this kind of struct")
        members = [
            _build([each and each[field.name] for each in values], field.type, of_leaf)
            for field in kind
        ]
        return pa.StructArray.from_arrays(members, fields=list(kind), mask=mask)
    if pa.types.is_map(kind):
        pairs = [pair for each in values for pair in each or ()]
        keys = _build([key for key, _ in pairs], kind.key_type, of_leaf)
        items = _build([item for _, item in pairs], kind.item_type, of_leaf)
        return pa.MapArray.from_arrays(_offsets(values), keys, items, kind, mask=mask)
    if _is_list(kind):
        if any(not isinstance(each, list | None) for each in values):
            raise ValueError("the text is not a list")
        flat = _build([item for each in values for item in each or ()], kind.value_type, of_leaf)
        plain = pa.ListArray.from_arrays(_offsets(values), flat, mask=mask)
        return plain.cast(kind)
    if pa.types.is_floating(kind):
        return pa.array([float(each) if isinstance(each, str) else each for each in values], kind)
    if _is_binary(kind):
        return pa.array([None if v is None else b64decode(v, validate=True) for v in values], kind)
    if pa.types.is_duration(kind):
        return pa.array(values, pa.int64()).cast(kind)
    if any(isinstance(each, str) for each in values) and not pa.types.is_string(kind):
        return of_leaf(pa.array(values, pa.string()), kind)
    return pa.array(values, kind)


def _offsets(values: Sequence[Any]) -> pa.Array:
    ends = np.cumsum([0, *(len(each or ()) for each in values)])
    return pa.array(ends.astype(np.int32))


def _is_list(kind: pa.DataType) -> bool:
    tests = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(test(kind) for test in tests)


def _is_binary(kind: pa.DataType) -> bool:
    tests = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary)
    return any(test(kind) for test in tests)
