"""Columns of timestamps, dates and times of day as text and back, in the forms of Debezium and of
databases."""

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.foundation.array_types import BoolArray, Int64Array
from headwater.core_log.rows.arrow_buffers import fixed_width_column, integers, numbers_column

PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
PER_DAY = {"D": 1} | {unit: 86_400 * count for unit, count in PER_SECOND.items()}
UNIT_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
TEXT_WIDTHS = {"s": 19, "ms": 23, "us": 26, "ns": 29}
DIGITS = "digits"
"""Parameter of a column of zoned moments whose precision is none of a unit's."""
LEAST = -(2**63)
YEAR_0, YEAR_10000 = -62_167_219_200, 253_402_300_800
"""In seconds of Unix time: between them a year has four digits."""
INFINITE_MS = {"infinity": 9_223_372_036_825_200, "-infinity": -9_223_372_036_832_400}
"""PostgreSQL's ends of time as Java knows them, and hence Debezium's plain timestamps."""
INFINITE_NS = (2**63 - 1, -(2**63))
INFINITE_DAYS = {"infinity": 2**31 - 1, "-infinity": -(2**31)}
"""Beyond every date of PostgreSQL."""
YEAR_1_DAYS, YEAR_10000_DAYS = -719_162, 2_932_897
"""In days since 1970: between them a year has four digits and is of our era."""
FAR = re.compile(
    r"(?P<sign>[+-]?)(?P<year>\d{4,})(?P<day>-\d\d-\d\d)"
    r"(?:[T ](?P<clock>\d\d:\d\d:\d\d(?:\.(?P<fraction>\d{1,9}))?))?"
    r"(?P<zone>Z|\+00(?::?00)?)?(?P<era> BC)?"
)
NEAR = r"^\d{4}-\d\d-\d\d(?:[ T][0-9:.]+(?:\+00)?)?$"
ZONE = r"(?:Z|\+00(?::?00)?)$"
YEAR = re.compile(r"^-?\d+")
UNWRITTEN = "<"
"""Start of Arrow's output for a timestamp that it cannot write."""
OF_OTHER_ERAS = r"^(?:-\d|0000-)"
END_OF_DAY = r"^24:00:00(\.0+)?$"
"""A time of day in PostgreSQL and for Debezium; Arrow neither reads nor writes it."""
CLOCK = re.compile(r"(-?)(\d+):(\d\d):(\d\d)(?:\.(\d{1,9}))?")


def moments_to_text(column: pa.Array, *, digits: int) -> pa.Array:
    """`2026-11-20T12:34:56.100Z`, with so many digits behind the point, or `infinity`.

    Years of five digits get a sign, as Java writes them.
    """
    text = _whole_text(column, has_infinity=True)
    spare = UNIT_DIGITS[column.type.unit] - digits
    if not spare:
        return text
    cut = spare if digits else spare + 1  # the point goes, too
    bare = pc.binary_join_element_wise(pc.utf8_slice_codeunits(text, 0, -cut - 1), "Z", "")
    return pc.if_else(pc.ends_with(text, "y"), text, bare)


def moments_to_bare_text(column: pa.Array) -> pa.Array:
    """`2026-11-20T12:34:56.1Z`: only digits that say anything. The ends of time are moments, too,
    as they are for Java."""
    text = _whole_text(column, has_infinity=False)
    return text if column.type.unit == "s" else _without_zeros(text)


def _whole_text(column: pa.Array, *, has_infinity: bool) -> pa.Array:
    check_moments(column)
    unit = column.type.unit
    numbers = integers(column)
    per_second = PER_SECOND[unit]
    is_far = (numbers < YEAR_0 * per_second) | (numbers >= YEAR_10000 * per_second)
    near = np.where(is_far, 0, numbers)
    plain = pa.array(near).view(pa.timestamp(unit)).cast(pa.string())
    width = TEXT_WIDTHS[unit]
    text = np.empty((len(column), width + 1), np.uint8)
    if len(column):
        text[:, :width] = np.frombuffer(plain.buffers()[2], np.uint8).reshape(-1, width)
    text[:, 10], text[:, width] = ord("T"), ord("Z")
    found = fixed_width_column(pa.string(), text, like=column)
    if is_far.any():
        infinite = infinities(unit) if has_infinity else {}
        found = _with_far_moments(found, numbers, is_far, unit, infinite)
    return found


def check_moments(column: pa.Array) -> None:
    """Raises `ValueError` for what numpy takes for no moment at all."""
    if column.type.unit != "ns" and pc.min(column.view(pa.int64())).as_py() == LEAST:
        raise ValueError("the smallest 64-bit number is not a moment")


def infinities(unit: str) -> dict[int, str]:
    return {ms * PER_SECOND[unit] // 1_000: text for text, ms in INFINITE_MS.items()}


def _with_far_moments(
    column: pa.Array, numbers: Int64Array, is_far: BoolArray, unit: str, infinite: Mapping[int, str]
) -> pa.Array:
    far = np.datetime_as_string(numbers[is_far].view(f"datetime64[{unit}]"))
    texts = [
        infinite.get(number) or _signed_year(text + "Z")
        for number, text in zip(numbers[is_far].tolist(), far.tolist(), strict=True)
    ]
    return pc.replace_with_mask(column, pa.array(is_far), pa.array(texts, pa.string()))


def _signed_year(text: str) -> str:
    year = YEAR.match(text)
    assert year is not None, "numpy writes years first"
    digits = year[0].lstrip("-").zfill(4)
    sign = "-" if text[0] == "-" else "+" if len(digits) > 4 else ""
    return sign + digits + text[year.end() :]


def _without_zeros(column: pa.Array) -> pa.Array:
    bare = pc.utf8_rtrim(pc.utf8_rtrim(pc.utf8_rtrim(column, "Z"), "0"), ".")
    return pc.binary_join_element_wise(bare, "Z", "")


def moments_to_nanos(column: pa.Array) -> pa.Array:
    """The ends of time are the ends of the numbers; `ValueError` beyond the years 1677 to 2262."""
    unit, numbers = column.type.unit, column.view(pa.int64())
    is_infinite = pc.is_in(numbers, pa.array(list(infinities(unit)), pa.int64()))
    near = rescale(pc.if_else(is_infinite, 0, numbers), unit=unit, to="ns", kind=pa.int64())
    end = pc.if_else(pc.greater(numbers, 0), *INFINITE_NS)
    return pc.if_else(is_infinite, end, near)


def nanos_to_moments(column: pa.Array, kind: pa.DataType) -> pa.Array:
    moments = rescale(column, unit="ns", to=kind.unit, kind=pa.int64())
    for number, nanos in zip(infinities(kind.unit), INFINITE_NS, strict=True):
        moments = pc.if_else(pc.equal(column, nanos), number, moments)
    return moments.view(kind)


def text_to_moments(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Raises `ValueError` where the text is no moment or has more digits than `kind`."""
    aware = pa.timestamp(kind.unit, "UTC")
    first = pc.utf8_slice_codeunits(column, 0, 1)
    is_odd = pc.is_in(first, pa.array(["+", "-", "i"]))
    is_odd = pc.or_(is_odd, pc.match_substring_regex(column, r"^\d{5}")).fill_null(False)
    if not pc.any(is_odd).as_py():
        return column.cast(aware).cast(pa.int64()).view(kind)
    near = pc.if_else(is_odd, None, column).cast(aware).view(pa.int64())
    return _with_far(near, column, is_odd, pa.timestamp(kind.unit, "UTC")).view(kind)


def _with_far(near: pa.Array, text: pa.Array, is_far: pa.Array, kind: pa.DataType) -> pa.Array:
    """Reads one by one the values that Arrow does not read: the few infinite ones and those of
    other eras."""
    ends, unit = {word: number for number, word in _words(kind).items()}, _unit(kind)
    has_zone = pa.types.is_timestamp(kind) and kind.tz is not None
    found = [
        ends[each] if each in ends else _far_number(each, unit, has_zone=has_zone)
        for each in text.filter(is_far).to_pylist()
    ]
    return pc.replace_with_mask(near, is_far, pa.array(found, near.type))


def _far_number(text: str, unit: str, *, has_zone: bool) -> int:
    match = FAR.fullmatch(text)
    if match is None or (has_zone and not (match["clock"] and match["zone"])):
        raise ValueError("the text is not a timestamp")
    if unit == "D" and match["clock"]:
        raise ValueError("the text is not a date")
    year = int(match["year"]) * (-1 if match["sign"] == "-" else 1)
    year = 1 - year if match["era"] else year
    # Four hundred years repeat: the same day near the epoch, moved by whole such spans.
    spans = (year - 1800) // 400
    near = f"{year - spans * 400:04}{match['day']}T{match['clock'] or '00:00:00'}"
    if len((match["fraction"] or "").rstrip("0")) > UNIT_DIGITS.get(unit, 0):
        raise ValueError("the timestamp has more digits than its column")
    moment = np.datetime64(near, "ns" if match["fraction"] else "s").astype(f"datetime64[{unit}]")
    number = int(moment.astype(np.int64)) + spans * 146_097 * PER_DAY[unit]
    if not -(2**63) <= number < 2**63:
        raise ValueError("the timestamp is beyond the range of its column")
    return number


def dates_to_text(column: pa.Array) -> pa.Array:
    """`2026-11-20Z`: Debezium's ISO dates carry the zone, too."""
    days = column.view(pa.int32()).fill_null(0).to_numpy().astype("datetime64[D]")
    texts: list[str] = np.datetime_as_string(days).tolist()
    signed = pa.array([_signed_year(text + "Z") for text in texts], pa.string())
    return pc.if_else(column.is_valid(), signed, None)


def text_to_dates(column: pa.Array) -> pa.Array:
    days = [
        None if text is None else _far_number(text, "D", has_zone=False)
        for text in column.to_pylist()
    ]
    return pa.array(days, pa.int32()).view(pa.date32())


def are_near(column: pa.Array) -> bool:
    """Returns whether Arrow can write all of these dates or timestamps."""
    found = pc.min_max(column.view(_stored(column.type)))
    if not found["min"].is_valid:
        return True
    per_day = PER_DAY[_unit(column.type)]
    low, high = found["min"].as_py(), found["max"].as_py()
    return bool(YEAR_1_DAYS * per_day <= low and high < YEAR_10000_DAYS * per_day)


def database_text(column: pa.Array) -> pa.StringArray:
    """Returns dates and timestamps as databases write them, UTC with a `Z`; years before the year 1
    are zero or negative."""
    if are_near(column):
        return column.cast(pa.string())
    unit, words = _unit(column.type), _words(column.type)
    zone = "Z" if unit != "D" and column.type.tz else ""
    # Arrow counts wrong if there is a zone
    bare = column.cast(pa.timestamp(unit)) if zone else column
    text = bare.cast(pa.string())
    if zone:
        text = pc.binary_join_element_wise(text, zone, "")
    is_far = pc.starts_with(text, UNWRITTEN).fill_null(False)
    found = [
        words.get(each) or str(np.datetime64(each, unit)).replace("T", " ") + zone
        for each in column.view(_stored(column.type)).filter(is_far).to_pylist()
    ]
    return pc.replace_with_mask(text, is_far, pa.array(found, pa.string()))


def with_eras(text: pa.StringArray, *, zone: str = "") -> pa.StringArray:
    """Returns such text in PostgreSQL's form: `0044-03-15 12:00:00+00 BC`."""
    is_infinite = pc.ends_with(text, "infinity")
    if zone:
        text = pc.if_else(is_infinite, text, pc.binary_join_element_wise(text, zone, ""))
    is_other = pc.and_not(pc.match_substring_regex(text, OF_OTHER_ERAS), is_infinite)
    is_other = is_other.fill_null(False)
    found = [YEAR.sub(_before, each) + " BC" for each in text.filter(is_other).to_pylist()]
    return pc.replace_with_mask(text, is_other, pa.array(found, pa.string()))


def _before(year: re.Match[str]) -> str:
    return f"{1 - int(year[0]):04}"


def from_database_text(text: pa.StringArray, kind: pa.DataType) -> pa.Array:
    """Reads the text of any database, with or without a zone that is UTC; `kind` is a date or a
    timestamp. Raises `ValueError` for other text."""
    is_bare = pa.types.is_timestamp(kind) and kind.tz is None
    with suppress(pa.ArrowInvalid):
        has_zone = is_bare and _first_text(text).endswith(("Z", "+00"))
        return text.cast(pa.timestamp(kind.unit, "UTC") if has_zone else kind).cast(kind)
    bare = pc.replace_substring_regex(text, ZONE, "") if is_bare else text
    is_far = pc.invert(pc.match_substring_regex(bare, NEAR)).fill_null(False)
    if _unit(kind) == "ns":  # Arrow does not read the first and last seconds of its range
        is_far = bare.is_valid()
    near = _read_near(pc.if_else(is_far, None, bare), kind).view(_stored(kind))
    return _with_far(near, bare, is_far, kind).view(kind)


def _read_near(text: pa.StringArray, kind: pa.DataType) -> pa.Array:
    """Reads more digits than the unit has if all of them are zeros: some databases write six."""
    if _unit(kind) not in ("s", "ms"):
        return text.cast(kind)
    return text.cast(pa.timestamp("us", kind.tz)).cast(kind)


def _first_text(text: pa.StringArray) -> str:
    first = pc.index(text.is_valid(), True).as_py()
    return "" if first < 0 else str(text[first])


def python_value(value: pa.Scalar) -> Any:
    """Returns Python's value, with text for each timestamp that Python does not have."""
    try:
        return value.as_py()
    except (OverflowError, ValueError):
        if pa.types.is_list(value.type):
            return [python_value(each) for each in value.values]
        if pa.types.is_struct(value.type):
            return {name: python_value(each) for name, each in value.items()}
        return database_text(pa.array([value], value.type))[0].as_py()


def _stored(kind: pa.DataType) -> pa.DataType:
    return pa.int32() if pa.types.is_date32(kind) else pa.int64()


def _unit(kind: pa.DataType) -> Any:
    return "D" if pa.types.is_date(kind) else kind.unit


def _words(kind: pa.DataType) -> Mapping[int, str]:
    if pa.types.is_date(kind):
        return {days: word for word, days in INFINITE_DAYS.items()}
    return infinities(kind.unit)


def rescale(column: pa.Array, *, unit: str, to: str, kind: Any) -> pa.Array:
    """Whole numbers of another unit; a coarser one rounds down. `ValueError` beyond 64 bits."""
    numbers = column.cast(pa.int64())
    factor, divisor = PER_SECOND[to], PER_SECOND[unit]
    if factor > divisor:
        numbers = pc.multiply_checked(numbers, factor // divisor)
    elif factor < divisor:
        values: Int64Array = integers(numbers) // (divisor // factor)
        numbers = numbers_column(pa.int64(), values, like=column)
    return numbers.cast(kind)


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
