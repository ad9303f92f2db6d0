"""Parses dates, times and timestamps in PostgreSQL's ISO text, including infinity and years BC."""

import re
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.connectors.postgres.types.column_reader import TypeReader
from headwater.core_log.rows.text.time import DIGITS, INFINITE_MS

DAY_US = 86_400 * 10**6
EPOCH_DAYS = 10_957
"""From 1970 to 2000, PostgreSQL's epoch."""
EPOCH_US = EPOCH_DAYS * DAY_US
ERA_YEARS, ERA_DAYS = 400, 146_097
"""The calendar repeats after this period."""
INFINITE_DAYS = {"infinity": 2**31 - 1, "-infinity": -(2**31)}
"""Beyond every date of PostgreSQL."""
INFINITE_US = {2**63 - 1: "infinity", -(2**63): "-infinity"}
COARSE_DIGITS_MAX = 3
FAR = re.compile(
    r"(\d{4,7})-(\d\d)-(\d\d)(?: (\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?)?(?:\+00)?( BC)?"
)
ZONED_TIME = (
    r"^(?P<clock>\d\d:\d\d:\d\d(?:\.\d+)?)(?P<sign>[+-])(?P<hours>\d\d)"
    r"(?::(?P<minutes>\d\d))?(?::(?P<seconds>\d\d))?$"
)


def date_reading() -> TypeReader:
    return TypeReader(pa.date32(), _dates)


def time_reading(modifier: int) -> TypeReader:
    if 0 <= modifier <= COARSE_DIGITS_MAX:
        return TypeReader(pa.time32("ms"), lambda text: _times(text, pa.time32("ms")))
    return TypeReader(pa.time64("us"), lambda text: _times(text, pa.time64("us")))


def timestamp_reading(modifier: int) -> TypeReader:
    kind = pa.timestamp(_unit(modifier))
    return TypeReader(kind, lambda text: _moments(text, kind))


def zoned_timestamp_reading(modifier: int) -> TypeReader:
    kind = pa.timestamp(_unit(modifier), "UTC")
    shown = {} if modifier in (-1, 3, 6) else {DIGITS: str(modifier)}
    return TypeReader(kind, lambda text: _moments(text, kind), parameters=shown)


def zoned_time_reading() -> TypeReader:
    return TypeReader(pa.string(), _zoned_times, "io.debezium.time.ZonedTime")


def _unit(modifier: int) -> str:
    return "ms" if 0 <= modifier <= COARSE_DIGITS_MAX else "us"


def _dates(text: pa.StringArray) -> pa.Array:
    try:
        return text.cast(pa.date32())
    except pa.ArrowInvalid:
        is_near = pc.match_substring_regex(text, r"^\d{4}-\d\d-\d\d$")
        near = pc.if_else(is_near, text, None).cast(pa.date32()).view(pa.int32())
        return _with_far(near, text, is_near, _far_days).view(pa.date32())


def _moments(text: pa.StringArray, kind: pa.DataType) -> pa.Array:
    try:
        return text.cast(kind)
    except pa.ArrowInvalid:
        is_near = pc.match_substring_regex(text, r"^\d{4}-\d\d-\d\d [0-9:.]+(?:\+00)?$")
        near = pc.if_else(is_near, text, None).cast(kind).view(pa.int64())
        per_ms = 1 if kind.unit == "ms" else 1_000

        def far(value: str) -> int:
            if value in INFINITE_MS:
                return INFINITE_MS[value] * per_ms
            return _far_us(value) * per_ms // 1_000

        return _with_far(near, text, is_near, far).view(kind)


def _with_far(near: pa.Array, text: pa.StringArray, is_near: pa.Array, far: object) -> pa.Array:
    """Parses one by one the values that Arrow does not read: the few infinite ones and those of
    other eras."""
    assert callable(far)
    is_far = pc.invert(is_near).fill_null(False)
    found = [far(value) for value in text.filter(is_far).to_pylist()]
    return pc.replace_with_mask(near, is_far, pa.array(found, near.type))


class _Far(NamedTuple):
    days: int
    clock_us: int


def _far(text: str) -> _Far:
    match = FAR.fullmatch(text)
    if match is None:
        raise ValueError("the text is not a date of PostgreSQL")
    year, month, day, hours, minutes, seconds, fraction, is_before = match.groups()
    number = 1 - int(year) if is_before else int(year)
    eras = (number - 1970) // ERA_YEARS
    near = np.datetime64(f"{number - eras * ERA_YEARS:04}-{month}-{day}", "D")
    clock = int(hours or 0) * 3_600 + int(minutes or 0) * 60 + int(seconds or 0)
    micros = int((fraction or "").ljust(6, "0"))
    return _Far(int(near.astype(np.int64)) + eras * ERA_DAYS, clock * 10**6 + micros)


def _far_days(text: str) -> int:
    return INFINITE_DAYS[text] if text in INFINITE_DAYS else _far(text).days


def _far_us(text: str) -> int:
    days, clock_us = _far(text)
    return days * DAY_US + clock_us


def _times(text: pa.StringArray, kind: pa.DataType) -> pa.Array:
    """Parses times as timestamps of one day or its end, because Arrow parses only those."""
    stored = pa.int32() if kind.bit_width == 32 else pa.int64()
    is_end = pc.starts_with(text, "24:")
    has_end = pc.any(is_end).as_py()
    clocks = pc.if_else(is_end, "00:00:00", text) if has_end else text
    moments = pc.binary_join_element_wise("1970-01-01", clocks, " ").cast(pa.timestamp(kind.unit))
    numbers = moments.view(pa.int64())
    if has_end:
        day = DAY_US if kind.unit == "us" else DAY_US // 1_000
        numbers = pc.if_else(is_end, day, numbers)
    return numbers.cast(stored).view(kind)


def _zoned_times(text: pa.StringArray) -> pa.Array:
    """Returns times in UTC, with seconds, and with a fraction only if it is not zero."""
    parts = pc.extract_regex(text, ZONED_TIME)
    clock = _times(pc.struct_field(parts, "clock"), pa.time64("us")).view(pa.int64())
    offset = pa.array(np.zeros(len(text), np.int64))
    for name, seconds in (("hours", 3_600), ("minutes", 60), ("seconds", 1)):
        part = pc.struct_field(parts, name)
        number = pc.if_else(pc.equal(part, ""), "0", part).cast(pa.int64())
        offset = pc.add(offset, pc.multiply(number, seconds * 10**6))
    is_west = pc.equal(pc.struct_field(parts, "sign"), "-")
    moved = pc.if_else(is_west, pc.add(clock, offset), pc.subtract(clock, offset))
    numbers = moved.fill_null(0).to_numpy() % DAY_US
    plain = pa.array(numbers, mask=moved.is_null().to_numpy(zero_copy_only=False))
    shown = plain.view(pa.time64("us")).cast(pa.string())
    bare = pc.utf8_rtrim(pc.utf8_rtrim(shown, "0"), ".")
    has_fraction = pc.match_substring(shown, ".")
    return pc.binary_join_element_wise(pc.if_else(has_fraction, bare, shown), "Z", "")


def date_text(days: int) -> str:
    """Returns PostgreSQL's text of a date, given as days since 2000."""
    for word, infinite in INFINITE_DAYS.items():
        if days == infinite:
            return word
    day, era = _calendar(days)
    return day + era


def moment_text(since_2000: int, zone: str) -> str:
    """Returns PostgreSQL's text of a timestamp, given as microseconds since 2000."""
    if since_2000 in INFINITE_US:
        return INFINITE_US[since_2000]
    days, clock_us = divmod(since_2000, DAY_US)
    day, era = _calendar(days)
    seconds, micros = divmod(clock_us, 10**6)
    clock = f"{seconds // 3_600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    fraction = f".{micros:06}".rstrip("0") if micros else ""
    return f"{day} {clock}{fraction}{zone}{era}"


def _calendar(days: int) -> tuple[str, str]:
    eras, rest = divmod(days + EPOCH_DAYS, ERA_DAYS)
    near, _, day = str(np.datetime64(rest, "D")).partition("-")
    year = int(near) + eras * ERA_YEARS
    return (f"{year:04}-{day}", "") if year > 0 else (f"{1 - year:04}-{day}", " BC")
