"""Columns of varints are the varints of their rows, whatever the mix of sizes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.records.record_codec import encode_varint
from headwater.core_log.records.varint import read_varints, varint_lengths, write_varints

NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.integers(-200, 200) | st.integers(-20_000, 20_000)
ROWS = st.integers(1, 5).flatmap(
    lambda width: st.lists(st.tuples(*[NUMBERS] * width), min_size=1, max_size=12)
)


@given(ROWS)
def test_rows_of_numbers_are_written_side_by_side_and_read_back(rows: list[tuple[int]]) -> None:
    columns = [np.array(column, dtype=np.int64) for column in zip(*rows, strict=True)]

    written = write_varints(*columns).to_pylist()

    assert written == [b"".join(map(encode_varint, row)) for row in rows]
    data = np.frombuffer(b"".join(written), np.uint8)
    position = np.cumsum([0, *map(len, written[:-1])])
    for column in columns:
        starts = position
        numbers, position = read_varints(data, starts)
        assert numbers.tolist() == column.tolist()
        assert (position - starts).tolist() == varint_lengths(column).tolist()


@given(st.binary(min_size=1, max_size=40), st.lists(st.integers(0, 60), max_size=9))
def test_reading_anywhere_stays_within_the_bytes(noise: bytes, positions: list[int]) -> None:
    try:
        read_varints(np.frombuffer(noise, np.uint8), np.array(positions, dtype=np.int64))
    except DecodeError:
        assert any(byte >= 0x80 for byte in noise)


def test_a_number_without_end_is_refused() -> None:
    with pytest.raises(DecodeError, match="does not end"):
        read_varints(np.full(30, 0x80, dtype=np.uint8), np.array([3]))
