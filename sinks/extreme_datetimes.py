"""Dates and timestamps that Arrow cannot write or read: infinities, and years beyond four
digits."""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.rows.text.time import infinities

YEAR_1, YEAR_10000 = -719_162, 2_932_897
"""Days since 1970 between which a year has four digits and is of our era."""
PER_DAY = {"D": 1, "s": 86_400, "ms": 86_400 * 10**3, "us": 86_400 * 10**6, "ns": 86_400 * 10**9}
INFINITE_DAYS = {2**31 - 1: "infinity", -(2**31): "-infinity"}
UNWRITTEN = "<"
"""Start of Arrow's output for a timestamp that it cannot write."""
OF_OTHER_ERAS = r"^(?:-\d|0000-)"
YEAR = re.compile(r"^-?\d+")
PARTS = re.compile(r"(-?\d{4,7})(-\d\d-\d\d)(?:[ T]([\d:.]+))?(?:Z|\+00(?::?00)?)?( BC)?")


def are_near(column: pa.Array) -> bool:
    """Returns whether none of these dates or timestamps is extreme."""
    found = pc.min_max(_numbers(column))
    if not found["min"].is_valid:
        return True
    per_day = PER_DAY[_unit(column.type)]
    low, high = found["min"].as_py(), found["max"].as_py()
    return bool(YEAR_1 * per_day <= low and high < YEAR_10000 * per_day)


def datetime_texts(column: pa.Array) -> pa.StringArray:
    """Returns dates and timestamps as text, UTC with a `Z`; years before the year 1 are zero or
    negative."""
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
        for each in _numbers(column).filter(is_far).to_pylist()
    ]
    return pc.replace_with_mask(text, is_far, pa.array(found, pa.string()))


def plain(value: pa.Scalar) -> Any:
    """Returns Python's value, with text for each timestamp that Python does not have."""
    try:
        return value.as_py()
    except (OverflowError, ValueError):
        if pa.types.is_list(value.type):
            return [plain(each) for each in value.values]
        if pa.types.is_struct(value.type):
            return {name: plain(each) for name, each in value.items()}
        return datetime_texts(pa.array([value], value.type))[0].as_py()


def with_eras(text: pa.StringArray, *, zone: str = "") -> pa.StringArray:
    """Returns text in PostgreSQL's form: `0044-03-15 12:00:00+00 BC`."""
    is_infinite = pc.ends_with(text, "infinity")
    if zone:
        text = pc.if_else(is_infinite, text, pc.binary_join_element_wise(text, zone, ""))
    is_other = pc.and_not(pc.match_substring_regex(text, OF_OTHER_ERAS), is_infinite)
    is_other = is_other.fill_null(False)
    found = [YEAR.sub(_before, each) + " BC" for each in text.filter(is_other).to_pylist()]
    return pc.replace_with_mask(text, is_other, pa.array(found, pa.string()))


def read(text: pa.StringArray, kind: pa.DataType) -> pa.Array:
    """Reads either form; `kind` is a date, or a timestamp without a zone. Raises `ValueError` for
    other text."""
    unit, ends = _unit(kind), {word: number for number, word in _words(kind).items()}
    numbers = [
        None if each is None else ends[each] if each in ends else _number(each, unit)
        for each in text.to_pylist()
    ]
    return pa.array(numbers, pa.int32() if unit == "D" else pa.int64()).view(kind)


def _numbers(column: pa.Array) -> pa.Array:
    return column.view(pa.int32() if pa.types.is_date(column.type) else pa.int64())


def _unit(kind: pa.DataType) -> Any:
    return "D" if pa.types.is_date(kind) else kind.unit


def _words(kind: pa.DataType) -> Mapping[int, str]:
    return INFINITE_DAYS if pa.types.is_date(kind) else infinities(kind.unit)


def _before(year: re.Match[str]) -> str:
    return f"{1 - int(year[0]):04}"


def _number(text: str, unit: Any) -> int:
    match = PARTS.fullmatch(text)
    if match is None:
        raise ValueError("the text is not a timestamp")
    year, day, clock, is_before = match.groups()
    number = 1 - int(year) if is_before else int(year)
    sign = "-" if number < 0 else ""
    moment = np.datetime64(f"{sign}{abs(number):04}{day}T{clock or '00:00:00'}", unit)
    return int(moment.astype(np.int64))
