"""Records are found as they are read one by one, with compiled code and without."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.foundation.speed import chosen_speed
from headwater.core_log.records import arrow_codec, record_views
from headwater.core_log.records.batch_header import HEADER_BYTES, BatchHeader, seal
from headwater.core_log.records.compression import Compression, compress
from headwater.core_log.records.record_codec import decode_batch, iterate_batches
from headwater.core_log.records.record_headers import encode_header_columns, encode_headers
from headwater.core_log.records.record_views import (
    NO_NUMBER,
    RecordColumns,
    RecordField,
    RecordScratch,
    RecordViews,
    locate,
    locate_parts,
)

BYTES = st.none() | st.binary(max_size=300)


@pytest.fixture(params=["python", "fast"])
def speed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both twins, however few records there are."""
    if request.param == "fast":
        pytest.importorskip("numba")
    monkeypatch.setattr(record_views, "COMPILED_RECORDS_MIN", 0)
    monkeypatch.setenv("HEADWATER_SPEED", request.param)
    record_views._walk.cache_clear()
    record_views._walk().wait_until_loaded()
    record_views._walk().wait()
    assert chosen_speed() == request.param
    return str(request.param)


@pytest.fixture(autouse=True)
def forgotten() -> None:
    record_views._walk.cache_clear()


def batches(
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    *,
    compression: int,
    headers: bytes | pa.Array = b"\0",
    bytes_max: int = 1 << 20,
) -> bytes:
    """As they lie in a log, one behind the other."""
    found, offset = bytearray(), 0
    for batch in arrow_codec.encode(
        pa.array(keys, pa.binary()),
        pa.array(values, pa.binary()),
        timestamps_ms=np.arange(len(keys)) * 7,
        headers=headers,
        compression=compression,
        batch_bytes_max=bytes_max,
    ):
        seal(batch.data)
        batch.data[:8] = offset.to_bytes(8, "big")
        offset += batch.record_count
        found += batch.data
    return bytes(found)


def read_one_by_one(data: bytes, *, from_offset: int = 0) -> RecordColumns:
    """Slow and obvious."""
    records = [each for batch in iterate_batches(data) for each in decode_batch(batch)[1]]
    records = [each for each in records if each.offset >= from_offset]
    return RecordColumns(
        np.array([each.offset for each in records], np.int64),
        np.array([each.timestamp_ms for each in records], np.int64),
        pa.array([each.key for each in records], pa.binary()),
        pa.array([each.value for each in records], pa.binary()),
        pa.array([encode_headers(each.headers) for each in records], pa.binary()),
    )


def assert_same(found: RecordViews, expected: RecordColumns) -> None:
    columns = found.columns()
    assert columns.offsets.tolist() == expected.offsets.tolist()
    assert columns.timestamps_ms.tolist() == expected.timestamps_ms.tolist()
    assert columns.keys.to_pylist() == expected.keys.to_pylist()
    assert columns.values.to_pylist() == expected.values.to_pylist()
    assert columns.headers.to_pylist() == expected.headers.to_pylist()


@settings(max_examples=80)
@given(
    rows=st.lists(st.tuples(BYTES, BYTES), min_size=1, max_size=30),
    compression=st.sampled_from(list(Compression)),
    bytes_max=st.integers(100, 2_000),
    start=st.integers(0, 31),
)
@pytest.mark.parametrize("twin", ["python", "fast"])
def test_records_are_found_as_they_are_read_one_by_one(
    twin: str, rows: list[tuple[bytes | None, bytes | None]], compression: int, bytes_max: int,
    start: int,
) -> None:  # fmt: skip
    data = batches(*zip(*rows, strict=True), compression=compression, bytes_max=bytes_max)
    scratch = RecordScratch()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_views, "COMPILED_RECORDS_MIN", 0 if twin == "fast" else 1 << 40)
        record_views._walk().wait_until_loaded()
        record_views._walk().wait()
        for from_offset in (0, start):
            found = locate(data, scratch, from_offset=from_offset)

            expected = read_one_by_one(data, from_offset=from_offset)
            assert_same(found, expected)
            parts = locate_parts(data, scratch, from_offset=from_offset, bytes_max=600)
            keys = [key for part in parts for key in part.keys.column().to_pylist()]
            assert keys == expected.keys.to_pylist()


def test_earlier_contents_of_the_scratch_do_not_shine_through(speed: str) -> None:
    scratch = RecordScratch()
    locate(batches([b"k"] * 9, [b"9" * 500] * 9, compression=4), scratch)
    data = batches([b"a", None], [b"1", b"22"], compression=4)

    found = locate(data, scratch)

    assert_same(found, read_one_by_one(data))
    assert len(found.keys.data) >= int(found.values.ends.max()) + record_views.SLACK_BYTES


def test_a_section_of_several_frames_is_read_whole(speed: str) -> None:
    plain = batches([b"a", b"b"], [b"1" * 200, b"2" * 300], compression=0)
    section = plain[HEADER_BYTES:]
    frames = b"".join(bytes(compress(4, part)) for part in (section[:150], section[150:]))
    data = bytearray(plain[:HEADER_BYTES] + frames)
    header = BatchHeader.read(data)
    data[:HEADER_BYTES] = header._replace(
        length=len(data) - 12, attributes=header.attributes | 4
    ).pack()
    seal(data)

    assert_same(locate(bytes(data), RecordScratch()), read_one_by_one(plain))


def test_a_section_without_a_declared_size_is_read_whole(speed: str) -> None:
    plain = batches([b"a"], [b"1" * 200], compression=0)
    stream = zstandard.ZstdCompressor(write_content_size=False)
    data = bytearray(plain[:HEADER_BYTES] + stream.compress(plain[HEADER_BYTES:]))
    header = BatchHeader.read(data)
    data[:HEADER_BYTES] = header._replace(
        length=len(data) - 12, attributes=header.attributes | 4
    ).pack()
    seal(data)

    assert_same(locate(bytes(data), RecordScratch()), read_one_by_one(plain))


@settings(max_examples=300)
@given(st.integers(HEADER_BYTES, 500), st.binary(min_size=1, max_size=4))
@pytest.mark.parametrize("twin", ["python", "fast"])
def test_damage_under_a_sound_checksum_is_found_by_both(twin: str, place: int, put: bytes) -> None:
    data = bytearray(batches([b"key"] * 9, [b"value" * 9] * 9, compression=0))
    place = min(place, len(data) - len(put))
    data[place : place + len(put)] = put
    seal(data)
    try:
        expected = arrow_codec.decode(bytes(data))
    except DecodeError:
        expected = None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_views, "COMPILED_RECORDS_MIN", 0 if twin == "fast" else 1 << 40)
        record_views._walk().wait_until_loaded()
        record_views._walk().wait()
        if expected is None:
            with pytest.raises(DecodeError):
                locate(bytes(data), RecordScratch())
        else:
            assert_same(locate(bytes(data), RecordScratch()), expected)


def test_numbers_are_read_from_the_header_of_that_name(speed: str) -> None:
    numbers = [b"7", b"7", None, b"1234567890"]
    headers = encode_header_columns(
        {"other": b"9", "schema": pa.array(numbers, pa.binary()), "schemas": b"5"}, 4
    )
    plain = encode_header_columns({"other": pa.array([b"1"] * 4, pa.binary())}, 4)
    some = [b"7", b"7", b"1234567890"]
    present = headers.filter(pa.array([number is not None for number in numbers]))

    found = [
        locate(batches([b"k"] * len(each), [b"v"] * len(each), compression=4, headers=each),
               RecordScratch()).header_numbers("schema").tolist()
        for each in (present, plain)
    ]  # fmt: skip

    assert found == [[int(each) for each in some], [NO_NUMBER] * 4]


def test_a_header_that_is_null_is_as_if_it_were_not_there(speed: str) -> None:
    headers = encode_header_columns({"schema": pa.array([b"7", None], pa.binary())}, 2)
    data = batches([b"k"] * 2, [b"v"] * 2, compression=0, headers=headers)

    found = locate(data, RecordScratch()).header_numbers("schema")

    assert found.tolist() == [7, NO_NUMBER]


@given(st.lists(BYTES, max_size=20), st.data())
def test_cells_of_a_column_give_the_column_back(
    values: list[bytes | None], data: st.DataObject
) -> None:
    column = pa.array([b"xyz", *values, b"z"], pa.binary()).slice(1, len(values))
    mask = np.array(
        data.draw(st.lists(st.booleans(), min_size=len(values), max_size=len(values))), bool
    )

    cells = RecordField.of(column)

    assert cells.column().to_pylist() == values
    kept = [value for value, keep in zip(values, mask, strict=True) if keep]
    assert cells.pick(mask).column().to_pylist() == kept
    assert cells.size == sum(len(value or b"") for value in values)
