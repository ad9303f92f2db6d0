"""Columns become the bytes of the slow reference and come back; malformed bytes are refused."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core_log.foundation.errors import DecodeError, HeadwaterError
from headwater.core_log.records.arrow_codec import decode, decode_parts, encode
from headwater.core_log.records.batch_header import (
    HEADER_BYTES,
    LOG_APPEND_TIME,
    Batch,
    BatchHeader,
    seal,
    stamp,
)
from headwater.core_log.records.record_codec import (
    PlainRecord,
    decode_batch,
    encode_batch,
    encode_marker,
    encode_varint,
    iterate_batches,
)
from headwater.core_log.records.record_fields import read_fields
from headwater.core_log.records.record_headers import (
    FEW,
    encode_header_columns,
    encode_headers,
    header_column,
    header_lists,
)
from headwater.core_log.records.record_views import RecordColumns

CELLS = st.none() | st.binary(max_size=20) | st.binary(min_size=120, max_size=140)
HEADERS = st.lists(st.tuples(st.text(max_size=4), CELLS), max_size=3).map(tuple)
TIMES = st.integers(0, 2**41)
RECORD = st.builds(PlainRecord, CELLS, CELLS, HEADERS, TIMES, st.just(-1))
RECORDS = st.lists(RECORD, min_size=1, max_size=12) | st.lists(
    RECORD, min_size=FEW + 1, max_size=FEW + 8
)
"""So few that they are taken one by one, or more."""
CODES = st.integers(0, 4)


def cells(column: list[bytes | None]) -> pa.BinaryArray:
    return pa.array(column, pa.binary())


def encode_columns(records: list[PlainRecord], code: int = 0, limit: int = 1 << 20) -> list[Batch]:
    headers = cells([encode_headers(record.headers) for record in records])
    batches = encode(
        cells([record.key for record in records]),
        cells([record.value for record in records]),
        timestamps_ms=np.array([record.timestamp_ms for record in records], dtype=np.int64),
        headers=headers,
        compression=code,
        batch_bytes_max=limit,
    )
    offset = 0
    for batch in batches:
        seal(batch.data)
        stamp(batch.data, base_offset=offset, leader_epoch=-1)
        offset += batch.record_count
    return batches


def as_records(columns: RecordColumns) -> list[PlainRecord]:
    headers = [
        tuple((pair["key"].decode(), pair["value"]) for pair in pairs)
        for pairs in header_lists(columns.headers).to_pylist()
    ]
    rows = (columns.keys.to_pylist(), columns.values.to_pylist(), headers)
    numbers = (columns.timestamps_ms.tolist(), columns.offsets.tolist())
    return [PlainRecord(*row) for row in zip(*rows, *numbers, strict=True)]


def placed(records: list[PlainRecord], base: int = 0) -> list[PlainRecord]:
    return [record._replace(offset=base + i) for i, record in enumerate(records)]


@given(RECORDS)
def test_bytes_are_those_of_the_slow_reference(records: list[PlainRecord]) -> None:
    (batch,) = encode_columns(records)

    assert batch.data == encode_batch(records)
    assert batch.max_timestamp == max(record.timestamp_ms for record in records)


@given(RECORDS, CODES, st.integers(200, 2000))
def test_split_batches_hold_all_records_within_the_limit(
    records: list[PlainRecord], code: int, limit: int
) -> None:
    batches = encode_columns(records, code, limit)

    read = [record for batch in batches for record in decode_batch(batch.data)[1]]
    assert read == placed(records)
    assert all(len(batch.data) <= limit or batch.record_count == 1 for batch in batches)


@pytest.mark.slow
@given(st.lists(st.tuples(RECORDS, CODES), max_size=6))
def test_fetched_batches_decode_to_the_records_of_the_slow_reference(
    batches: list[tuple[list[PlainRecord], int]],
) -> None:
    base, data, expected = 1000, b"", []
    for records, code in batches:
        data += encode_batch(records, compression=code, base_offset=base)
        data += encode_marker(
            commit=True, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp_ms=5
        )
        expected += placed(records, base)
        base += len(records) + 7

    assert as_records(decode(data)) == expected
    for part in (0, 500, 1 << 20):
        parts = list(decode_parts(data, bytes_max=part))
        assert [record for columns in parts for record in as_records(columns)] == expected
    middle = expected[len(expected) // 2].offset if expected else 0
    after = [record for record in expected if record.offset >= middle]
    assert as_records(decode(data, from_offset=middle)) == after


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(0, 200)), min_size=60, max_size=150))
def test_many_batches_walked_together_are_as_right_as_one_by_one(
    shapes: list[tuple[int, int]],
) -> None:
    base, data, expected = 0, b"", []
    for count, size in shapes:
        value = bytes(size) if size % 50 else bytes(size * 200)
        records = [PlainRecord(b"%d" % i, value[i:], (), 9) for i in range(count)]
        data += encode_batch(records, base_offset=base)
        expected += placed(records, base)
        base += count

    columns = decode(data)

    assert columns.offsets.tolist() == list(range(base))
    assert columns.keys.to_pylist() == [record.key for record in expected]
    assert columns.values.to_pylist() == [record.value for record in expected]


def test_gaps_that_compaction_left_stay_gaps() -> None:
    kept = [PlainRecord(b"a", b"1", (), 5, 103), PlainRecord(b"b", None, (), 6, 150)]
    empty = encode_batch([], base_offset=200, last_offset_delta=99)

    columns = decode(encode_batch(kept, base_offset=100, last_offset_delta=99) + empty)

    assert as_records(columns) == kept


def test_append_time_and_delete_horizon_are_understood() -> None:
    records = [PlainRecord(b"a", b"1", (), 5), PlainRecord(b"b", b"2", (), 90)]
    appended = encode_batch(records, attributes=LOG_APPEND_TIME)
    cleaned = encode_batch(records, delete_horizon_ms=10**12, base_offset=2)

    assert decode(appended + cleaned).timestamps_ms.tolist() == [90, 90, 5, 90]


def test_nothing_decodes_to_nothing() -> None:
    assert len(decode(b"")) == 0
    assert len(decode(encode_batch([], last_offset_delta=3))) == 0
    assert encode(cells([]), cells([]), timestamps_ms=0) == []


@given(RECORDS)
def test_one_header_is_read_as_a_column(records: list[PlainRecord]) -> None:
    columns = decode(b"".join(bytes(batch.data) for batch in encode_columns(records)))

    for name in {name for record in records for name, _ in record.headers} | {"absent"}:
        last = [dict(record.headers).get(name) for record in records]
        assert header_column(columns.headers, name).to_pylist() == last


@given(st.lists(CELLS, min_size=1, max_size=2 * FEW), CELLS)
def test_header_columns_mix_constants_and_columns(
    column: list[bytes | None], constant: bytes | None
) -> None:
    encoded = encode_header_columns({"lsn": cells(column), "schema": constant}, len(column))

    assert encoded.to_pylist() == [
        encode_headers((("lsn", cell), ("schema", constant))) for cell in column
    ]
    assert encode_header_columns({"s": b"1"}, 2).to_pylist() == [encode_headers((("s", b"1"),))] * 2
    assert encode_header_columns({}, 1).to_pylist() == [b"\0"]


@given(st.lists(CELLS, min_size=1, max_size=2 * FEW), st.data())
def test_headers_that_only_some_records_have_come_last(
    column: list[bytes | None], data: st.DataObject
) -> None:
    other = data.draw(st.lists(CELLS, min_size=len(column), max_size=len(column)))

    encoded = encode_header_columns(
        {"s": b"1"}, len(column), where_valid={"a": cells(column), "b": cells(other)}
    )

    assert encoded.to_pylist() == [
        encode_headers([("s", b"1"), *((name, cell) for name, cell in pairs if cell is not None)])
        for pairs in (
            (("a", first), ("b", second)) for first, second in zip(column, other, strict=True)
        )
    ]


def test_constant_headers_need_no_column() -> None:
    headers = (("headwater.schema", b"17"), ("none", None))
    keys = cells([b"a", None])

    (batch,) = encode(keys, keys, timestamps_ms=3, headers=encode_headers(headers))

    seal(batch.data)
    assert [record.headers for record in decode_batch(batch.data)[1]] == [headers, headers]


def test_records_that_do_not_shrink_are_stored_as_they_are() -> None:
    (batch,) = encode(cells([b"k"]), cells([b"v"]), timestamps_ms=0, compression=4)

    assert BatchHeader.read(batch.data).compression == 0


@pytest.mark.parametrize("is_noise", [False, True])
def test_compressible_records_are_laid_out_in_larger_batches(is_noise: bool) -> None:
    limit, wide, count = 4_000, 16_000, 100
    noise = np.random.default_rng(1).bytes(count * 200)
    values = [noise[at : at + 200] if is_noise else b"x" * 200 for at in range(0, len(noise), 200)]
    keys, times = [str(number).encode() for number in range(count)], np.arange(count)

    def encoded(laid_out_bytes_max: int, code: int) -> list[Batch]:
        return encode(
            cells([*keys]),
            cells([*values]),
            timestamps_ms=times,
            compression=code,
            batch_bytes_max=limit,
            laid_out_bytes_max=laid_out_bytes_max,
        )

    narrow, larger, plain = encoded(0, 4), encoded(wide, 4), encoded(wide, 0)

    assert max(len(batch.data) for batch in (*larger, *plain)) <= limit
    assert (len(larger) < len(narrow)) != is_noise
    assert len(plain) >= len(narrow)
    assert sum(batch.record_count for batch in larger) == count
    for batch in larger:
        seal(batch.data)
    found = [decode(bytes(batch.data)) for batch in larger]
    assert [key for part in found for key in part.keys.to_pylist()] == keys
    assert [value for part in found for value in part.values.to_pylist()] == values
    assert np.concatenate([part.timestamps_ms for part in found]).tolist() == times.tolist()


@given(st.lists(RECORDS, min_size=1, max_size=3), st.data())
def test_malformed_records_are_refused_or_read_as_the_reference_reads_them(
    batches: list[list[PlainRecord]], data: st.DataObject
) -> None:
    base, encoded = 0, b""
    for records in batches:
        batch = encode_batch(records, base_offset=base)
        if data.draw(st.booleans()):
            batch[data.draw(st.integers(61, len(batch) - 1))] = data.draw(st.integers(0, 255))
        seal(batch)
        encoded, base = encoded + batch, base + len(records)

    try:
        columns = decode(encoded)
        fast = as_records(columns)
    except (HeadwaterError, UnicodeDecodeError):
        return
    slow = [record for batch in iterate_batches(encoded) for record in decode_batch(batch)[1]]
    assert fast == slow


@given(st.binary(min_size=2, max_size=300), st.integers(-2, 2**31 - 1), st.integers(1, 70))
def test_noise_is_refused_without_end_or_excess(noise: bytes, count: int, batches: int) -> None:
    data = np.frombuffer(noise * batches, np.uint8)
    starts = np.arange(batches) * len(noise)
    counts = np.full(batches, min(count, count % 60))

    try:
        fields = read_fields(data, starts, starts + len(noise), counts)
    except DecodeError:
        return
    assert fields.ends.max(initial=0) <= len(data)


def test_a_column_that_is_too_large_comes_in_parts_or_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headwater.core_log.records.record_views.COLUMN_BYTES_MAX", 100)
    data = b"".join(encode_batch([PlainRecord(b"k", bytes(90))], base_offset=i) for i in range(3))

    with pytest.raises(DecodeError, match="beyond one column"):
        decode(data)
    assert sum(len(columns) for columns in decode_parts(data, bytes_max=100)) == 3


def test_a_length_beyond_all_numbers_is_refused_like_any_other_damage() -> None:
    records = [PlainRecord(b"k", b"v" * 40, timestamp_ms=0)] * 2  # a second to be looked for
    data = encode_batch(records)
    data[HEADER_BYTES : HEADER_BYTES + 10] = encode_varint((1 << 63) - 1)
    seal(data)

    with pytest.raises(DecodeError):
        decode(data)
