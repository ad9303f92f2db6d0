"""Reads integers, strings, decimals and compressed columns of MySQL, with checked lengths."""

import zlib
from collections.abc import Callable
from typing import NoReturn

from headwater.core_log.foundation.errors import DecodeError

LENGTH_2, LENGTH_3, LENGTH_8 = 0xFC, 0xFD, 0xFE
DIGITS_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
"""Bytes of that many digits of a decimal."""
GROUP = 9
TIME2_BIAS, DATETIME2_BIAS = 0x800000, 0x8000000000
DECOMPRESSED_MAX = 1 << 30
"""Limit of one decompressed value: the servers allow a packet of one gibibyte."""


class ByteReader:
    """A position in bytes that never leaves them."""

    __slots__ = ("data", "end", "pos")

    def __init__(self, data: bytes, pos: int = 0, end: int | None = None) -> None:
        self.data, self.pos = data, pos
        self.end = len(data) if end is None else end

    @property
    def left(self) -> int:
        return self.end - self.pos

    def skip(self, count: int) -> int:
        """Moves on, and returns the former position."""
        start = self.pos
        if count < 0 or count > self.end - start:
            self.fail(count)
        self.pos = start + count
        return start

    def fail(self, count: int) -> NoReturn:
        raise DecodeError(
            "a length in the binary log goes beyond the end of its event",
            position=self.pos,
            length=count,
            left=self.left,
        )

    def take(self, count: int) -> bytes:
        start = self.skip(count)
        return self.data[start : self.pos]

    def uint(self, width: int) -> int:
        return int.from_bytes(self.take(width), "little")

    def byte(self) -> int:
        return self.data[self.skip(1)]

    def lenenc(self) -> int:
        """Returns a length-encoded integer."""
        first = self.byte()
        if first < LENGTH_2 - 1:
            return first
        if first == LENGTH_2:
            return self.uint(2)
        if first == LENGTH_3:
            return self.uint(3)
        if first == LENGTH_8:
            return self.uint(8)
        raise DecodeError("a length-encoded integer has an unknown form", first=first)

    def varint(self) -> int:
        """Returns an unsigned integer of `mysql::serialization`: the number of trailing ones of the
        first byte is the number of further bytes."""
        first = self.byte()
        more = (~first & (first + 1)).bit_length() - 1 if first != 0xFF else 8
        whole = first | int.from_bytes(self.take(more), "little") << 8
        return whole >> (more + 1) if more < 8 else whole >> 8

    def signed_varint(self) -> int:
        value = self.varint()
        return -(value >> 1) - 1 if value & 1 else value >> 1

    def text(self, count: int) -> str:
        """Returns text in UTF-8: names of databases, tables and columns."""
        try:
            return self.take(count).decode()
        except UnicodeDecodeError:
            raise DecodeError("a name in the binary log is not UTF-8") from None

    def rest(self) -> bytes:
        return self.take(self.left)


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


def decimal_width(precision: int, scale: int) -> int:
    """Returns the bytes of a DECIMAL."""
    if not 0 <= scale <= precision <= 65 + 16:
        raise DecodeError("a decimal of the binary log has an impossible size")
    whole, part = divmod(precision - scale, GROUP), divmod(scale, GROUP)
    return 4 * (whole[0] + part[0]) + DIGITS_BYTES[whole[1]] + DIGITS_BYTES[part[1]]


def decimal_reader(precision: int, scale: int) -> Callable[[bytes], str]:
    """Returns the reader of a DECIMAL, whose value is its text with all digits of the scale."""
    width = decimal_width(precision, scale)
    whole_groups, whole_rest = divmod(precision - scale, GROUP)
    part_groups, part_rest = divmod(scale, GROUP)
    sizes = [(DIGITS_BYTES[whole_rest], whole_rest)] if whole_rest else []
    sizes += [(4, GROUP)] * whole_groups
    whole_count = len(sizes)
    sizes += [(4, GROUP)] * part_groups
    sizes += [(DIGITS_BYTES[part_rest], part_rest)] if part_rest else []

    def read(value: bytes) -> str:
        raw = bytearray(value[:width])
        if not raw:
            return "0"
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
        return f"-{text}" if is_negative else text

    return read
