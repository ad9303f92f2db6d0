"""A few records of our own as one batch: made row by row, since columns cost more to set up."""

from collections.abc import Sequence

from headwater.core_log.records.batch_header import Batch
from headwater.core_log.records.record_codec import PlainRecord, encode_batch


def small_batch(records: Sequence[tuple[bytes, bytes | None]], *, now_ms: int) -> Batch:
    """Keys and values, uncompressed."""
    plain = [PlainRecord(key, value, timestamp_ms=now_ms) for key, value in records]
    return Batch(encode_batch(plain), len(plain), now_ms)
