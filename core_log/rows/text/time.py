"""Columns of moments, dates and times of day as ISO 8601 text, and back."""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.foundation.array_types import BoolArray, Int64Array
from headwater.core_log.rows.arrow_buffers import fixed_width_column, integers, numbers_column

PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
UNIT_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
TEXT_WIDTHS = {"s": 19, "ms": 23, "us": 26, "ns": 29}
DIGITS = "digits"
"""Parameter of a column of zoned moments whose precision is none of a unit's."""
LEAST = -(2**63)
END_OF_DAY = "24:00:00Z"
YEAR_0, YEAR_10000 = -62_167_219_200, 253_402_300_800
"""In seconds of Unix time: between them a year has four digits."""
INFINITE_MS = {"infinity": 9_223_372_036_825_200, "-infinity": -9_223_372_036_832_400}
"""PostgreSQL's ends of time as Java knows them, and hence Debezium's plain timestamps."""
INFINITE_NS = (2**63 - 1, -(2**63))
FAR = re.compile(r"([+-]?)(\d+)(-\d\d-\d\d)(T\d\d:\d\d:\d\d(?:\.\d{1,9})?)?(Z?)")


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
        raise ValueError("the least of all numbers is no moment")


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
    match = FAR.fullmatch(text)
    assert match is not None, "numpy writes moments in ISO 8601"
    sign, digits, *rest = match.groups()
    year = digits.zfill(4)
    return (sign or ("+" if len(year) > 4 else "")) + year + "".join(part or "" for part in rest)


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
    odd = [_far_moment(text, kind.unit) for text in column.filter(is_odd).to_pylist()]
    return pc.replace_with_mask(near, is_odd, pa.array(odd, pa.int64())).view(kind)


def _far_moment(text: str, unit: str) -> int:
    if text in INFINITE_MS:
        return INFINITE_MS[text] * PER_SECOND[unit] // 1_000
    match = FAR.fullmatch(text)
    if match is None or match[4] is None or not match[5]:
        raise ValueError("the text is not a timestamp")
    return _count(match, unit)


def _count(match: re.Match[str], unit: str) -> int:
    year = int(match[2]) * (-1 if match[1] == "-" else 1)
    # Four hundred years repeat: the same day near the epoch, moved by whole such spans.
    spans = (year - 1800) // 400
    near = f"{year - spans * 400:04}{match[3]}{match[4] or ''}"
    fraction = near.partition(".")[2]
    digits = len(str(PER_SECOND[unit])) - 1
    if len(fraction.rstrip("0")) > digits:
        raise ValueError("this moment has more digits than its column")
    moment = np.datetime64(near, "ns" if fraction else "s").astype(f"datetime64[{unit}]")
    number = int(moment.astype(np.int64)) + spans * 146_097 * 86_400 * PER_SECOND[unit]
    if not -(2**63) <= number < 2**63:
        raise ValueError("this moment lies beyond its column's range")
    return number


def dates_to_text(column: pa.Array) -> pa.Array:
    """`2026-11-20Z`: Debezium's ISO dates carry the zone, too."""
    days = column.view(pa.int32()).fill_null(0).to_numpy().astype("datetime64[D]")
    texts: list[str] = np.datetime_as_string(days).tolist()
    signed = pa.array([_signed_year(text + "Z") for text in texts], pa.string())
    return pc.if_else(column.is_valid(), signed, None)


def text_to_dates(column: pa.Array) -> pa.Array:
    days = [None if text is None else _days(text) for text in column.to_pylist()]
    return pa.array(days, pa.int32()).view(pa.date32())


def _days(text: str) -> int:
    match = FAR.fullmatch(text)
    if match is None or match[4] is not None:
        raise ValueError("this is no date")
    return _count(match, "s") // 86_400


def times_to_text(column: pa.Array) -> pa.Array:
    """`12:34:56.1Z`, seconds always, digits that say nothing left out; `24:00:00Z` ends a day."""
    stored = pa.int32() if column.type.bit_width == 32 else pa.int64()
    is_end = pc.equal(column.view(stored), 86_400 * PER_SECOND[column.type.unit])
    has_end = pc.any(is_end).as_py()
    if has_end:
        column = pc.if_else(is_end, pa.scalar(0, stored), column.view(stored)).view(column.type)
    text = column.cast(pa.string())
    if column.type.unit != "s":
        text = pc.utf8_rtrim(pc.utf8_rtrim(text, "0"), ".")
    text = pc.binary_join_element_wise(text, "Z", "")
    return pc.if_else(is_end, END_OF_DAY, text) if has_end else text


def text_to_times(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Arrow parses moments only, so these become moments of one day."""
    is_end = pc.equal(column, END_OF_DAY)
    clocks = pc.if_else(is_end, "00:00:00Z", column)
    moments = pc.binary_join_element_wise("1970-01-01T", clocks, "")
    ticks = moments.cast(pa.timestamp("ns", "UTC")).cast(pa.timestamp(kind.unit, "UTC"))
    numbers = pc.if_else(is_end, 86_400 * PER_SECOND[kind.unit], ticks.view(pa.int64()))
    return numbers.cast(pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)


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
