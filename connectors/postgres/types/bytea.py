"""Strings of bytes and of bits."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.connectors.postgres.types.column_reader import UNAVAILABLE, TypeReader
from headwater.core_log.rows.arrow_buffers import column_of, is_valid, stretches
from headwater.core_log.rows.text.bytes import from_hex

BITS = "io.debezium.data.Bits"
UNLIMITED = 2**31 - 1
HEX_PREFIX = r"\x"


def bytes_reading() -> TypeReader:
    return TypeReader(pa.binary(), _bytes, unavailable=UNAVAILABLE.encode())


def _bytes(text: pa.StringArray) -> pa.Array:
    if not pc.all(pc.starts_with(text, HEX_PREFIX), min_count=0).as_py():
        raise ValueError("bytes are not in the server's output form hex")
    return from_hex(text, skipped=len(HEX_PREFIX))


def bits_reading(modifier: int) -> TypeReader:
    """A single bit is a truth value; more are bytes, the last bit being the lowest of the first."""
    if modifier == 1:
        return TypeReader(pa.bool_(), lambda text: pc.equal(text, "1"))
    length = UNLIMITED if modifier < 0 else modifier
    return TypeReader(pa.binary(), _bits, BITS, {"length": str(length)})


def _bits(text: pa.StringArray) -> pa.Array:
    width = pc.max(pc.binary_length(text)).as_py() or 0
    byte_count = (width + 7) // 8
    padded = pc.utf8_lpad(text, byte_count * 8, "0")
    if padded.null_count:
        padded = padded.fill_null("0" * byte_count * 8)
    bits = stretches(padded)[0].reshape(len(text), byte_count * 8) == ord("1")
    numbers = np.packbits(bits[:, ::-1], axis=1, bitorder="little")
    # Zeros at the upper end say nothing, and Debezium leaves them out.
    is_kept = np.logical_or.accumulate((numbers != 0)[:, ::-1], axis=1)[:, ::-1]
    if text.null_count:
        is_kept &= is_valid(text)[:, None]
    offsets = np.concatenate(([0], np.cumsum(is_kept.sum(axis=1))))
    return column_of(pa.binary(), numbers[is_kept], offsets, like=text)
