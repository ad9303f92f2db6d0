"""Columns of times of day as text and back, with 24:00:00 and beyond."""

import re

import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.rows.text.datetime import PER_DAY, UNIT_DIGITS

END_OF_DAY = r"^24:00:00(\.0+)?$"
"""A time of day in PostgreSQL and for Debezium; Arrow neither reads nor writes it."""
CLOCK = re.compile(r"(-?)(\d+):(\d\d):(\d\d)(?:\.(\d{1,9}))?")


def times_to_text(column: pa.Array) -> pa.StringArray:
    """Returns times with all digits of their unit."""
    is_within = are_within(column)
    if pc.all(is_within, min_count=0).as_py():
        return column.cast(pa.string())
    is_beyond = pc.invert(is_within)
    digits = UNIT_DIGITS[column.type.unit]
    found = [_clock(number, digits) for number in _numbers(column).filter(is_beyond).to_pylist()]
    return pc.replace_with_mask(column.cast(pa.string()), is_beyond, pa.array(found, pa.string()))


def times_to_iso_text(column: pa.Array) -> pa.StringArray:
    """`12:34:56.1Z`: seconds always, and no zeros at the end of a fraction."""
    text = times_to_text(column)
    if column.type.unit != "s":
        has_point = pc.match_substring(text, ".")
        text = pc.if_else(has_point, pc.utf8_rtrim(pc.utf8_rtrim(text, "0"), "."), text)
    return pc.binary_join_element_wise(text, "Z", "")


def text_to_times(
    text: pa.StringArray, kind: pa.DataType, *, may_exceed_a_day: bool = False
) -> pa.Array:
    """Raises `ValueError` for text that is no time, or that has more digits than `kind`."""
    stored = pa.int32() if kind.bit_width == 32 else pa.int64()
    # Arrow parses timestamps only, so these become timestamps of one day.
    moments = pc.binary_join_element_wise("1970-01-01", text, " ")
    try:
        return moments.cast(pa.timestamp(kind.unit)).view(pa.int64()).cast(stored).view(kind)
    except pa.ArrowInvalid:
        if may_exceed_a_day:
            numbers = [None if each is None else _number(each, kind) for each in text.to_pylist()]
            return pa.array(numbers, stored).view(kind)
    is_end = pc.match_substring_regex(text, END_OF_DAY)
    moments = pc.if_else(is_end, "1970-01-01", moments).cast(pa.timestamp("ns"))
    numbers = moments.cast(pa.timestamp(kind.unit)).view(pa.int64())
    return pc.if_else(is_end, PER_DAY[kind.unit], numbers).cast(stored).view(kind)


def iso_text_to_times(text: pa.StringArray, kind: pa.DataType) -> pa.Array:
    if not pc.all(pc.ends_with(text, "Z"), min_count=0).as_py():
        raise ValueError("the text is not a time in UTC")
    return text_to_times(pc.utf8_slice_codeunits(text, 0, -1), kind)


def are_within(column: pa.Array) -> pa.BooleanArray:
    """Returns which times are before the end of the day; true for null."""
    numbers = _numbers(column)
    is_within = pc.and_(pc.greater_equal(numbers, 0), pc.less(numbers, PER_DAY[column.type.unit]))
    return is_within.fill_null(True)


def _numbers(column: pa.Array) -> pa.Array:
    return column.view(pa.int32() if column.type.bit_width == 32 else pa.int64()).cast(pa.int64())


def _clock(number: int, digits: int) -> str:
    seconds, fraction = divmod(abs(number), 10**digits)
    clock = f"{seconds // 3_600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    behind = f".{fraction:0{digits}}" if fraction else ""
    return f"{'-' if number < 0 else ''}{clock}{behind}"


def _number(text: str, kind: pa.DataType) -> int:
    match, digits = CLOCK.fullmatch(text), UNIT_DIGITS[kind.unit]
    if match is None:
        raise ValueError("the text is not a time of day")
    sign, hours, minutes, seconds, behind = match.groups()
    fraction = (behind or "").ljust(digits, "0")
    if fraction[digits:].strip("0"):
        raise ValueError("the time has more digits than its type")
    whole: int = (int(hours) * 60 + int(minutes)) * 60 + int(seconds)
    number = whole * int(10**digits) + int(fraction[:digits] or 0)
    return -number if sign else number
