"""Reads one JSON document against its type: exact, slow, and with a precise error."""

import json
import math
import struct
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from headwater.core_log.rows.column_types import type_text
from headwater.core_log.rows.value_classes import value_class

NOT_FINITE = ("NaN", "Infinity", "-Infinity")
"""Debezium's strings for floats that JSON has no numbers for."""
INTEGER_BITS = {pa.int8(): 8, pa.int16(): 16, pa.int32(): 32, pa.int64(): 64}


def carrier(kind: pa.DataType) -> pa.DataType:
    """Returns the JSON type of a wire type: the same, but bytes become base64 text."""
    if kind == pa.binary():
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(carrier(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(member.name, carrier(member.type)) for member in kind])
    return kind


def read_strictly(document: bytes, kind: pa.DataType) -> Any:
    """Returns a value that `pa.array` accepts for `kind`; raises `ValueError` with a message that
    contains no value.

    Objects have exactly the fields of their struct.
    """
    try:
        value = json.loads(document.decode(), object_pairs_hook=_distinct, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        duplicate = error.args[0] if isinstance(error, _Duplicate) else None
        raise ValueError(duplicate or "this is not JSON") from None
    return _check(value, kind, "")


class _Duplicate(ValueError):
    """A field that occurs twice: it is not defined which of them counts."""


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _Duplicate(f"field {twice!r} occurs twice")
    return found


def _refuse(_: str) -> None:
    raise ValueError("this is not JSON")


def _check(value: Any, kind: pa.DataType, path: str) -> Any:
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return _checked_object(value, kind, path)
    if pa.types.is_list(kind):
        if not isinstance(value, list):
            raise _misfit(path, kind, value)
        return [_check(item, kind.value_type, f"{path}[]") for item in value]
    if pa.types.is_map(kind):
        if not isinstance(value, dict):
            raise ValueError(f"{_place(path)} is not an object")
        kind = kind.item_type
        return [(name, _check(item, kind, f"{path}{{}}")) for name, item in value.items()]
    if not _FITS[kind](value):
        raise _misfit(path, kind, value)
    return float(value) if pa.types.is_floating(kind) else value


def _checked_object(value: Any, kind: pa.DataType, path: str) -> Any:
    if not isinstance(value, dict):
        raise ValueError(f"{_place(path)} is not an object")
    names = {member.name for member in kind}
    if missing := sorted(names - value.keys()):
        raise ValueError(f"fields are missing from {_place(path)}: {', '.join(missing)}")
    if extra := sorted(value.keys() - names):
        raise ValueError(f"{_place(path)} has fields that no column has: {', '.join(extra)}")
    return {
        member.name: _check(value[member.name], member.type, f"{path}.{member.name}".strip("."))
        for member in kind
    }


def _misfit(path: str, kind: pa.DataType, value: Any) -> ValueError:
    where = f"column {path}" if path else _place(path)
    told = value_class(value, kind)
    if isinstance(value, float) and pa.types.is_integer(kind):
        told = "a number with a point"
    elif (
        isinstance(value, int | float)
        and pa.types.is_floating(kind)
        and not isinstance(value, bool)
    ):
        told = "a number that is too large"
    return ValueError(f"{where} is {type_text(kind)} in JSON and the value is {told}")


def _place(path: str) -> str:
    return path or "the value"


def _is_integer(bits: int) -> Callable[[Any], bool]:
    bound = 1 << bits - 1
    return lambda value: type(value) is int and -bound <= value < bound


def _is_string(value: Any) -> bool:
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, written as an escape
        return False
    return True


def _is_double(value: Any) -> bool:
    if isinstance(value, str):
        return value in NOT_FINITE
    if type(value) is int:
        return abs(value) < 2**1024
    return type(value) is float and math.isfinite(value)


def _is_float(value: Any) -> bool:
    if not _is_double(value):
        return False
    try:
        struct.pack("<f", float(value))  # the native form would not fit
    except OverflowError:
        return False
    return True


_FITS: dict[pa.DataType, Callable[[Any], bool]] = {
    pa.bool_(): lambda value: isinstance(value, bool),
    pa.string(): _is_string,
    pa.float32(): _is_float,
    pa.float64(): _is_double,
} | {kind: _is_integer(bits) for kind, bits in INTEGER_BITS.items()}
