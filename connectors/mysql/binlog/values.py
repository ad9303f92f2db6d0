"""Readers of the values of row events, one per type; a date that no calendar has is None."""

import struct
import zlib
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from headwater.connectors.mysql.binlog import table_map as wire
from headwater.connectors.mysql.binlog.calendar import day_of, moment_of
from headwater.connectors.mysql.binlog.table_map import WireColumn
from headwater.core_log.foundation.errors import DecodeError

ReadValue: TypeAlias = Callable[[bytes, int], tuple[Any, int]]

DIGITS_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
"""Bytes of that many digits of a decimal."""
GROUP = 9
TIME2_BIAS, DATETIME2_BIAS = 0x800000, 0x8000000000
DECOMPRESSED_MAX = 1 << 30
"""Limit of one decompressed value: the servers allow a packet of one gibibyte."""
_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")


def reader_of(column: WireColumn) -> ReadValue:
    kind, meta = column.real_type, column.meta
    if kind in INTEGER_BYTES:
        return _integer(INTEGER_BYTES[kind], is_signed=not column.is_unsigned)
    if kind in PLAIN:
        return PLAIN[kind]
    if kind in SIZED:
        return SIZED[kind](meta)
    if kind == wire.STRING:
        return _counted(2 if column.length > 255 else 1)
    raise DecodeError(
        "a column of the binary log has a type that is not supported",
        type=kind,
        column=column.name,
        hint="ALTER TABLE ... FORCE converts columns of the old temporal types",
    )


INTEGER_BYTES = {wire.TINY: 1, wire.SHORT: 2, wire.INT24: 3, wire.LONG: 4, wire.LONGLONG: 8}


def _integer(width: int, *, is_signed: bool) -> ReadValue:
    from_bytes = int.from_bytes

    def read(data: bytes, pos: int) -> tuple[Any, int]:
        end = pos + width
        return from_bytes(data[pos:end], "little", signed=is_signed), end

    return read


def _float(data: bytes, pos: int) -> tuple[Any, int]:
    return _FLOAT.unpack_from(data, pos)[0], pos + 4


def _double(data: bytes, pos: int) -> tuple[Any, int]:
    return _DOUBLE.unpack_from(data, pos)[0], pos + 8


def _year(data: bytes, pos: int) -> tuple[Any, int]:
    return data[pos] and data[pos] + 1900, pos + 1


def _date(data: bytes, pos: int) -> tuple[Any, int]:
    packed = int.from_bytes(data[pos : pos + 3], "little")
    return day_of(packed >> 9, packed >> 5 & 15, packed & 31), pos + 3


def _fraction_bytes(digits: int) -> int:
    if digits > 6:
        raise DecodeError("a time of the binary log has more than six fractional digits")
    return (digits + 1) // 2


def _time2(digits: int) -> ReadValue:
    more = _fraction_bytes(digits)
    width, bias, scale = 3 + more, TIME2_BIAS << (8 * more), 10 ** (6 - 2 * more)

    def read(data: bytes, pos: int) -> tuple[Any, int]:
        packed = int.from_bytes(data[pos : pos + width], "big") - bias
        return packed_time_us(packed, fraction_bits=8 * more, scale=scale), pos + width

    return read


def packed_time_us(packed: int, *, fraction_bits: int, scale: int) -> int:
    """Returns microseconds; a negative time is the negative of the whole, with its fraction."""
    size = abs(packed)
    fraction, whole = size & ((1 << fraction_bits) - 1), size >> fraction_bits
    seconds = ((whole >> 12 & 0x3FF) * 60 + (whole >> 6 & 63)) * 60 + (whole & 63)
    found = seconds * 1_000_000 + fraction * scale
    return -found if packed < 0 else found


def _datetime2(digits: int) -> ReadValue:
    more = _fraction_bytes(digits)
    width, scale = 5 + more, 10 ** (6 - 2 * more)

    def read(data: bytes, pos: int) -> tuple[Any, int]:
        packed = int.from_bytes(data[pos : pos + 5], "big") - DATETIME2_BIAS
        micro = int.from_bytes(data[pos + 5 : pos + width], "big") * scale
        return packed_moment(packed, micro), pos + width

    return read


def packed_moment(packed: int, micro: int) -> int | None:
    date, time = packed >> 17, packed & 0x1FFFF
    year, month = divmod(date >> 5, 13)
    return moment_of(
        day_of(year, month, date & 31),
        hour=time >> 12,
        minute=time >> 6 & 63,
        second=time & 63,
        micro=micro,
    )


def _timestamp2(digits: int) -> ReadValue:
    more = _fraction_bytes(digits)
    width, scale = 4 + more, 10 ** (6 - 2 * more)

    def read(data: bytes, pos: int) -> tuple[Any, int]:
        seconds = int.from_bytes(data[pos : pos + 4], "big")
        micro = int.from_bytes(data[pos + 4 : pos + width], "big") * scale
        return (seconds * 1_000_000 + micro if seconds or micro else None), pos + width

    return read


def _fixed(width: int) -> ReadValue:
    return lambda data, pos: (data[pos : pos + width], pos + width)


def _counted(width: int) -> ReadValue:
    if not 1 <= width <= 4:
        raise DecodeError("a column of the binary log has a length of unknown size", bytes=width)
    from_bytes = int.from_bytes

    def read(data: bytes, pos: int) -> tuple[Any, int]:
        start = pos + width
        end = start + from_bytes(data[pos:start], "little")
        return data[start:end], end

    return read


def _decompressed(counted: ReadValue) -> ReadValue:
    def read(data: bytes, pos: int) -> tuple[Any, int]:
        value, end = counted(data, pos)
        if end > len(data):
            return b"", end
        return decompress_column(value), end

    return read


def decompress_column(value: bytes) -> bytes:
    """Returns the text of a COMPRESSED column of MariaDB."""
    if not value:
        return value
    if not value[0]:
        return value[1:]
    width = value[0] & 7
    size = int.from_bytes(value[1 : 1 + width], "big")
    return inflate(value[1 + width :], size, bits=-15 if value[0] & 8 else 15)


def inflate(data: bytes, size: int, *, bits: int = 15) -> bytes:
    """Returns exactly `size` bytes; a hostile stream takes no more memory than it declares."""
    if size > DECOMPRESSED_MAX:
        raise DecodeError("a compressed value of the binary log is too large", bytes=size)
    try:
        found = zlib.decompressobj(bits).decompress(data, size + 1)
    except zlib.error:
        raise DecodeError("a compressed value of the binary log cannot be opened") from None
    if len(found) != size:
        raise DecodeError(
            "a compressed value of the binary log has another size than it says",
            bytes=len(found),
            said=size,
        )
    return found


def decimal_reader(precision: int, scale: int) -> ReadValue:
    """Returns the reader of a DECIMAL, whose value is its text with all digits of the scale."""
    if not 0 <= scale <= precision <= 65 + 16:
        raise DecodeError("a decimal of the binary log has an impossible size")
    whole_groups, whole_rest = divmod(precision - scale, GROUP)
    part_groups, part_rest = divmod(scale, GROUP)
    sizes = [(DIGITS_BYTES[whole_rest], whole_rest)] if whole_rest else []
    sizes += [(4, GROUP)] * whole_groups
    whole_count = len(sizes)
    sizes += [(4, GROUP)] * part_groups
    sizes += [(DIGITS_BYTES[part_rest], part_rest)] if part_rest else []
    width = sum(size for size, _ in sizes)

    def read(data: bytes, pos: int) -> tuple[Any, int]:
        end = pos + width
        raw = bytearray(data[pos:end])
        if not raw:
            return "0", end
        is_negative = raw[0] < 0x80
        raw[0] ^= 0x80
        if is_negative:
            raw = bytearray(byte ^ 0xFF for byte in raw)
        at, parts = 0, []
        for size, digits in sizes:
            parts.append(str(int.from_bytes(raw[at : at + size], "big")).zfill(digits))
            at += size
        whole = "".join(parts[:whole_count]).lstrip("0") or "0"
        text = f"{whole}.{''.join(parts[whole_count:])}" if scale else whole
        return (f"-{text}" if is_negative else text), end

    return read


def _skip(data: bytes, pos: int) -> tuple[Any, int]:
    return None, pos


PLAIN: Mapping[int, ReadValue] = {
    wire.FLOAT: _float,
    wire.DOUBLE: _double,
    wire.YEAR: _year,
    wire.DATE: _date,
    wire.NEWDATE: _date,
    wire.NULL: _skip,
}
SIZED: Mapping[int, Callable[[int], ReadValue]] = {
    wire.NEWDECIMAL: lambda meta: decimal_reader(meta >> 8, meta & 0xFF),
    wire.TIME2: _time2,
    wire.DATETIME2: _datetime2,
    wire.TIMESTAMP2: _timestamp2,
    wire.BIT: lambda meta: _fixed((meta >> 8) + (1 if meta & 0xFF else 0)),
    wire.ENUM: lambda meta: _integer(meta & 0xFF, is_signed=False),
    wire.SET: lambda meta: _integer(meta & 0xFF, is_signed=False),
    wire.VARCHAR: lambda meta: _counted(2 if meta > 255 else 1),
    wire.VAR_STRING: lambda meta: _counted(2 if meta > 255 else 1),
    wire.BLOB: _counted,
    wire.JSON: _counted,
    wire.GEOMETRY: _counted,
    wire.VECTOR: _counted,
    wire.VARCHAR_COMPRESSED: lambda meta: _decompressed(_counted(2 if meta > 255 else 1)),
    wire.BLOB_COMPRESSED: lambda meta: _decompressed(_counted(meta)),
}
"""Types whose reader depends on the column's metadata."""
