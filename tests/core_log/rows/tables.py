"""Random tables and changes, and what each value must look like in JSON: slow and obvious."""

import base64
import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from headwater.core_log.model.changes import ColumnOrValue, Operation, TableChanges
from headwater.core_log.model.table_schema import Column, TableId, TableSchema
from headwater.core_log.rows.settings import WireSettings

NOW_US = 1_795_178_096_123_456
TABLE = TableId("public", "orders")
SOURCE: dict[str, ColumnOrValue] = {"connector": "generator", "ts_us": 1_700_000_000_123_456}
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
INT64 = st.integers(-(2**63), 2**63 - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    ['"', "\\", "\x00\x1f\x7f", "a\u2028b\u2029", "😀", "\\u0041", "null", ":null", '":null', "NaN"]
)
YEAR_SECONDS = 366 * 86_400


def integer_type(kind: pa.DataType) -> st.SearchStrategy[int]:
    bits = kind.bit_width
    is_signed = pa.types.is_signed_integer(kind)
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if is_signed else (0, (1 << bits) - 1)
    return st.integers(low, high) | st.sampled_from([low, high, 0])


def decimal_values(kind: pa.DataType) -> st.SearchStrategy[Decimal]:
    bound = 10**kind.precision - 1
    return (st.integers(-bound, bound) | st.sampled_from([bound, -bound, 0, 1, -1])).map(
        lambda number: decimal_of(number, kind.scale)
    )


def time_values(kind: pa.DataType, wire: WireSettings) -> st.SearchStrategy[int]:
    per_second = PER_SECOND[kind.unit]
    numbers = st.integers(0, 86_400 * per_second - 1)
    return numbers.map(lambda number: lossless(number, per_second, wire))


def lossless(number: int, per_second: int, wire: WireSettings) -> int:
    """Only what the mode's unit can say: the others round down."""
    kept = {"connect": 10**3, "microseconds": 10**6, "adaptive_time_microseconds": 10**6}
    step = max(1, per_second // kept.get(wire.time, 10**9))
    return number // step * step


def moment_values(kind: pa.DataType, wire: WireSettings) -> st.SearchStrategy[int]:
    """Five-digit years and years before Christ, wherever the unit on the wire has room for them."""
    per_second = PER_SECOND[kind.unit]
    seconds = 9 * 10**9 if "ns" in (kind.unit,) or wire.time == "nanoseconds" else 9 * 10**12
    bound = min(seconds * per_second, 2**63 - 1)
    near = 4 * 10**9 * per_second
    numbers = st.integers(-bound, bound - 1) | st.integers(-near, near) | st.sampled_from([0, -1])
    return numbers.map(lambda number: lossless(number, per_second, wire))


def values_of(kind: pa.DataType, wire: WireSettings) -> st.SearchStrategy[Any]:
    if pa.types.is_integer(kind):
        return integer_type(kind)
    if pa.types.is_decimal(kind):
        return decimal_values(kind)
    if pa.types.is_floating(kind):
        return st.floats(width=kind.bit_width)
    if pa.types.is_timestamp(kind):
        return moment_values(kind, wire if kind.tz is None else WireSettings())
    if pa.types.is_time(kind):
        return time_values(kind, wire)
    if pa.types.is_list(kind):
        return st.lists(st.none() | values_of(kind.value_type, wire), max_size=4)
    if pa.types.is_struct(kind):
        members = {each.name: st.none() | values_of(each.type, wire) for each in kind}
        return st.fixed_dictionaries(members)
    return {
        pa.bool_(): st.booleans(),
        pa.string(): TEXTS,
        pa.binary(): st.binary(max_size=7),
        pa.date32(): st.integers(-(2**31), 2**31 - 1) | st.integers(-(10**6), 10**6),
    }[kind]


LEAVES: list[pa.DataType] = [
    pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(),
    pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(),
    pa.float32(), pa.float64(), pa.string(), pa.binary(), pa.date32(),
    pa.decimal128(5, 2), pa.decimal128(38, 10), pa.decimal128(18, 0), pa.decimal256(76, 30),
    pa.decimal128(6, -2),
    pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns"),
    *(pa.timestamp(unit) for unit in PER_SECOND),
    *(pa.timestamp(unit, "UTC") for unit in PER_SECOND),
]  # fmt: skip
EXTREMES: dict[pa.DataType, list[Any]] = {
    pa.bool_(): [True, False],
    pa.float32(): [0.0, -0.0, 1.0, 16_777_216.0, 3.4028234663852886e38, 1e-45, math.inf, math.nan],
    pa.float64(): [0.0, -0.0, 1e7, 1e15, 1e16, 1e23, 5e-324, 1.7976931348623157e308, -math.inf],
    pa.string(): ["", "plain", '"', "\\", "\t\n\r\b\f", "\x00\x1f\x7f", "a\u2028b", "😀", ":null"],
    pa.binary(): [b"", b"\0", b"\xff", b"ab", b"abc", bytes(range(256)), b"\xfb\xff\x3e\x3f"],
    pa.date32(): [0, -1, 20_777, -719_162, 2_932_896, 2_932_897, -735_160, 2_145_042_905, -(2**31)],
}


def extremes(kind: pa.DataType, wire: WireSettings) -> list[Any]:
    """The values at which something changes."""
    if kind in EXTREMES:
        return EXTREMES[kind]
    if pa.types.is_integer(kind):
        bits = kind.bit_width
        is_signed = pa.types.is_signed_integer(kind)
        return [-(1 << bits - 1), -1, 0, (1 << bits - 1) - 1] if is_signed else [0, (1 << bits) - 1]
    if pa.types.is_decimal(kind):
        bound = 10**kind.precision - 1
        numbers = (0, 1, -1, 127, -128, 128, 255, 256, bound, -bound)
        return [decimal_of(number, kind.scale) for number in numbers]
    per_second = PER_SECOND[kind.unit]
    if pa.types.is_time(kind):
        return [0, per_second, 86_399 * per_second]
    is_narrow = kind.unit == "ns" or (wire.time == "nanoseconds" and kind.tz is None)
    far = [] if is_narrow else [-62_135_596_800, 253_402_300_799, 253_402_300_800, -63_517_780_800]
    return [second * per_second for second in (0, -1, 1_795_178_096, *far)]


def decimal_of(number: int, scale: int) -> Decimal:
    return Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale))


NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=6) | st.sampled_from(
    ["id", "source", "before", "op", 'quo"te', "a.b", "a/b", ":null", "naïve", "with space", "\n"]
)


def kinds(leaves: Sequence[pa.DataType] = LEAVES) -> st.SearchStrategy[pa.DataType]:
    leaf = st.sampled_from(list(leaves))
    return st.recursive(
        leaf,
        lambda inner: (
            inner.map(pa.list_)
            | st.lists(st.tuples(NAMES, inner), min_size=1, max_size=3, unique_by=lambda it: it[0])
            .map(lambda members: pa.struct([pa.field(*member) for member in members]))
        ),
        max_leaves=3,
    )  # fmt: skip


@st.composite
def tables(draw: st.DrawFn, wire: WireSettings, rows_max: int = 4) -> TableChanges:
    """A key and up to three columns of any type, with every operation but a truncate."""
    names = draw(st.lists(NAMES.filter("key".__ne__), max_size=3, unique=True))
    columns = (
        Column("key", pa.int64(), is_nullable=False),
        *(Column(name, draw(kinds())) for name in names),
    )
    count = draw(st.integers(0, rows_max))
    rows = [pa.array(draw(st.lists(INT64, min_size=count, max_size=count)), pa.int64())]
    for column in columns[1:]:
        cells = st.lists(st.none() | values_of(column.type, wire), min_size=count, max_size=count)
        rows.append(pa.array(draw(cells), column.type, from_pandas=False))
    operations = draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    schema = TableSchema(TABLE, columns, ("key",))
    return changes(schema, rows, operations)


def changes(
    schema: TableSchema,
    columns: Sequence[pa.Array],
    operations: Sequence[int] | None = None,
    before: pa.StructArray | None = None,
    source: dict[str, ColumnOrValue] | None = None,
) -> TableChanges:
    rows = pa.RecordBatch.from_arrays(list(columns), schema=schema.arrow)
    whats = [Operation.INSERT] * rows.num_rows if operations is None else operations
    kinds_of_change = pa.array([int(what) for what in whats], pa.uint8())
    return TableChanges(
        schema, rows, kinds_of_change, SOURCE if source is None else source, before=before
    )


def table(*columns: Column, key: Sequence[str] = ()) -> TableSchema:
    return TableSchema(TABLE, columns, tuple(key))


def one_column(kind: pa.DataType, values: Sequence[Any], **column: Any) -> TableChanges:
    schema = table(Column("v", kind, **column))
    return changes(schema, [pa.array(values, kind, from_pandas=False)])


def json_value(kind: pa.DataType, value: Any, wire: WireSettings) -> Any:
    """What Debezium would write for a stored value: numbers of days, ticks and so on."""
    if value is None:
        return None
    if pa.types.is_list(kind):
        return [json_value(kind.value_type, item, wire) for item in value]
    if pa.types.is_struct(kind):
        return {each.name: json_value(each.type, value[each.name], wire) for each in kind}
    if pa.types.is_floating(kind):
        is_wide = kind == pa.float64()
        return float_value(value if is_wide else float(str(np.float32(value))))
    if kind == pa.binary():
        return binary_value(value, wire)
    if pa.types.is_temporal(kind):
        return temporal_value(kind, value, wire)
    if pa.types.is_decimal(kind) or kind == pa.uint64():
        return decimal_value(Decimal(value), getattr(kind, "scale", 0), wire)
    return value


def temporal_value(kind: pa.DataType, value: int, wire: WireSettings) -> int | str:
    if kind == pa.date32():
        return f"{date_text(value)}Z" if wire.time == "isostring" else value
    if pa.types.is_time(kind):
        return time_value(kind, value, wire)
    found: int | str = moment_value(kind, value, wire)
    return found


def float_value(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def binary_value(value: bytes, wire: WireSettings) -> str:
    if wire.binary == "hex":
        return value.hex()
    if wire.binary == "base64-url-safe":
        return base64.urlsafe_b64encode(value).decode()
    return base64.b64encode(value).decode()


def decimal_value(value: Decimal, scale: int, wire: WireSettings) -> str:
    if wire.decimal == "string":
        return format(value, "f")
    number = unscaled(value, scale)
    size = ((number if number >= 0 else ~number).bit_length() + 8) // 8
    return base64.b64encode(number.to_bytes(size, signed=True)).decode()


def unscaled(value: Decimal, scale: int) -> int:
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int), "the numbers drawn are finite"
    number: int = int("".join(map(str, digits))) * 10 ** (exponent + scale)
    return -number if sign else number


def time_value(kind: pa.DataType, value: int, wire: WireSettings) -> int | str:
    if wire.time == "isostring":
        return f"{clock_text(value, PER_SECOND[kind.unit])}Z"
    units = {"connect": "ms", "microseconds": "us", "nanoseconds": "ns"}
    unit = units.get(wire.time, "ms" if kind.unit == "s" else kind.unit)
    if wire.time == "adaptive_time_microseconds":
        unit = "us"
    return value * PER_SECOND[unit] // PER_SECOND[kind.unit]


def moment_value(kind: pa.DataType, value: int, wire: WireSettings) -> int | str:
    per_second = PER_SECOND[kind.unit]
    if kind.tz is not None or wire.time == "isostring":
        days, rest = divmod(value, 86_400 * per_second)
        clock = clock_text(rest, per_second, keep_zeros=kind.tz is not None)
        return f"{date_text(days)}T{clock}Z"
    units = {"connect": "ms", "microseconds": "us", "nanoseconds": "ns"}
    unit = units.get(wire.time, "ms" if kind.unit == "s" else kind.unit)
    return value * PER_SECOND[unit] // per_second


def clock_text(ticks: int, per_second: int, *, keep_zeros: bool = False) -> str:
    seconds, fraction = divmod(ticks, per_second)
    digits = str(fraction).zfill(len(str(per_second)) - 1) if per_second > 1 else ""
    digits = digits if keep_zeros else digits.rstrip("0")
    minutes, seconds = divmod(seconds, 60)
    return f"{minutes // 60:02}:{minutes % 60:02}:{seconds:02}" + (f".{digits}" if digits else "")


def date_text(days: int) -> str:
    """Counts from March of year 0, where leap days end years and spans of years are regular."""
    span, day = divmod(days + 719_468, 146_097)
    year = (day - day // 1_460 + day // 36_524 - day // 146_096) // 365
    day_of_year = day - (365 * year + year // 4 - year // 100)
    month = (5 * day_of_year + 2) // 153
    day_of_month = day_of_year - (153 * month + 2) // 5 + 1
    number = year + span * 400 + (month >= 10)
    sign = "-" if number < 0 else "+" if number > 9_999 else ""
    return f"{sign}{abs(number):04}-{month + 3 if month < 10 else month - 9:02}-{day_of_month:02}"
