"""Kafka's wire types: writes each to a buffer and reads it from a view, with checked lengths."""

from collections.abc import Callable, Sequence
from struct import Struct, pack, unpack
from typing import Any, NamedTuple
from uuid import UUID

from headwater.core_log.foundation.errors import DecodeError

ZERO_UUID = UUID(int=0)
STRING_BYTES_MAX = 0x7FFF

_VARINT_MAX = 0x7FFFFFFF
_INT16, _INT32 = Struct(">h"), Struct(">i")


class WireReader:
    """Reads the bytes of a message from a position on; what does not fit is a `DecodeError`."""

    __slots__ = ("data", "position")

    def __init__(self, data: memoryview, position: int = 0) -> None:
        self.data, self.position = data, position

    def unpack(self, packed: Struct) -> tuple[Any, ...]:
        position = self.position
        self.position = position + packed.size
        return packed.unpack_from(self.data, position)

    def read_varint(self) -> int:
        """Reads an unsigned number, seven bits per byte, lowest first."""
        position = self.position
        self.position = position + 1
        value = self.data[position]
        return value if value < 0x80 else self._read_long_varint(value & 0x7F)

    def _read_long_varint(self, value: int) -> int:
        for shift in range(7, 35, 7):
            byte = self.data[self.position]
            self.position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80 and value <= _VARINT_MAX:
                return value
        raise DecodeError("varint is larger than 31 bits", position=self.position)

    def check_left(self, size: int) -> None:
        """Raises unless so many bytes are left."""
        if size < 0 or self.position + size > len(self.data):
            left = len(self.data) - self.position
            raise DecodeError("length does not fit", length=size, left=left)

    def take(self, size: int) -> memoryview:
        """Returns a view: record batches are not copied between socket and log."""
        end = self.position + size
        if size < 0 or end > len(self.data):
            self.check_left(size)
        content = self.data[self.position : end]
        self.position = end
        return content

    def take_text(self, size: int) -> str:
        if size > STRING_BYTES_MAX:
            raise DecodeError("string is longer than Kafka allows", length=size)
        return str(self.take(size), "utf-8")

    def check_count(self, count: int) -> int:
        """Returns the count of elements that follow, of which each takes at least four bytes."""
        if count < 0 or count > (len(self.data) - self.position) // 4 + 1:
            raise DecodeError("array is longer than its request", count=count)
        return count

    def skip_tags(self) -> None:
        if not self.data[self.position]:  # as nearly always
            self.position += 1
            return
        for _ in range(self.read_varint()):
            self.read_varint()
            self.take(self.read_varint())


def read_topic(reader: WireReader, *, has_id: bool) -> str | bytes:
    """Reads the topic of a flexible request: its id, or its name."""
    return bytes(reader.take(16)) if has_id else reader.take_text(reader.read_varint() - 1)


Write = Callable[[bytearray, Any], None]
Read = Callable[[WireReader], Any]


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


def varint_bytes(value: int) -> bytes:
    out = bytearray()
    write_varint(out, value)
    return bytes(out)


class Length(NamedTuple):
    """The encoding of a length; minus one is null."""

    write: Callable[[bytearray, int], None]
    read: Callable[[WireReader], int]
    bytes_min: int


def _write_int16(out: bytearray, length: int) -> None:
    out += _INT16.pack(length)


def _read_int16(reader: WireReader) -> int:
    position = reader.position
    reader.position = position + 2
    length: int = _INT16.unpack_from(reader.data, position)[0]
    return length


def _write_int32(out: bytearray, length: int) -> None:
    out += _INT32.pack(length)


def _read_int32(reader: WireReader) -> int:
    position = reader.position
    reader.position = position + 4
    length: int = _INT32.unpack_from(reader.data, position)[0]
    return length


def _write_compact(out: bytearray, length: int) -> None:
    write_varint(out, length + 1)


def _read_compact(reader: WireReader) -> int:
    return reader.read_varint() - 1


SHORT = Length(_write_int16, _read_int16, bytes_min=2)
LONG = Length(_write_int32, _read_int32, bytes_min=4)
COMPACT = Length(_write_compact, _read_compact, bytes_min=1)


def number_codec(code: str) -> Codec:
    """Returns the codec of one number; `code` is the struct module's."""
    packed = Struct(f">{code}")
    size, unpack_from = packed.size, packed.unpack_from

    def write(out: bytearray, value: float) -> None:
        out += packed.pack(value)

    def read(reader: WireReader) -> Any:
        position = reader.position
        reader.position = position + size
        return unpack_from(reader.data, position)[0]

    return Codec(write, read, packed.size)


def run_codec(codes: str) -> Codec:
    """Returns the codec of several numbers in a row, as a tuple."""
    packed = Struct(f">{codes}")
    size, unpack_from = packed.size, packed.unpack_from

    def write(out: bytearray, values: tuple[float, ...]) -> None:
        out += packed.pack(*values)

    def read(reader: WireReader) -> tuple[Any, ...]:
        position = reader.position
        reader.position = position + size
        return unpack_from(reader.data, position)

    return Codec(write, read, packed.size)


def numbers_codec(code: str, length: Length, *, nullable: bool) -> Codec:
    """Returns the codec of an array of numbers, packed at once."""
    size = Struct(f">{code}").size

    def write(out: bytearray, values: Sequence[float]) -> None:
        length.write(out, len(values))
        out += pack(f">{len(values)}{code}", *values)

    def read(reader: WireReader) -> tuple[Any, ...] | None:
        count = length.read(reader)
        if count == -1 and nullable:
            return None
        return unpack(f">{count}{code}", reader.take(count * size))

    return Codec(or_null(write, length) if nullable else write, read, length.bytes_min)


def array_codec(element: Codec, length: Length, *, nullable: bool) -> Codec:
    write_element, read_element, element_bytes_min = element

    def write(out: bytearray, values: Sequence[Any]) -> None:
        length.write(out, len(values))
        for value in values:
            write_element(out, value)

    def read(reader: WireReader) -> tuple[Any, ...] | None:
        count = length.read(reader)
        if count == -1 and nullable:
            return None
        reader.check_left(count * element_bytes_min)
        return tuple([read_element(reader) for _ in range(count)])

    return Codec(or_null(write, length) if nullable else write, read, length.bytes_min)


def string_codec(length: Length, *, nullable: bool) -> Codec:
    def write(out: bytearray, value: str) -> None:
        encoded = value.encode()
        if len(encoded) > STRING_BYTES_MAX:
            raise ValueError(f"string of {len(encoded)} bytes, Kafka allows {STRING_BYTES_MAX}")
        length.write(out, len(encoded))
        out += encoded

    def read(reader: WireReader) -> str | None:
        size = length.read(reader)
        return None if size == -1 and nullable else reader.take_text(size)

    return Codec(or_null(write, length) if nullable else write, read, length.bytes_min)


def records_codec(length: Length, *, nullable: bool) -> Codec:
    """Returns a codec that reads a view."""

    def write(out: bytearray, value: bytes | memoryview) -> None:
        length.write(out, len(value))
        out += value

    def read(reader: WireReader) -> memoryview | None:
        size = length.read(reader)
        return None if size == -1 and nullable else reader.take(size)

    return Codec(or_null(write, length) if nullable else write, read, length.bytes_min)


def bytes_codec(length: Length, *, nullable: bool) -> Codec:
    """Returns a codec that reads a copy: a small value must not keep a whole frame in memory."""
    view = records_codec(length, nullable=nullable)

    def read(reader: WireReader) -> bytes | None:
        value = view.read(reader)
        return None if value is None else bytes(value)

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

    def read(reader: WireReader) -> Any:
        is_absent = reader.data[reader.position] == 0xFF
        reader.position += 1
        return None if is_absent else present.read(reader)

    return Codec(write, read, 1)


def _write_uuid(out: bytearray, value: UUID) -> None:
    out += value.bytes


def _read_uuid(reader: WireReader) -> UUID:
    return UUID(bytes=bytes(reader.take(16)))


UUID_CODEC = Codec(_write_uuid, _read_uuid, 16)
