"""Days and moments that Arrow has no text for are written and read without a loss."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core_log.rows.text.time import infinities
from headwater.sinks.extreme_datetimes import datetime_texts, plain, read, with_eras

ENDS = infinities("us")
MOMENTS = st.lists(
    st.one_of(st.none(), st.sampled_from([*ENDS]), st.integers(-(21 * 10**16), 9 * 10**18)),
    min_size=1,
)
DAYS = st.lists(st.one_of(st.none(), st.sampled_from([2**31 - 1, -(2**31)]),
                          st.integers(-2_440_000, 2_145_031_948)), min_size=1)  # fmt: skip


@given(MOMENTS)
def test_moments_come_back_as_they_were(numbers: list[int | None]) -> None:
    column = pa.array(numbers, pa.int64()).view(pa.timestamp("us"))

    text = datetime_texts(column)

    assert read(text, column.type).equals(column)
    assert read(with_eras(text, zone="+00"), column.type).equals(column)


@given(DAYS)
def test_days_come_back_as_they_were(numbers: list[int | None]) -> None:
    column = pa.array(numbers, pa.int32()).view(pa.date32())

    text = datetime_texts(column)

    assert read(text, column.type).equals(column)
    assert read(with_eras(text), column.type).equals(column)


def test_the_ends_of_time_are_words_and_other_eras_are_said() -> None:
    numbers = [*ENDS, -62_135_596_800_000_000 - 1, 253_402_300_800_000_000]
    column = pa.array(numbers, pa.int64()).view(pa.timestamp("us"))

    assert with_eras(datetime_texts(column), zone="+00").to_pylist() == [
        "infinity",
        "-infinity",
        "0001-12-31 23:59:59.999999+00 BC",
        "10000-01-01 00:00:00.000000+00",
    ]


def test_extreme_datetimes_in_lists_and_structs_are_text() -> None:
    kind = pa.struct([("at", pa.list_(pa.date32()))])
    days = pa.array([2**31 - 1, 0, None], pa.int32()).view(pa.date32())
    value = pa.scalar({"at": None}, kind)
    lists = pa.ListArray.from_arrays([0, 3], days)
    whole = pa.StructArray.from_arrays([lists], names=["at"])

    assert plain(value) == {"at": None}
    found = plain(whole[0])
    assert found["at"][0] == "infinity" and str(found["at"][1]) == "1970-01-01"
    assert found["at"][2] is None


def test_text_that_is_no_timestamp_is_refused() -> None:
    with pytest.raises(ValueError, match="not a timestamp"):
        read(pa.array(["tomorrow"]), pa.timestamp("us"))
