"""Columns of bytes as base64 or hexadecimal text, and back."""

from binascii import a2b_base64, b2a_base64, hexlify, unhexlify
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.foundation.array_types import UInt8Array
from headwater.core_log.rows.arrow_buffers import bytes_and_offsets, column_of

LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
STANDARD, URL_SAFE = LETTERS + b"+/", LETTERS + b"-_"
HEX_DIGITS = b"0123456789abcdef"
PAD = ord("=")
NOT_A_DIGIT = 255
TO_SAFE = bytes.maketrans(b"+/", b"-_")
FROM_SAFE = bytes.maketrans(b"-_+/", b"+/!!")
LONG_BYTES = 512
"""Values that are longer on average are taken one by one: all at once they would need many times
their size in memory, and not be faster."""


def to_base64(column: pa.Array, *, alphabet: bytes = STANDARD) -> pa.Array:
    """With padding."""
    data, offsets = bytes_and_offsets(column)
    if _are_long(data, column):
        is_safe = alphabet is URL_SAFE
        return _each(pa.string(), column, _safe_base64 if is_safe else _base64)
    lengths = np.diff(offsets)
    groups = (lengths + 2) // 3
    starts = np.concatenate(([0], np.cumsum(groups * 3)))
    padded = np.zeros(starts[-1], np.uint8)
    padded[np.arange(len(data)) + np.repeat(starts[:-1] - offsets[:-1], lengths)] = data
    triples = padded.reshape(-1, 3).astype(np.uint32)
    words = (triples[:, 0] << 16) | (triples[:, 1] << 8) | triples[:, 2]
    sextets = words[:, None] >> np.array([18, 12, 6, 0], np.uint32) & 63
    text = np.frombuffer(alphabet, np.uint8)[sextets].reshape(-1)
    ends, missing = starts[1:] // 3 * 4, groups * 3 - lengths
    text[ends[missing >= 1] - 1] = PAD
    text[ends[missing == 2] - 2] = PAD
    return column_of(pa.string(), text, starts // 3 * 4, like=column)


def from_base64(column: pa.Array, *, alphabet: bytes = STANDARD) -> pa.Array:
    """Raises `ValueError` for anything but whole, padded base64."""
    text, offsets = bytes_and_offsets(column)
    if _are_long(text, column):
        is_safe = alphabet is URL_SAFE
        return _each(pa.binary(), column, _from_safe_base64 if is_safe else _from_base64)
    lengths = np.diff(offsets)
    is_pad = text == PAD
    ends = offsets[1:]
    is_last = np.zeros(len(lengths), np.bool_)
    is_last[lengths > 0] = is_pad[ends[lengths > 0] - 1]
    is_second = np.zeros(len(lengths), np.bool_)
    is_second[is_last] = is_pad[ends[is_last] - 2]
    sextets = _digits(alphabet)[text]
    sextets[is_pad] = 0
    pads = is_last.astype(np.int64) + is_second
    if (lengths % 4).any() or is_pad.sum() != pads.sum() or (sextets == NOT_A_DIGIT).any():
        raise ValueError("the text is not base64")
    quads = sextets.reshape(-1, 4).astype(np.uint32)
    words = (quads[:, 0] << 18) | (quads[:, 1] << 12) | (quads[:, 2] << 6) | quads[:, 3]
    data = (words[:, None] >> np.array([16, 8, 0], np.uint32) & 255).astype(np.uint8).reshape(-1)
    is_kept = np.ones(len(data), np.bool_)
    is_kept[ends[pads >= 1] // 4 * 3 - 1] = False
    is_kept[ends[pads == 2] // 4 * 3 - 2] = False
    sizes = np.concatenate(([0], np.cumsum(lengths // 4 * 3 - pads)))
    return column_of(pa.binary(), data[is_kept], sizes, like=column)


def to_hex(column: pa.Array) -> pa.Array:
    """Lower case, two digits a byte, no prefix."""
    data, offsets = bytes_and_offsets(column)
    text = np.frombuffer(hexlify(data.data), np.uint8)
    return column_of(pa.string(), text, offsets * 2, like=column)


def from_hex(column: pa.Array, *, prefix: str = "") -> pa.Array:
    """Raises `ValueError` for anything but pairs of digits of either case behind the prefix."""
    if prefix:
        if not pc.all(pc.starts_with(column, prefix), min_count=0).as_py():
            raise ValueError("bytes are not in the server's output form hex")
        column = pc.utf8_slice_codeunits(column, len(prefix))
    text, offsets = bytes_and_offsets(column)
    if (np.diff(offsets) % 2).any():
        raise ValueError("the text is not hexadecimal")
    data = np.frombuffer(unhexlify(text.data), np.uint8)
    return column_of(pa.binary(), data, offsets // 2, like=column)


def _are_long(data: UInt8Array, column: pa.Array) -> bool:
    return len(data) > LONG_BYTES * len(column)


def _each(kind: pa.DataType, column: pa.Array, convert: Callable[[memoryview], bytes]) -> pa.Array:
    """Converts the bytes of each value."""
    data, offsets = bytes_and_offsets(column)
    converted = [convert(data.data[start:end]) for start, end in pairwise(offsets.tolist())]
    ends = np.cumsum([0, *map(len, converted)])
    return column_of(kind, np.frombuffer(b"".join(converted), np.uint8), ends, like=column)


def _base64(data: memoryview) -> bytes:
    return b2a_base64(data, newline=False)


def _safe_base64(data: memoryview) -> bytes:
    return _base64(data).translate(TO_SAFE)


def _from_base64(text: memoryview | bytes) -> bytes:
    if bytes(text[-3:]) == b"===":  # which it overlooks behind whole groups
        raise ValueError("the text is not base64")
    return a2b_base64(text, strict_mode=True)


def _from_safe_base64(text: memoryview) -> bytes:
    return _from_base64(bytes(text).translate(FROM_SAFE))


def _digits(alphabet: bytes) -> UInt8Array:
    table = np.full(256, NOT_A_DIGIT, np.uint8)
    table[np.frombuffer(alphabet, np.uint8)] = np.arange(len(alphabet))
    return table
