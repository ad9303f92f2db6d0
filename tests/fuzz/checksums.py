"""Batches whose length and checksum are put right, so that noise reaches what lies behind them."""

from headwater.core_log.records.batch_header import (
    CHECKED_FROM,
    HEADER_BYTES,
    LENGTH_END,
    checksum_of,
)


def sealed(data: bytes) -> bytes:
    """As much of a batch of format 2 as noise can be."""
    batch = bytearray(data.ljust(HEADER_BYTES, b"\0"))
    batch[8:LENGTH_END] = (len(batch) - LENGTH_END).to_bytes(4, "big")
    batch[16] = 2
    batch[17:CHECKED_FROM] = checksum_of(batch).to_bytes(4, "big")
    return bytes(batch)
