"""What one record at a time writes, others read; what others write, it reads; noise it refuses."""

import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy
from hypothesis import given
from hypothesis import strategies as st
from kafka.record import MemoryRecords
from kafka.record.default_records import DefaultRecordBatchBuilder

from headwater.core_log.foundation.errors import HeadwaterError, UnreadableBatch
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.records import arrow_codec
from headwater.core_log.records.batch_header import (
    CHECKED_FROM,
    DELETE_HORIZON,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    BatchHeader,
    checksum_of,
    seal,
)
from headwater.core_log.records.record_codec import (
    Marker,
    PlainRecord,
    decode_batch,
    decode_marker,
    decode_varint,
    encode_batch,
    encode_marker,
    encode_varint,
    iterate_batches,
)
from headwater.core_log.records.record_views import RecordScratch, locate_parts

CELLS = st.none() | st.binary(max_size=80)
HEADERS = st.lists(st.tuples(st.text(max_size=5), CELLS), max_size=3).map(tuple)
TIMES = st.integers(0, 2**41)
RECORD = st.builds(PlainRecord, CELLS, CELLS, HEADERS, TIMES, st.just(-1))
RECORDS = st.lists(RECORD, min_size=1, max_size=12)
CODES = st.integers(0, 4)


@given(RECORDS, CODES, st.integers(0, 2**40))
def test_a_batch_reads_back_as_written(records: list[PlainRecord], code: int, base: int) -> None:
    batch = encode_batch(records, compression=code, base_offset=base)

    header, read = decode_batch(batch)

    assert read == [record._replace(offset=base + i) for i, record in enumerate(records)]
    assert header.compression == code
    assert header.next_offset == base + len(records)
    assert header.max_timestamp == max(record.timestamp_ms for record in records)


@given(RECORDS, st.booleans())
def test_bytes_equal_those_of_other_clients(records: list[PlainRecord], in_txn: bool) -> None:
    ours = encode_batch(
        records, producer_id=9, producer_epoch=2, base_sequence=5, is_transactional=in_txn
    )

    for builder_class in (DefaultRecordBatchBuilder, _DefaultRecordBatchBuilderPy):
        theirs = builder_class(
            magic=2,
            compression_type=0,
            is_transactional=in_txn,
            producer_id=9,
            producer_epoch=2,
            base_sequence=5,
            batch_size=1 << 20,
        )
        for index, (key, value, headers, timestamp, _) in enumerate(records):
            theirs.append(index, timestamp, key, value, list(headers))
        # The leader's epoch lies before the checksum; clients disagree on what to put there.
        expected = bytearray(theirs.build())
        expected[12:16] = ours[12:16]
        assert ours == expected


@given(RECORDS, CODES)
def test_other_clients_read_ours(records: list[PlainRecord], code: int) -> None:
    batch = next(iter(MemoryRecords(bytes(encode_batch(records, compression=code)))), None)

    theirs = [
        PlainRecord(r.key, r.value, tuple(r.headers), r.timestamp, r.offset) for r in batch or ()
    ]

    assert theirs == decode_batch(encode_batch(records))[1]


def test_offsets_may_have_gaps_and_an_end_beyond_the_last_record() -> None:
    records = [PlainRecord(b"a", b"1", (), 5, 103), PlainRecord(b"b", b"2", (), 6, 150)]

    header, read = decode_batch(encode_batch(records, base_offset=100, last_offset_delta=99))

    assert read == records
    assert (header.last_offset, header.record_count) == (199, 2)


def test_an_empty_batch_keeps_its_range() -> None:
    header, read = decode_batch(encode_batch([], base_offset=7, last_offset_delta=3))

    assert (header.base_offset, header.next_offset, read) == (7, 11, [])


def test_append_time_is_the_time_of_every_record() -> None:
    records = [PlainRecord(b"a", b"1", (), 5), PlainRecord(b"b", b"2", (), 90)]

    _, read = decode_batch(encode_batch(records, attributes=LOG_APPEND_TIME))

    assert [record.timestamp_ms for record in read] == [90, 90]


def test_a_delete_horizon_leaves_the_records_their_times() -> None:
    records = [PlainRecord(b"a", None, (), 5), PlainRecord(b"b", b"2", (), 90)]

    header, read = decode_batch(encode_batch(records, delete_horizon_ms=1_000_000))

    assert header.attributes & DELETE_HORIZON
    assert header.base_timestamp == 1_000_000
    assert [record.timestamp_ms for record in read] == [5, 90]


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_is_a_control_batch_as_kafka_writes_it(commit: bool) -> None:
    batch = encode_marker(
        commit=commit, producer_id=7, producer_epoch=3, coordinator_epoch=11, timestamp_ms=99
    )

    header, (record,) = decode_batch(batch)
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, -1)
    assert record.key == struct.pack(">hh", 0, 1 if commit else 0)
    assert record.value == struct.pack(">hi", 0, 11)
    assert decode_marker(record) == Marker(commit, 11)


def test_a_control_record_of_another_kind_is_no_marker() -> None:
    assert decode_marker(PlainRecord(struct.pack(">hh", 0, 2), b"")) is None


@given(st.lists(RECORDS, max_size=4), st.data())
def test_batches_are_walked_and_a_torn_last_one_is_left_out(
    batches: list[list[PlainRecord]], data: st.DataObject
) -> None:
    encoded = [bytes(encode_batch(records)) for records in batches]
    whole = b"".join(encoded)
    size = data.draw(st.integers(0, len(whole)))

    walked = [bytes(batch) for batch in iterate_batches(whole[:size])]

    assert walked == encoded[: len(walked)]
    assert size - len(b"".join(walked)) < len((encoded[len(walked) :] or [b" "])[0])


@given(RECORDS, st.data())
def test_malformed_records_under_a_right_checksum_are_refused(
    records: list[PlainRecord], data: st.DataObject
) -> None:
    batch = encode_batch(records)
    batch[data.draw(st.integers(61, len(batch) - 1))] = data.draw(st.integers(0, 255))
    struct.pack_into(">I", batch, 17, checksum_of(batch))

    try:
        header, read = decode_batch(batch)
    except HeadwaterError:
        return
    assert len(read) == header.record_count


@pytest.mark.parametrize("claimed", [-1, 1, 3, 2**31 - 1])
def test_a_record_count_that_is_not_so_is_refused(claimed: int) -> None:
    batch = encode_batch([PlainRecord(b"k", b"v"), PlainRecord(b"k", b"v")])
    batch[:61] = BatchHeader.read(batch)._replace(record_count=claimed).pack()
    struct.pack_into(">I", batch, 17, checksum_of(batch))

    with pytest.raises(HeadwaterError):
        decode_batch(batch)


@given(st.integers(-(2**63), 2**63 - 1))
def test_numbers_read_back(number: int) -> None:
    written = encode_varint(number)

    assert decode_varint(written, 0) == (number, len(written))


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
