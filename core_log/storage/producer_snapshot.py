"""Producer states as a file in Kafka's format, so that recovery need not read everything."""

from collections.abc import Iterable
from struct import Struct

from crc32c import crc32c

from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.storage.producers import (
    NO_OFFSET,
    NO_SEQUENCE,
    SEQUENCE_MASK,
    Producer,
    SequencedBatch,
)

SUFFIX = ".snapshot"
VERSION = 1

_HEAD = Struct(">hI")  # version, checksum of all that follows
_COUNT = Struct(">i")
_ENTRY = Struct(">qhiqiqiq")


def encode_snapshot(producers: Iterable[tuple[int, Producer]]) -> bytes:
    entries = []
    for producer_id, producer in producers:
        if producer.batches:
            newest = producer.batches[-1]
            last = (newest.last_sequence, newest.last_offset)
            delta = newest.last_offset - newest.base_offset
        else:
            last, delta = (NO_SEQUENCE, NO_OFFSET), 0
        entries.append(
            _ENTRY.pack(
                producer_id,
                producer.epoch,
                *last,
                delta,
                producer.timestamp_ms,
                producer.coordinator_epoch,
                producer.transaction_from,
            )
        )
    body = _COUNT.pack(len(entries)) + b"".join(entries)
    return _HEAD.pack(VERSION, crc32c(body)) + body


def decode_snapshot(data: bytes) -> list[tuple[int, Producer]]:
    """Returns each producer with its last batch; earlier ones are not in the file."""
    if len(data) < _HEAD.size + _COUNT.size:
        raise DecodeError("producer snapshot is too short", size=len(data))
    version, checksum = _HEAD.unpack_from(data)
    body = memoryview(data)[_HEAD.size :]
    if version != VERSION or crc32c(body) != checksum:
        raise DecodeError("producer snapshot is damaged or of another version", version=version)
    (count,) = _COUNT.unpack_from(body)
    rows = body[_COUNT.size :]
    if count < 0 or len(rows) != count * _ENTRY.size:
        raise DecodeError("producer snapshot does not hold what it counts", count=count)
    return [_producer(*row) for row in _ENTRY.iter_unpack(rows)]


def _producer(
    producer_id: int,
    epoch: int,
    last_sequence: int,
    last_offset: int,
    delta: int,
    timestamp_ms: int,
    coordinator_epoch: int,
    transaction_from: int,
) -> tuple[int, Producer]:
    producer = Producer(
        epoch,
        coordinator_epoch=coordinator_epoch,
        transaction_from=transaction_from,
        timestamp_ms=timestamp_ms,
    )
    if last_sequence >= 0:
        first = (last_sequence - delta) & SEQUENCE_MASK
        batch = SequencedBatch(first, last_sequence, last_offset - delta, last_offset, timestamp_ms)
        producer.batches.append(batch)
        producer.next_sequence = (last_sequence + 1) & SEQUENCE_MASK
        producer.unbroken_from = first
    return producer_id, producer
