"""Times of day keep every value that a database has, in Debezium's form and in its own."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core_log.rows.text.datetime import (
    PER_DAY,
    iso_text_to_times,
    text_to_times,
    times_to_iso_text,
    times_to_text,
)

KINDS = [pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")]


@st.composite
def columns(draw: st.DrawFn, *, days_max: int) -> pa.Array:
    kind = draw(st.sampled_from(KINDS))
    day = PER_DAY[kind.unit]
    low = 0 if days_max == 1 else -days_max * day
    numbers = st.integers(low, days_max * day) | st.sampled_from([0, day])
    values = draw(st.lists(st.none() | numbers, max_size=6))
    return pa.array(values, pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)


@given(columns(days_max=1))
def test_a_time_of_day_comes_back_from_debeziums_text(column: pa.Array) -> None:
    assert iso_text_to_times(times_to_iso_text(column), column.type).equals(column)


@given(columns(days_max=20))
def test_a_time_beyond_a_day_comes_back_from_a_databases_text(column: pa.Array) -> None:
    text = times_to_text(column)

    assert text_to_times(text, column.type, may_exceed_a_day=True).equals(column)


def test_debeziums_text_has_seconds_and_no_zeros_at_its_end() -> None:
    micros = pa.array([0, 45_296_100_000, 86_400_000_000, None], pa.int64()).view(pa.time64("us"))

    assert times_to_iso_text(micros).to_pylist() == ["00:00:00Z", "12:34:56.1Z", "24:00:00Z", None]


@pytest.mark.parametrize("text", ["25:00:00", "24:00:01", "-01:00:00", "noon", "12:00:00.1234"])
def test_another_text_is_no_time_of_day(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        text_to_times(pa.array([text]), pa.time32("ms"))
    with pytest.raises(ValueError, match=r"\w"):
        iso_text_to_times(pa.array([text]), pa.time32("ms"))
