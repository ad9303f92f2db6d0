"""Times of day to text and back, with 24:00:00 and beyond."""

import re

import pyarrow as pa
import pyarrow.compute as pc

from headwater.sinks.extreme_datetimes import PER_DAY

DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
FORM = re.compile(r"(-?)(\d+):(\d\d):(\d\d)(?:\.(\d{1,9}))?")


def are_within(column: pa.Array) -> pa.BooleanArray:
    """Returns which times are before the end of the day; null for null."""
    numbers = _numbers(column)
    is_within = pc.and_(pc.greater_equal(numbers, 0), pc.less(numbers, PER_DAY[column.type.unit]))
    return is_within.fill_null(True)


def clock_texts(column: pa.Array) -> pa.StringArray:
    """Returns times as text; Arrow does not write the end of a day, `24:00:00`."""
    is_within = are_within(column)
    if pc.all(is_within, min_count=0).as_py():
        return column.cast(pa.string())
    is_far = pc.invert(is_within)
    digits = DIGITS[column.type.unit]
    found = [_text(number, digits) for number in _numbers(column).filter(is_far).to_pylist()]
    return pc.replace_with_mask(column.cast(pa.string()), is_far, pa.array(found, pa.string()))


def read(text: pa.StringArray, kind: pa.DataType) -> pa.Array:
    """Raises `ValueError` for text that is no time, or that has more digits than `kind`."""
    numbers = [
        None if each is None else _number(each, DIGITS[kind.unit]) for each in text.to_pylist()
    ]
    return pa.array(numbers, pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)


def _numbers(column: pa.Array) -> pa.Array:
    return column.view(pa.int32() if column.type.bit_width == 32 else pa.int64()).cast(pa.int64())


def _text(number: int, digits: int) -> str:
    seconds, fraction = divmod(abs(number), 10**digits)
    clock = f"{seconds // 3_600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    behind = f".{fraction:0{digits}}" if fraction else ""
    return f"{'-' if number < 0 else ''}{clock}{behind}"


def _number(text: str, digits: int) -> int:
    match = FORM.fullmatch(text)
    if match is None:
        raise ValueError("the text is not a time of day")
    sign, hours, minutes, seconds, behind = match.groups()
    fraction = (behind or "").ljust(digits, "0")
    if fraction[digits:].strip("0"):
        raise ValueError("the time has more digits than its type")
    whole: int = (int(hours) * 60 + int(minutes)) * 60 + int(seconds)
    number = whole * int(10**digits) + int(fraction[:digits] or 0)
    return -number if sign else number
