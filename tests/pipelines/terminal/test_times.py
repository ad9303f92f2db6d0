"""A moment is read as it is written, and nothing else is taken for one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.pipelines.terminal.quantities import parse_time, time_text

NOW_MS = 1_700_000_000_000


@given(st.integers(0, 253_402_300_799_999))
def test_printed_times_are_parsed_back(timestamp_ms: int) -> None:
    assert parse_time(time_text(timestamp_ms), NOW_MS) == timestamp_ms


@pytest.mark.parametrize(
    ("text", "timestamp_ms"),
    [
        ("1970-01-01", 0),
        ("1970-01-01T00:00:01.5", 1500),
        ("1970-01-01T01:00+01:00", 0),
        ("1970-01-01 00:01", 60_000),
        ("500ms", NOW_MS - 500),
        ("10m", NOW_MS - 600_000),
        ("2d", NOW_MS - 2 * 86_400_000),
        ("99999d", 0),
    ],
)
def test_a_moment_has_several_spellings(text: str, timestamp_ms: int) -> None:
    assert parse_time(text, NOW_MS) == timestamp_ms


@pytest.mark.parametrize("text", ["", "10", "10 m", "-5m", "yesterday", "2026-02-30", "1.5h"])
def test_text_that_is_no_time_is_none(text: str) -> None:
    assert parse_time(text, NOW_MS) is None


def test_a_timestamp_that_no_calendar_holds_stays_a_number() -> None:
    assert time_text(-1) == "-"
    assert time_text(1 << 62) == str(1 << 62)
