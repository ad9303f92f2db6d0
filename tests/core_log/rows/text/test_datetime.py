"""Days and moments that Arrow has no text for are written and read without a loss."""

from typing import Literal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core_log.rows.text.datetime import (
    database_text,
    from_database_text,
    infinities,
    python_value,
    text_to_moments,
    with_eras,
)

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

    text = database_text(column)

    assert from_database_text(text, column.type).equals(column)
    assert from_database_text(with_eras(text, zone="+00"), column.type).equals(column)


@given(DAYS)
def test_days_come_back_as_they_were(numbers: list[int | None]) -> None:
    column = pa.array(numbers, pa.int32()).view(pa.date32())

    text = database_text(column)

    assert from_database_text(text, column.type).equals(column)
    assert from_database_text(with_eras(text), column.type).equals(column)


def test_the_ends_of_time_are_words_and_other_eras_are_said() -> None:
    numbers = [*ENDS, -62_135_596_800_000_000 - 1, 253_402_300_800_000_000]
    column = pa.array(numbers, pa.int64()).view(pa.timestamp("us"))

    assert with_eras(database_text(column), zone="+00").to_pylist() == [
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

    assert python_value(value) == {"at": None}
    found = python_value(whole[0])
    assert found["at"][0] == "infinity" and str(found["at"][1]) == "1970-01-01"
    assert found["at"][2] is None


def test_text_that_is_no_timestamp_is_refused() -> None:
    with pytest.raises(ValueError, match="not a timestamp"):
        from_database_text(pa.array(["tomorrow"]), pa.timestamp("us"))


@pytest.mark.parametrize(
    ("kind", "zone"),
    [(pa.timestamp("us"), ""), (pa.timestamp("us", "UTC"), "+00"), (pa.timestamp("ms"), "")],
    ids=str,
)
def test_a_database_text_is_read_with_and_without_its_zone(kind: pa.DataType, zone: str) -> None:
    texts = pa.array([f"2026-01-02 03:04:05.25{zone}", None, f"0044-03-15 12:00:00{zone} BC"])

    found = from_database_text(texts, kind)

    assert database_text(found.cast(pa.timestamp(kind.unit))).to_pylist() == [
        "2026-01-02 03:04:05.250000"[: -3 if kind.unit == "ms" else None],
        None,
        "-0043-03-15T12:00:00.000000".replace("T", " ")[: -3 if kind.unit == "ms" else None],
    ]


@pytest.mark.parametrize("text", ["10000-01-01T00:00:00", "10000-01-01Z", "-infinityZ"])
def test_an_iso_text_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a timestamp"):
        text_to_moments(pa.array([text]), pa.timestamp("us"))


def test_more_digits_than_the_column_has_are_refused_in_far_years_too() -> None:
    with pytest.raises(ValueError, match="more digits"):
        text_to_moments(pa.array(["+10000-01-01T00:00:00.1234Z"]), pa.timestamp("ms"))
    with pytest.raises(ValueError, match="beyond the range"):
        text_to_moments(pa.array(["+300000-01-01T00:00:00Z"]), pa.timestamp("us"))


@pytest.mark.parametrize("unit", ["s", "ms"])
def test_digits_beyond_the_unit_are_read_if_they_are_zeros(unit: Literal["s", "ms"]) -> None:
    kind = pa.timestamp(unit)

    read = from_database_text(pa.array(["1969-12-31 23:59:59.000000", None]), kind)

    assert read.cast(pa.int64()).to_pylist() == [-1 if unit == "s" else -1000, None]
    with pytest.raises(ValueError):
        from_database_text(pa.array(["1969-12-31 23:59:59.000001"]), kind)
