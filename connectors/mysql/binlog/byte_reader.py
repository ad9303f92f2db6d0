"""Reads the integers and strings of MySQL's formats; a length beyond the end is a `DecodeError`."""

from typing import NoReturn

from headwater.core_log.foundation.errors import DecodeError

LENGTH_2, LENGTH_3, LENGTH_8 = 0xFC, 0xFD, 0xFE


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
