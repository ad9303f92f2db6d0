"""Days and microseconds since 1970 of MySQL's dates; there are dates that no calendar has."""

import numpy as np

from headwater.core_log.foundation.array_types import BoolArray, Int64Array

DAY_US = 86_400_000_000
MONTH_DAYS = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31, 0, 0, 0])
EPOCH_DAY = 719_468
"""Days from 1 March of the year 0 to 1 January 1970."""


def days_of(year: Int64Array, month: Int64Array, day: Int64Array) -> tuple[Int64Array, BoolArray]:
    """Returns the numbers of days, and which of them a calendar has: MySQL can store others. The
    months are below 16."""
    is_leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    last = MONTH_DAYS[month] + ((month == 2) & is_leap)
    is_real = (year > 0) & (day > 0) & (day <= last)
    shifted = year - (month <= 2)
    era = shifted // 400
    in_era = shifted - era * 400
    in_year = (153 * (month + np.where(month > 2, -3, 9)) + 2) // 5 + day - 1
    days = era * 146_097 + in_era * 365 + in_era // 4 - in_era // 100 + in_year - EPOCH_DAY
    return days, is_real


def moments_of(
    days: Int64Array, hour: Int64Array, minute: Int64Array, second: Int64Array, micro: Int64Array
) -> Int64Array:
    """Returns microseconds since 1970."""
    return days * DAY_US + ((hour * 60 + minute) * 60 + second) * 1_000_000 + micro
