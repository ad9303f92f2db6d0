"""Columns of values as row events have them; a date that no calendar has is null."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.connectors.mysql.binlog import table_map as wire
from headwater.connectors.mysql.binlog.byte_reader import (
    DATETIME2_BIAS,
    DIGITS_BYTES,
    GROUP,
    TIME2_BIAS,
    decimal_width,
)
from headwater.connectors.mysql.binlog.table_map import WireColumn
from headwater.core_log.foundation.array_types import BoolArray, Int64Array, UInt8Array
from headwater.core_log.foundation.errors import DecodeError

INTEGER_BYTES = {wire.TINY: 1, wire.SHORT: 2, wire.INT24: 3, wire.LONG: 4, wire.LONGLONG: 8}
FAST_DIGITS_MAX = 18
"""Digits of a decimal that 64 bits hold."""
DAY_US = 86_400_000_000
MONTH_DAYS = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31, 0, 0, 0])
EPOCH_DAY = 719_468
"""Days from 1 March of the year 0 to 1 January 1970."""


class FixedCells(NamedTuple):
    """Values of one width in a buffer, which begin anywhere."""

    buffer: UInt8Array
    begins: Int64Array
    is_null: BoolArray | None

    def numbers(self, width: int) -> Int64Array:
        """Returns unsigned numbers of at most seven bytes, the lowest first."""
        return np.asarray(self._words("<i8", 0) & ((1 << 8 * width) - 1), np.int64)

    def big_numbers(self, width: int, *, at: int = 0) -> Int64Array:
        """The same, the highest byte first."""
        if not width:
            return np.zeros(len(self.begins), np.int64)
        words = self._words(">u8", at).astype(np.uint64)
        return np.asarray(words >> np.uint64(64 - 8 * width), np.int64)

    def words(self) -> Int64Array:
        return self._words("<i8", 0)

    def array(self, kind: str) -> npt.NDArray[Any]:
        return self._words(kind, 0)

    def _words(self, kind: str, at: int) -> npt.NDArray[Any]:
        size = np.dtype(kind).itemsize
        every = np.ndarray((len(self.buffer) - size + 1,), kind, self.buffer, 0, (1,))
        return every[self.begins + at]

    def column(
        self, kind: pa.DataType, values: npt.NDArray[Any], is_real: BoolArray | None = None
    ) -> pa.Array:
        """Returns the values as a column that is null where they are not real."""
        is_null = self.is_null
        if is_real is not None and not is_real.all():
            is_null = ~is_real if is_null is None else is_null | ~is_real
        bits = None if is_null is None else pa.py_buffer(np.packbits(~is_null, bitorder="little"))
        data = pa.py_buffer(np.ascontiguousarray(values))
        return pa.Array.from_buffers(kind, len(self.begins), [bits, data])


ReadFixed = Callable[[FixedCells], pa.Array]


def width_of(column: WireColumn) -> int:
    """Returns the bytes of a value; negative for a length of so many bytes before it."""
    kind, meta = column.real_type, column.meta
    if kind in WIDTHS:
        return WIDTHS[kind](meta)
    if kind == wire.STRING:
        return -2 if column.length > 255 else -1
    raise DecodeError(
        "a column of the binary log has a type that is not supported",
        type=kind,
        column=column.name,
        hint="ALTER TABLE ... FORCE converts columns of the old temporal types",
    )


def fixed_reader(column: WireColumn) -> ReadFixed | None:
    """Returns what reads all values of a column at once; None if they stay bytes."""
    kind, meta = column.real_type, column.meta
    if kind in INTEGER_BYTES:
        return _integers(INTEGER_BYTES[kind], is_signed=not column.is_unsigned)
    if kind == wire.NEWDECIMAL:
        return _decimals(meta >> 8, meta & 0xFF)
    if kind in (wire.ENUM, wire.SET):
        return _integers(meta & 0xFF, is_signed=False)
    if kind in TIMES:
        return TIMES[kind](meta)
    return PLAIN.get(kind)


def _integers(width: int, *, is_signed: bool) -> ReadFixed:
    sign = "i" if is_signed else "u"
    if width == 8:
        kind = pa.int64() if is_signed else pa.uint64()
        return lambda cells: cells.column(kind, cells.array(f"<{sign}8"))
    if width in (1, 2, 4):
        small = {1: pa.int8(), 2: pa.int16(), 4: pa.int32()} if is_signed else {
            1: pa.uint8(), 2: pa.uint16(), 4: pa.uint32()}  # fmt: skip
        return lambda cells: cells.column(small[width], cells.array(f"<{sign}{width}"))

    def read(cells: FixedCells) -> pa.Array:
        numbers = cells.numbers(width)
        if is_signed:
            top = 1 << 8 * width - 1
            numbers = (numbers ^ top) - top
        return cells.column(pa.int64(), numbers)

    return read


def _floats(cells: FixedCells) -> pa.Array:
    return cells.column(pa.float32(), cells.array("<f4"))


def _doubles(cells: FixedCells) -> pa.Array:
    return cells.column(pa.float64(), cells.array("<f8"))


def _years(cells: FixedCells) -> pa.Array:
    numbers = cells.numbers(1)
    return cells.column(pa.int64(), numbers + (numbers > 0) * 1900)


def _dates(cells: FixedCells) -> pa.Array:
    packed = cells.numbers(3)
    days, is_real = days_of(packed >> 9, packed >> 5 & 15, packed & 31)
    return cells.column(pa.date32(), days.astype(np.int32), is_real)


def _fraction_bytes(digits: int) -> int:
    if digits > 6:
        raise DecodeError("a time of the binary log has more than six fractional digits")
    return (digits + 1) // 2


def _times(digits: int) -> ReadFixed:
    """A negative time is the negative of the whole, with its fraction."""
    more = _fraction_bytes(digits)
    bias, scale, bits = TIME2_BIAS << (8 * more), 10 ** (6 - 2 * more), 8 * more

    def read(cells: FixedCells) -> pa.Array:
        packed = cells.big_numbers(3 + more) - bias
        size = np.abs(packed)
        fraction, whole = size & ((1 << bits) - 1), size >> bits
        seconds = ((whole >> 12 & 0x3FF) * 60 + (whole >> 6 & 63)) * 60 + (whole & 63)
        found = seconds * 1_000_000 + fraction * scale
        return cells.column(pa.int64(), np.where(packed < 0, -found, found))

    return read


def _datetimes(digits: int) -> ReadFixed:
    more = _fraction_bytes(digits)
    scale = 10 ** (6 - 2 * more)

    def read(cells: FixedCells) -> pa.Array:
        packed = cells.big_numbers(5) - DATETIME2_BIAS
        micro = cells.big_numbers(more, at=5) * scale
        date, time = packed >> 17, packed & 0x1FFFF
        year, month = np.divmod(date >> 5, 13)
        days, is_real = days_of(year, month, date & 31)
        moments = moments_of(days, time >> 12, time >> 6 & 63, time & 63, micro)
        return cells.column(pa.int64(), moments, is_real)

    return read


def _timestamps(digits: int) -> ReadFixed:
    more = _fraction_bytes(digits)
    scale = 10 ** (6 - 2 * more)

    def read(cells: FixedCells) -> pa.Array:
        moments = cells.big_numbers(4) * 1_000_000 + cells.big_numbers(more, at=4) * scale
        return cells.column(pa.int64(), moments, moments != 0)

    return read


def _decimals(precision: int, scale: int) -> ReadFixed | None:
    """Returns None for decimals of more digits, which are read one by one."""
    if not 0 < precision <= FAST_DIGITS_MAX:
        return None
    parts = [*_digit_groups(precision - scale, leads=True), *_digit_groups(scale, leads=False)]
    kind = pa.decimal128(max(precision, 1), scale)

    def read(cells: FixedCells) -> pa.Array:
        is_negative = cells.big_numbers(1) < 0x80
        total, at = np.zeros(len(is_negative), np.int64), 0
        for size, digits in parts:
            number = cells.big_numbers(size, at=at)
            if not at:
                number = number ^ (1 << 8 * size - 1)
            number = np.where(is_negative, number ^ ((1 << 8 * size) - 1), number)
            total = total * 10**digits + number
            at += size
        values = np.zeros((len(total), 2), np.int64)
        values[:, 0] = np.where(is_negative, -total, total)
        values[:, 1] = values[:, 0] >> 63
        return cells.column(kind, values)

    return read


def _digit_groups(digits: int, *, leads: bool) -> list[tuple[int, int]]:
    """Returns bytes and digits of the groups of a part of a decimal."""
    groups, rest = divmod(digits, GROUP)
    odd = [(DIGITS_BYTES[rest], rest)] if rest else []
    return [*odd, *[(4, GROUP)] * groups] if leads else [*[(4, GROUP)] * groups, *odd]


PLAIN: Mapping[int, ReadFixed] = {
    wire.FLOAT: _floats,
    wire.DOUBLE: _doubles,
    wire.YEAR: _years,
    wire.DATE: _dates,
    wire.NEWDATE: _dates,
}
TIMES: Mapping[int, Callable[[int], ReadFixed]] = {
    wire.TIME2: _times,
    wire.DATETIME2: _datetimes,
    wire.TIMESTAMP2: _timestamps,
}


def _counted(width: int) -> int:
    if not 1 <= width <= 4:
        raise DecodeError("a column of the binary log has a length of unknown size", bytes=width)
    return -width


def _integer_width(width: int) -> int:
    if not 1 <= width <= 8:
        raise DecodeError("a column of the binary log has a number of unknown size", bytes=width)
    return width


WIDTHS: Mapping[int, Callable[[int], int]] = {
    **{kind: lambda _, width=width: width for kind, width in INTEGER_BYTES.items()},  # type: ignore[misc]
    wire.FLOAT: lambda _: 4,
    wire.DOUBLE: lambda _: 8,
    wire.YEAR: lambda _: 1,
    wire.DATE: lambda _: 3,
    wire.NEWDATE: lambda _: 3,
    wire.NULL: lambda _: 0,
    wire.NEWDECIMAL: lambda meta: decimal_width(meta >> 8, meta & 0xFF),
    wire.TIME2: lambda digits: 3 + _fraction_bytes(digits),
    wire.DATETIME2: lambda digits: 5 + _fraction_bytes(digits),
    wire.TIMESTAMP2: lambda digits: 4 + _fraction_bytes(digits),
    wire.BIT: lambda meta: (meta >> 8) + (1 if meta & 0xFF else 0),
    wire.ENUM: lambda meta: _integer_width(meta & 0xFF),
    wire.SET: lambda meta: _integer_width(meta & 0xFF),
    wire.VARCHAR: lambda meta: -2 if meta > 255 else -1,
    wire.VAR_STRING: lambda meta: -2 if meta > 255 else -1,
    wire.VARCHAR_COMPRESSED: lambda meta: -2 if meta > 255 else -1,
    **dict.fromkeys(
        (wire.BLOB, wire.JSON, wire.GEOMETRY, wire.VECTOR, wire.BLOB_COMPRESSED), _counted
    ),
}
"""Bytes of a value by the column's metadata."""


def days_of(year: Int64Array, month: Int64Array, day: Int64Array) -> tuple[Int64Array, BoolArray]:
    """Returns the numbers of days, and which of them a calendar has: MySQL can store others. The
    months are below 16."""
    is_leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    last = MONTH_DAYS[month] + ((month == 2) & is_leap)
    is_real = (year > 0) & (day > 0) & (day <= last)
    shifted = year - (month <= 2)
    era = shifted // 400
    in_era = shifted - era * 400
    in_year = (153 * (month + np.where(month > 2, -3, 9)) + 2) // 5 + day - 1
    days = era * 146_097 + in_era * 365 + in_era // 4 - in_era // 100 + in_year - EPOCH_DAY
    return days, is_real


def moments_of(
    days: Int64Array, hour: Int64Array, minute: Int64Array, second: Int64Array, micro: Int64Array
) -> Int64Array:
    """Returns microseconds since 1970."""
    return days * DAY_US + ((hour * 60 + minute) * 60 + second) * 1_000_000 + micro
