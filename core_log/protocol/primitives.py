"""Kafka's wire types: writes each to a buffer and reads it from a view, with checked lengths."""

from collections.abc import Callable, Sequence
from struct import Struct, pack, unpack_from
from typing import Any, NamedTuple
from uuid import UUID

from headwater.core_log.foundation.errors import DecodeError

Write = Callable[[bytearray, Any], None]
Read = Callable[[memoryview, int], tuple[Any, int]]
"""Takes the bytes and a position; returns the value and the position after it."""

ZERO_UUID = UUID(int=0)
STRING_BYTES_MAX = 0x7FFF

_VARINT_MAX = 0x7FFFFFFF
_INT16, _INT32 = Struct(">h"), Struct(">i")


class Codec(NamedTuple):
    """The read and write functions of a type, and the fewest bytes of a value."""

    write: Write
    read: Read
    bytes_min: int


def write_varint(out: bytearray, value: int) -> None:
    """Writes an unsigned number, seven bits per byte, lowest first."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def read_varint(data: memoryview, position: int) -> tuple[int, int]:
    value, shift = data[position], 7
    position += 1
    if value < 0x80:
        return value, position
    value &= 0x7F
    while shift < 35:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80 and value <= _VARINT_MAX:
            return value, position
        shift += 7
    raise DecodeError("varint is larger than 31 bits", position=position)


def varint_bytes(value: int) -> bytes:
    out = bytearray()
    write_varint(out, value)
    return bytes(out)


class Length(NamedTuple):
    """The encoding of a length; minus one is null."""

    write: Callable[[bytearray, int], None]
    read: Callable[[memoryview, int], tuple[int, int]]
    bytes_min: int


def _write_int16(out: bytearray, length: int) -> None:
    out += _INT16.pack(length)


def _read_int16(data: memoryview, position: int) -> tuple[int, int]:
    return _INT16.unpack_from(data, position)[0], position + 2


def _write_int32(out: bytearray, length: int) -> None:
    out += _INT32.pack(length)


def _read_int32(data: memoryview, position: int) -> tuple[int, int]:
    return _INT32.unpack_from(data, position)[0], position + 4


def _write_compact(out: bytearray, length: int) -> None:
    write_varint(out, length + 1)


def _read_compact(data: memoryview, position: int) -> tuple[int, int]:
    length, position = read_varint(data, position)
    return length - 1, position


SHORT = Length(_write_int16, _read_int16, bytes_min=2)
LONG = Length(_write_int32, _read_int32, bytes_min=4)
COMPACT = Length(_write_compact, _read_compact, bytes_min=1)


def end_of(data: memoryview, position: int, length: int) -> int:
    """Returns where `length` bytes from `position` end; raises unless they are all there."""
    end = position + length
    if length < 0 or end > len(data):
        raise DecodeError("length does not fit", length=length, left=len(data) - position)
    return end


def number_codec(code: str) -> Codec:
    """Returns the codec of one number; `code` is the struct module's."""
    packed = Struct(f">{code}")

    def write(out: bytearray, value: float) -> None:
        out += packed.pack(value)

    def read(data: memoryview, position: int) -> tuple[Any, int]:
        return packed.unpack_from(data, position)[0], position + packed.size

    return Codec(write, read, packed.size)


def run_codec(codes: str) -> Codec:
    """Returns the codec of several numbers in a row, as a tuple."""
    packed = Struct(f">{codes}")

    def write(out: bytearray, values: tuple[float, ...]) -> None:
        out += packed.pack(*values)

    def read(data: memoryview, position: int) -> tuple[tuple[Any, ...], int]:
        return packed.unpack_from(data, position), position + packed.size

    return Codec(write, read, packed.size)


def numbers_codec(code: str, length: Length, *, nullable: bool) -> Codec:
    """Returns the codec of an array of numbers, packed at once."""
    size = Struct(f">{code}").size

    def write(out: bytearray, values: Sequence[float]) -> None:
        length.write(out, len(values))
        out += pack(f">{len(values)}{code}", *values)

    def read(data: memoryview, position: int) -> tuple[tuple[Any, ...] | None, int]:
        count, position = length.read(data, position)
        if count == -1 and nullable:
            return None, position
        end = end_of(data, position, count * size)
        return unpack_from(f">{count}{code}", data, position), end

    return Codec(or_null(write, length) if nullable else write, read, length.bytes_min)


def array_codec(element: Codec, length: Length, *, nullable: bool) -> Codec:
    write_element, read_element, element_bytes_min = element

    def write(out: bytearray, values: Sequence[Any]) -> None:
        length.write(out, len(values))
        for value in values:
            write_element(out, value)

    def read(data: memoryview, position: int) -> tuple[tuple[Any, ...] | None, int]:
        count, position = length.read(data, position)
        if count == -1 and nullable:
            return None, position
        end_of(data, position, count * element_bytes_min)
        values = []
        for _ in range(count):
            value, position = read_element(data, position)
            values.append(value)
        return tuple(values), position

    return Codec(or_null(write, length) if nullable else write, read, length.bytes_min)


def string_codec(length: Length, *, nullable: bool) -> Codec:
    def write(out: bytearray, value: str) -> None:
        encoded = value.encode()
        if len(encoded) > STRING_BYTES_MAX:
            raise ValueError(f"string of {len(encoded)} bytes, Kafka allows {STRING_BYTES_MAX}")
        length.write(out, len(encoded))
        out += encoded

    def read(data: memoryview, position: int) -> tuple[str | None, int]:
        size, position = length.read(data, position)
        if size == -1 and nullable:
            return None, position
        if size > STRING_BYTES_MAX:
            raise DecodeError("string is longer than Kafka allows", length=size)
        end = end_of(data, position, size)
        return str(data[position:end], "utf-8"), end

    return Codec(or_null(write, length) if nullable else write, read, length.bytes_min)


def records_codec(length: Length, *, nullable: bool) -> Codec:
    """Returns a codec that reads a view: record batches are not copied between socket and log."""

    def write(out: bytearray, value: bytes | memoryview) -> None:
        length.write(out, len(value))
        out += value

    def read(data: memoryview, position: int) -> tuple[memoryview | None, int]:
        size, position = length.read(data, position)
        if size == -1 and nullable:
            return None, position
        end = end_of(data, position, size)
        return data[position:end], end

    return Codec(or_null(write, length) if nullable else write, read, length.bytes_min)


def bytes_codec(length: Length, *, nullable: bool) -> Codec:
    """Returns a codec that reads a copy: a small value must not keep a whole frame in memory."""
    view = records_codec(length, nullable=nullable)

    def read(data: memoryview, position: int) -> tuple[bytes | None, int]:
        value, position = view.read(data, position)
        return None if value is None else bytes(value), position

    return view._replace(read=read)


def or_null(write_value: Write, length: Length) -> Write:
    def write(out: bytearray, value: Any) -> None:
        if value is None:
            length.write(out, -1)
        else:
            write_value(out, value)

    return write


def nullable_struct_codec(present: Codec) -> Codec:
    """Returns the codec of an optional struct, which has one byte before it: 1, or -1 for null
    (KIP-893)."""

    def write(out: bytearray, value: Any) -> None:
        out.append(0xFF if value is None else 1)
        if value is not None:
            present.write(out, value)

    def read(data: memoryview, position: int) -> tuple[Any, int]:
        if data[position] == 0xFF:
            return None, position + 1
        return present.read(data, position + 1)

    return Codec(write, read, 1)


def _write_uuid(out: bytearray, value: UUID) -> None:
    out += value.bytes


def _read_uuid(data: memoryview, position: int) -> tuple[UUID, int]:
    end = end_of(data, position, 16)
    return UUID(bytes=bytes(data[position:end])), end


UUID_CODEC = Codec(_write_uuid, _read_uuid, 16)
