"""What is scheduled begins as often as was said, and only in the hours that were said."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from headwater.core_log.foundation.schedule import Schedule

HOUR_MS = 3_600_000
NOON_MS = round(datetime(2026, 3, 4, 12, 0, tzinfo=UTC).timestamp() * 1_000)
TIMES = st.integers(0, 4_000_000_000_000)


def test_an_interval_counts_from_the_last_beginning() -> None:
    schedule = Schedule(every_ms=HOUR_MS)

    assert schedule.due_ms(last_ms=None, now_ms=NOON_MS) == NOON_MS
    assert schedule.due_ms(last_ms=NOON_MS, now_ms=NOON_MS + 5) == NOON_MS + HOUR_MS
    assert schedule.due_ms(last_ms=NOON_MS - 9 * HOUR_MS, now_ms=NOON_MS) == NOON_MS


def test_a_cron_expression_says_when_and_never_twice_for_one_time() -> None:
    schedule = Schedule(cron="0 */6 * * *")

    first = schedule.due_ms(last_ms=None, now_ms=NOON_MS - 5)
    second = schedule.due_ms(last_ms=first, now_ms=first)

    assert (first, second) == (NOON_MS, NOON_MS + 6 * HOUR_MS)


def test_a_cron_expression_waits_for_a_time_that_its_window_allows() -> None:
    schedule = Schedule(cron="30 * * * *", between="22:00-06:00")

    due = schedule.due_ms(last_ms=None, now_ms=NOON_MS)

    assert due == NOON_MS + 10 * HOUR_MS + HOUR_MS // 2


@pytest.mark.property
@given(last=st.none() | TIMES, now=TIMES, start=st.integers(0, 1439), end=st.integers(0, 1439))
def test_a_scheduled_task_begins_as_soon_as_its_window_allows(
    last: int | None, now: int, start: int, end: int
) -> None:
    between = f"{start // 60:02}:{start % 60:02}-{end // 60:02}:{end % 60:02}"
    schedule = Schedule(every_ms=HOUR_MS, between=between)

    due = schedule.due_ms(last_ms=last, now_ms=now)

    wanted = now if last is None else max(now, last + HOUR_MS)
    assert wanted <= due < wanted + 24 * HOUR_MS + 1
    assert minute_is_inside(due, start, end)
    assert due == wanted or due // 60_000 % 1440 == start


def minute_is_inside(at_ms: int, start: int, end: int) -> bool:
    minute = at_ms // 60_000 % 1440
    if start == end:
        return True
    return start <= minute < end if start < end else minute >= start or minute < end


@pytest.mark.parametrize("text", ["25:00-26:00", "8-9", "08:00", "08:00-09:60"])
def test_hours_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ValidationError):
        Schedule(between=text)


def test_a_cron_expression_that_never_comes_into_its_hours_is_refused() -> None:
    with pytest.raises(ValidationError, match="has no time"):
        Schedule(cron="0 12 * * *", between="22:00-06:00")
