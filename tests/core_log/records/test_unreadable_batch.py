"""A stored batch that cannot be read is named by its place, whoever reads it."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headwater.core_log.foundation.errors import UnreadableBatch
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.records import arrow_codec
from headwater.core_log.records.batch_header import CHECKED_FROM, HEADER_BYTES, BatchHeader, seal
from headwater.core_log.records.record_codec import PlainRecord, encode_batch
from headwater.core_log.records.record_views import RecordScratch, locate_parts

PLACE = TopicPartition("orders", 3)
Read = Callable[..., Iterator[Any]]


def located(data: bytes, **options: Any) -> Iterator[Any]:
    return locate_parts(data, RecordScratch(), **options)


def batch_at(offset: int, *, compression: int = 0) -> bytearray:
    rows = [PlainRecord(b"%d" % n, b"value" * 9, timestamp_ms=7) for n in range(3)]
    return encode_batch(rows, compression=compression, base_offset=offset)


def other_inside(offset: int, compression: int) -> bytes:
    """Its checksum is right, as a client's is that sends nonsense."""
    batch = batch_at(offset, compression=compression)
    batch[HEADER_BYTES + 6 :] = b"\xff" * (len(batch) - HEADER_BYTES - 6)
    seal(batch)
    return bytes(batch)


def miscounted(offset: int) -> bytes:
    batch = batch_at(offset)
    batch[:HEADER_BYTES] = BatchHeader.read(batch)._replace(record_count=1).pack()
    seal(batch)
    return bytes(batch)


def rotten(offset: int) -> bytes:
    batch = batch_at(offset)
    batch[CHECKED_FROM + 50] ^= 1
    return bytes(batch)


KINDS: dict[str, Callable[[int], bytes]] = {
    "gzip": lambda offset: other_inside(offset, 1),
    "snappy": lambda offset: other_inside(offset, 2),
    "lz4": lambda offset: other_inside(offset, 3),
    "zstd": lambda offset: other_inside(offset, 4),
    "not compressed": lambda offset: other_inside(offset, 0),
    "miscounted": miscounted,
    "checksum": rotten,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("read", [arrow_codec.decode_parts, located])
@pytest.mark.parametrize("compression", [0, 4])
def test_the_batch_that_cannot_be_read_is_named_among_those_that_can(
    read: Read, kind: str, compression: int
) -> None:
    good = [bytes(batch_at(offset, compression=compression)) for offset in (0, 3, 9)]
    data = b"".join([good[0], good[1], KINDS[kind](6), good[2]])

    with pytest.raises(UnreadableBatch) as raised:
        list(read(data, bytes_max=1 << 20, partition=PLACE))

    facts = raised.value.facts
    assert (facts["topic"], facts["partition"]) == PLACE
    assert (facts["offset"], facts["last_offset"]) == (6, 8)
    assert "headwater tail orders --partition 3 --from 9" in raised.value.hint


@pytest.mark.parametrize("read", [arrow_codec.decode_parts, located])
def test_batches_behind_an_unreadable_one_can_be_read(read: Read) -> None:
    data = b"".join([bytes(batch_at(0)), KINDS["gzip"](3), bytes(batch_at(6))])

    [behind] = read(data, bytes_max=1 << 20, from_offset=6)

    assert behind.offsets.tolist() == [6, 7, 8]
