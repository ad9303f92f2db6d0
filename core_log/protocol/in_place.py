"""Reads the few wire types of Produce and Fetch in place."""

from headwater.core_log.foundation.errors import DecodeError


def text(frame: memoryview, position: int, size: int) -> tuple[str, int]:
    end = position + size
    if size < 0 or end > len(frame):
        raise DecodeError("string is longer than its request", size=size)
    return str(frame[position:end], "utf-8"), end


def stretch(frame: memoryview, position: int, size: int) -> tuple[memoryview | None, int]:
    if size < 0:
        return None, position
    end = position + size
    if end > len(frame):
        raise DecodeError("records are longer than their request", size=size)
    return frame[position:end], end


def checked_count(count: int, frame: memoryview, position: int) -> int:
    """Returns the count. Every element takes at least four bytes, so a larger count is invalid."""
    if count < 0 or count > (len(frame) - position) // 4 + 1:
        raise DecodeError("array is longer than its request", count=count)
    return count


def uvarint(frame: memoryview, position: int) -> tuple[int, int]:
    byte = frame[position]
    value, shift, position = byte & 0x7F, 7, position + 1
    while byte & 0x80:
        if shift > 28:
            raise DecodeError("varint is longer than five bytes")
        byte = frame[position]
        value |= (byte & 0x7F) << shift
        shift, position = shift + 7, position + 1
    return value, position


def skip_tags(frame: memoryview, position: int) -> int:
    count, position = uvarint(frame, position)
    for _ in range(count):
        _, position = uvarint(frame, position)
        size, position = uvarint(frame, position)
        position += size
        if position > len(frame):
            raise DecodeError("tagged field is longer than its request", size=size)
    return position


def uvarint_bytes(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
