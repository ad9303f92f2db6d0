"""What a driver hands over, as the values that were once written: the way back of rendering."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.foundation.errors import SinkRejected
from headwater.sinks import extreme_datetimes, extreme_times
from headwater.sinks.sql import nested_json

TRUE = pa.array(["t", "1", "true"])
ZONE = r"(Z|[+]00(:?00)?)$"


def column_of(values: Any, kind: pa.DataType, *, name: str, table: str) -> pa.Array:
    """Texts, or Python's own values where a driver has them, as values of `kind`."""
    try:
        return _to_types(values if isinstance(values, pa.Array) else _plain(values, kind), kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, ValueError, TypeError):
        raise SinkRejected(
            "a column of the target holds values that are none of its type",
            table=table,
            column=name,
            type=str(kind),
            hint="somebody else has written to the table: headwater rebuild PIPELINE/TABLE --swap"
            " makes it anew",
        ) from None


def _plain(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Numbers and bytes as they are, everything else as its text."""
    if all(value is None or type(value) is bytes for value in values):
        is_binary = _is_binary(kind)
        return pa.array(values if is_binary else [_text(value) for value in values])
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    if is_number and not any(isinstance(value, str) for value in values):
        return pa.array(values, pa.float64() if pa.types.is_floating(kind) else None)
    return pa.array([_text(value) for value in values], pa.string())


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode()
    return format(value, "f") if hasattr(value, "as_tuple") else str(value)


def _to_types(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if values.type == kind:
        return values
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), kind)
    if not pa.types.is_string(values.type):
        return values.cast(kind)
    if pa.types.is_boolean(kind):
        return pc.if_else(values.is_valid(), pc.is_in(pc.utf8_lower(values), value_set=TRUE), None)
    if _is_binary(kind):
        return _unhex(values).cast(kind)
    if pa.types.is_timestamp(kind) or pa.types.is_date32(kind):
        return _moments(values, kind)
    if pa.types.is_time(kind):  # there is no cast of its own
        return _clocks(values, kind)
    if pa.types.is_nested(kind):
        return nested_json.read(values, kind, _to_types)
    if pa.types.is_duration(kind):
        return values.cast(pa.int64()).cast(kind)
    return values.cast(kind)


def _clocks(texts: pa.StringArray, kind: pa.DataType) -> pa.Array:
    unit = "ns" if kind == pa.time64("ns") else "us"
    dated = pc.binary_join_element_wise("1970-01-01", texts, " ")
    try:
        return dated.cast(pa.timestamp(unit)).cast(pa.time64(unit)).cast(kind)
    except pa.ArrowInvalid:
        return extreme_times.read(texts, kind)


def _moments(texts: pa.StringArray, kind: pa.DataType) -> pa.Array:
    bare = pa.timestamp(kind.unit) if pa.types.is_timestamp(kind) else kind
    try:
        return pc.replace_substring_regex(texts, ZONE, "").cast(bare).cast(kind)
    except pa.ArrowInvalid:
        return extreme_datetimes.read(texts, bare).cast(kind)


def _unhex(texts: pa.StringArray) -> pa.BinaryArray:
    digits = [None if each is None else each.removeprefix("\\x") for each in texts.to_pylist()]
    return pa.array([None if each is None else bytes.fromhex(each) for each in digits], pa.binary())


def _is_binary(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
    )
