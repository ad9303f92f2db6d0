"""Writes MySQL's binary JSON, slowly and obviously, as its manual describes the format."""

import struct
from decimal import Decimal
from typing import Any

LITERALS = {None: 0, True: 1, False: 2}
NUMBERS = (
    (5, "<h", -(2**15), 2**15), (6, "<H", 0, 2**16), (7, "<i", -(2**31), 2**31),
    (8, "<I", 0, 2**32), (9, "<q", -(2**63), 2**63), (10, "<Q", 0, 2**64),
)  # fmt: skip
"""Type, form and range of whole numbers; the first that fits is taken."""
SMALL_INLINE, LARGE_INLINE = {4, 5, 6}, {4, 5, 6, 7, 8}


def document_of(value: Any) -> bytes:
    kind, data = _encoded(value)
    return bytes([kind]) + data


def _encoded(value: Any) -> tuple[int, bytes]:
    if value is None or isinstance(value, bool):
        return 4, bytes([LITERALS[value]])
    if isinstance(value, int):
        kind, form = next((kind, form) for kind, form, low, end in NUMBERS if low <= value < end)
        return kind, struct.pack(form, value)
    if isinstance(value, float):
        return 11, struct.pack("<d", value)
    if isinstance(value, str):
        text = value.encode()
        return 12, _length(len(text)) + text
    if isinstance(value, Decimal):
        data = _decimal(value)
        return 15, bytes([246]) + _length(len(data)) + data
    small = _container(value, is_large=False)
    if len(small) < 1 << 16:
        return (0 if isinstance(value, dict) else 2), small
    return (1 if isinstance(value, dict) else 3), _container(value, is_large=True)


def _decimal(value: Decimal) -> bytes:
    """With as many digits of a fraction as it is written with."""
    digits, exponent = value.as_tuple().digits, int(value.as_tuple().exponent)
    text = "".join(map(str, digits)).rjust(-exponent, "0")
    whole, part = text[: len(text) + exponent], text[len(text) + exponent :]
    head = len(whole) % 9
    groups = [whole[:head], *(whole[at : at + 9] for at in range(head, len(whole), 9))]
    groups += [part[at : at + 9] for at in range(0, len(part), 9)]
    sizes = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
    data = bytearray(
        b"".join(int(each).to_bytes(sizes[len(each)], "big") for each in groups if each)
    )
    data[0] ^= 0x80
    if value.is_signed():
        data = bytearray(each ^ 0xFF for each in data)
    return bytes([len(text), len(part)]) + data


def _length(size: int) -> bytes:
    found = bytearray()
    while size > 0x7F:
        found.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([*found, size])


def _container(value: Any, *, is_large: bool) -> bytes:
    width, inline = (4, LARGE_INLINE) if is_large else (2, SMALL_INLINE)
    names, values = list[bytes](), value
    if isinstance(value, dict):
        ordered = sorted(value, key=lambda name: (len(name.encode()), name.encode()))
        names, values = [name.encode() for name in ordered], [value[name] for name in ordered]
    head = 2 * width + len(names) * (width + 2) + len(values) * (1 + width)
    entries, tail = bytearray(), bytearray()
    for name in names:
        entries += _place(head + len(tail), width) + len(name).to_bytes(2, "little")
        tail += name
    for each in values:
        kind, data = _encoded(each)
        entries.append(kind)
        if kind in inline:
            entries += data.ljust(width, b"\0")
        else:
            entries += _place(head + len(tail), width)
            tail += data
    size = head + len(tail)
    return len(values).to_bytes(width, "little") + _place(size, width) + entries + tail


def _place(number: int, width: int) -> bytes:
    """What does not fit is written again in the large form."""
    return (number % (1 << 8 * width)).to_bytes(width, "little")
