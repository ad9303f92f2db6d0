"""Reads JSON documents into typed columns without compiled code: exactly, and with the reason for
every row that does not fit."""

import json
import math
import struct
from collections.abc import Callable, Sequence
from types import NoneType
from typing import Any

import orjson
import pyarrow as pa

from headwater.core_log.foundation.errors import RowsRejected
from headwater.core_log.rows.arrow_buffers import list_like
from headwater.core_log.rows.rejects import UNFIT, value_class
from headwater.core_log.rows.schema_text import type_text
from headwater.core_log.rows.text.bytes import from_base64

NOT_FINITE = ("NaN", "Infinity", "-Infinity")
"""Debezium's strings for floats that JSON has no numbers for."""
INTEGER_BITS = {pa.int8(): 8, pa.int16(): 16, pa.int32(): 32, pa.int64(): 64}
EXACT = {kind: {int, NoneType} for kind in INTEGER_BITS}
EXACT |= {pa.string(): {str, NoneType}, pa.bool_(): {bool, NoneType}}
"""Types of parsed values of which Arrow makes a column or raises; others are checked one by one."""


def parse(values: pa.Array, *, has_schemas: bool = False) -> list[Any]:
    """Parses a column of documents, or the payloads of documents that contain their Connect schema;
    raises `RowsRejected`."""
    read = PayloadReader().read if has_schemas else parse_document
    documents, reasons = [], {}
    for row, text in enumerate(values.cast(pa.binary()).to_pylist()):
        try:
            documents.append(read(text))
        except ValueError as error:
            reasons[row] = str(error)
    if reasons:
        raise RowsRejected("records are not JSON", reasons=reasons)
    return documents


class PayloadReader:
    """Parses the payloads of documents. A schema that is the same as in the document before is not
    parsed again: it is the largest part of most documents."""

    def __init__(self) -> None:
        self._opening: bytes | None = None

    def read(self, text: bytes) -> Any:
        opening = self._opening
        if opening is not None and text.startswith(opening) and text.endswith(b"}"):
            try:
                return parse_document(text[len(opening) : -1])
            except ValueError:
                pass  # the whole document says why
        document = parse_document(text)
        if not isinstance(document, dict):
            return None
        self._opening = b'{"schema":%b,"payload":' % orjson.dumps(document.get("schema"))
        return document.get("payload")


def parse_document(text: bytes) -> Any:
    """Parses one document; raises `ValueError` with a message that contains no value.

    orjson keeps the last of repeated fields and rounds long integers. A document is sure to have
    neither if orjson writes it in the same way; others are parsed again.
    """
    try:
        document = orjson.loads(text)
        if orjson.dumps(document) == text:
            return document
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        pass
    try:
        return json.loads(text.decode(), object_pairs_hook=_distinct, parse_constant=_refuse)
    except _Duplicate:
        raise
    except UnicodeDecodeError:
        raise ValueError("the value is not UTF-8") from None
    except (ValueError, RecursionError):
        raise ValueError("the value is not JSON") from None


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
    raise ValueError("a constant that JSON does not have")


def parse_nested(texts: pa.Array) -> list[Any]:
    """Parses a column of lists or objects whose brackets match; raises `ValueError`."""
    values = texts.cast(pa.binary()).fill_null(b"null").to_pylist()
    found: list[Any] = parse_document(b"[%b]" % b",".join(values))
    assert len(found) == len(values), "a value ends with the bracket that it begins with"
    return found


def columns_of(documents: Sequence[Any], kind: pa.StructType) -> list[pa.Array]:
    """Returns a column per field of `kind`, as JSON carries it: bytes are still base64 text.

    Raises `RowsRejected`, which names fields and never values, unless every document is an object
    with exactly these fields.
    """
    names = {member.name for member in kind}
    try:
        if all(type(each) is dict and each.keys() == names for each in documents):
            return [column_of([each[member.name] for each in documents], member) for member in kind]
    except UNFIT:
        pass
    rows, reasons = [], {}
    for row, document in enumerate(documents):
        try:
            rows.append(_check_object(document, kind, ""))
        except ValueError as error:
            reasons[row] = str(error)
    if reasons:
        raise RowsRejected("rows do not fit their schema", reasons=reasons)
    return [
        pa.array([row[member.name] for row in rows], member.type, from_pandas=False)
        for member in kind
    ]


def column_of(values: Sequence[Any], member: pa.Field) -> pa.Array:
    """Returns a column of parsed values; raises one of `UNFIT` if a value does not fit."""
    kind = member.type
    if not set(map(type, values)) <= EXACT.get(kind, set()):
        values = [check(value, kind, member.name) for value in values]
    return pa.array(values, kind, from_pandas=False)


def carrier(kind: pa.DataType) -> pa.DataType:
    """Returns the JSON type of a wire type: the same, but bytes become base64 text."""
    if kind == pa.binary():
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(carrier(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(member.name, carrier(member.type)) for member in kind])
    return kind


def without_carrier(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Returns the column in its wire type; raises `ValueError` if text is not base64."""
    if carrier(kind) == kind:
        return column
    if kind == pa.binary():
        return from_base64(column)
    if pa.types.is_list(kind):
        return list_like(column, without_carrier(column.flatten(), kind.value_type))
    mask = column.is_null() if column.null_count else None
    members = [
        without_carrier(part, member.type)
        for part, member in zip(column.flatten(), kind, strict=True)
    ]
    return pa.StructArray.from_arrays(members, fields=list(kind), mask=mask)


def check(value: Any, kind: pa.DataType, path: str = "") -> Any:
    """Returns a value that `pa.array` accepts for `kind`; raises `ValueError`."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return _check_object(value, kind, path)
    if pa.types.is_list(kind):
        if not isinstance(value, list):
            raise _misfit(path, kind, value)
        return [check(item, kind.value_type, f"{path}[]") for item in value]
    if pa.types.is_map(kind):
        if not isinstance(value, dict):
            raise ValueError(f"{_path_name(path)} is not an object")
        kind = kind.item_type
        return [(name, check(item, kind, f"{path}{{}}")) for name, item in value.items()]
    if not _FITS[kind](value):
        raise _misfit(path, kind, value)
    return float(value) if pa.types.is_floating(kind) else value


def _check_object(value: Any, kind: pa.DataType, path: str) -> Any:
    if not isinstance(value, dict):
        raise ValueError(f"{_path_name(path)} is not an object")
    names = {member.name for member in kind}
    if missing := sorted(names - value.keys()):
        raise ValueError(f"fields are missing from {_path_name(path)}: {', '.join(missing)}")
    if extra := sorted(value.keys() - names):
        raise ValueError(f"{_path_name(path)} has fields that no column has: {', '.join(extra)}")
    return {
        member.name: check(value[member.name], member.type, f"{path}.{member.name}".strip("."))
        for member in kind
    }


def _misfit(path: str, kind: pa.DataType, value: Any) -> ValueError:
    where = f"column {path}" if path else _path_name(path)
    class_name = value_class(value, kind)
    if isinstance(value, float) and pa.types.is_integer(kind):
        class_name = "a number with a point"
    elif (
        isinstance(value, int | float)
        and pa.types.is_floating(kind)
        and not isinstance(value, bool)
    ):
        class_name = "a number that is too large"
    return ValueError(f"{where} is {type_text(kind)} in JSON and the value is {class_name}")


def _path_name(path: str) -> str:
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
