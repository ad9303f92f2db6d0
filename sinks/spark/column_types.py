"""The lake type of each column of the log, and lossless conversion of values to it."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.rows.text.datetime import from_database_text, text_to_times
from headwater.sinks.type_conversion import cast

DIGITS_MAX = 38
UNSIGNED = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64()}
MOMENT = pa.timestamp("us", "UTC")


def lake_type(kind: pa.DataType, *, is_iceberg: bool = False) -> pa.DataType:
    """Returns a type of the format that holds every value of `kind`.

    Text is used for types that no format can hold: times with nanoseconds, decimals of more than 38
    digits.
    """
    if kind in UNSIGNED or kind in (pa.int8(), pa.int16()):
        wider = UNSIGNED.get(kind, kind)
        return pa.int32() if is_iceberg and wider in (pa.int8(), pa.int16()) else wider
    if kind == pa.uint64():
        return pa.decimal128(20, 0)
    if kind == pa.float16():
        return pa.float32()
    if pa.types.is_decimal(kind):
        digits = kind.precision - min(kind.scale, 0)
        fits = digits <= DIGITS_MAX
        return pa.decimal128(digits, max(kind.scale, 0)) if fits else pa.string()
    if pa.types.is_timestamp(kind):
        return pa.string() if kind.unit == "ns" else pa.timestamp("us", kind.tz and "UTC")
    if pa.types.is_time(kind):
        return pa.time64("us") if is_iceberg and kind.unit != "ns" else pa.string()
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_dictionary(kind):
        return lake_type(kind.value_type, is_iceberg=is_iceberg)
    return _to_nested(kind, is_iceberg=is_iceberg)


def _to_nested(kind: pa.DataType, *, is_iceberg: bool) -> pa.DataType:
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(pa.field("element", lake_type(kind.value_type, is_iceberg=is_iceberg)))
    if pa.types.is_struct(kind):
        return pa.struct(
            [pa.field(each.name, lake_type(each.type, is_iceberg=is_iceberg)) for each in kind]
        )
    if pa.types.is_map(kind):
        key, value = (lake_type(each, is_iceberg=is_iceberg) for each in _map_types(kind))
        return pa.map_(key, value)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind):
        return pa.string()
    return kind


def _map_types(kind: Any) -> tuple[pa.DataType, pa.DataType]:
    return kind.key_type, kind.item_type


SPARK_TYPES = {
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.date32(): "date",
    pa.timestamp("us", "UTC"): "timestamp",
    pa.timestamp("us"): "timestamp_ntz",
}


def spark_type(kind: pa.DataType) -> str:
    """Returns the name of a lake type in Spark SQL."""
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_list(kind):
        return f"array<{spark_type(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(f'{each.name}: {spark_type(each.type)}' for each in kind)}>"
    if pa.types.is_map(kind):
        return f"map<{', '.join(map(spark_type, _map_types(kind)))}>"
    return SPARK_TYPES.get(kind, str(kind))


def put(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Returns the same values as `kind`; raises `pyarrow.ArrowInvalid` if one does not fit."""
    if column.type == kind:
        return column
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), kind)
    if pa.types.is_struct(column.type) and pa.types.is_struct(kind):
        return _put_struct(column, kind)
    if pa.types.is_list(column.type) and pa.types.is_list(kind):
        return _put_list(column, kind)
    return cast(column, kind)


def take_back(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Returns the original values, of type `kind`: the inverse of `put`."""
    if column.type == kind:
        return column
    if pa.types.is_string(column.type) and pa.types.is_timestamp(kind):
        return from_database_text(column, pa.timestamp(kind.unit)).cast(kind)
    if pa.types.is_string(column.type) and pa.types.is_time(kind):
        return text_to_times(column, kind, may_exceed_a_day=True)
    if pa.types.is_struct(column.type) and pa.types.is_struct(kind):
        children = [
            take_back(each, field.type) for each, field in zip(column.flatten(), kind, strict=True)
        ]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=column.is_null())
    if pa.types.is_list(column.type) and pa.types.is_list(kind):
        return _with_items(column, take_back(column.flatten(), kind.value_type), kind)
    return column.cast(kind, safe=True)


def _put_struct(column: pa.Array, kind: pa.DataType) -> pa.Array:
    held = {field.name: at for at, field in enumerate(column.type)}
    parts = column.flatten()
    children = [
        put(parts[held[field.name]], field.type)
        if field.name in held
        else pa.nulls(len(column), field.type)
        for field in kind
    ]
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=column.is_null())


def _put_list(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return _with_items(column, put(column.flatten(), kind.value_type), kind)


def _with_items(column: pa.Array, items: pa.Array, kind: pa.DataType) -> pa.Array:
    """Returns lists of the same lengths with other items; null lists have no items."""
    lengths = pc.fill_null(pc.list_value_length(column), 0)
    ends = pc.cumulative_sum(lengths).cast(pa.int32())
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    found = pa.ListArray.from_arrays(offsets, items, mask=column.is_null())
    return found.cast(kind)
