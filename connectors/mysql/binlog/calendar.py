"""Days and microseconds since 1970 of MySQL's dates; None for zero and partial dates."""

from functools import lru_cache

DAY_US = 86_400_000_000
MONTH_DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
EPOCH_DAY = 719_468
"""Days from 1 March of the year 0 to 1 January 1970."""


@lru_cache(4_096)
def day_of(year: int, month: int, day: int) -> int | None:
    """Returns the number of a day; None if the calendar has no such day, which MySQL can store."""
    if not 1 <= month <= 12 or day < 1:
        return None
    is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if day > MONTH_DAYS[month - 1] + (month == 2 and is_leap):
        return None
    if not year:
        return None
    shifted = year - (month <= 2)
    era, in_era = divmod(shifted, 400)
    in_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146_097 + in_era * 365 + in_era // 4 - in_era // 100 + in_year - EPOCH_DAY


def moment_of(day: int | None, *, hour: int, minute: int, second: int, micro: int) -> int | None:
    """Returns microseconds since 1970."""
    if day is None:
        return None
    return day * DAY_US + ((hour * 60 + minute) * 60 + second) * 1_000_000 + micro
