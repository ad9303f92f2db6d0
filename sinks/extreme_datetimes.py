"""Days and moments that Arrow neither writes nor reads: the ends of time, and far years."""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.rows.text.time import infinities

YEAR_1, YEAR_10000 = -719_162, 2_932_897
"""In days since 1970: between them a year has four digits and is of our era."""
PER_DAY = {"D": 1, "s": 86_400, "ms": 86_400 * 10**3, "us": 86_400 * 10**6, "ns": 86_400 * 10**9}
INFINITE_DAYS = {2**31 - 1: "infinity", -(2**31): "-infinity"}
UNWRITTEN = "<"
"""How Arrow begins what it says in place of a moment."""
OF_OTHER_ERAS = r"^(?:-\d|0000-)"
YEAR = re.compile(r"^-?\d+")
PARTS = re.compile(r"(-?\d{4,7})(-\d\d-\d\d)(?:[ T]([\d:.]+))?(?:Z|\+00(?::?00)?)?( BC)?")


def are_near(column: pa.Array) -> bool:
    """Whether there is nothing of the kind among these dates or moments."""
    found = pc.min_max(_numbers(column))
    if not found["min"].is_valid:
        return True
    per_day = PER_DAY[_unit(column.type)]
    low, high = found["min"].as_py(), found["max"].as_py()
    return bool(YEAR_1 * per_day <= low and high < YEAR_10000 * per_day)


def datetime_texts(column: pa.Array) -> pa.StringArray:
    """Of dates and moments, those in UTC with a `Z`; years before the first are below one."""
    if are_near(column):
        return column.cast(pa.string())
    unit, words = _unit(column.type), _words(column.type)
    zone = "Z" if unit != "D" and column.type.tz else ""
    bare = column.cast(pa.timestamp(unit)) if zone else column  # a zone has Arrow count wrong
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
    """Python's value, with text for each moment in it that Python does not have."""
    try:
        return value.as_py()
    except (OverflowError, ValueError):
        if pa.types.is_list(value.type):
            return [plain(each) for each in value.values]
        if pa.types.is_struct(value.type):
            return {name: plain(each) for name, each in value.items()}
        return datetime_texts(pa.array([value], value.type))[0].as_py()


def with_eras(text: pa.StringArray, *, zone: str = "") -> pa.StringArray:
    """What `written` wrote as PostgreSQL reads it: `0044-03-15 12:00:00+00 BC`."""
    is_infinite = pc.ends_with(text, "infinity")
    if zone:
        text = pc.if_else(is_infinite, text, pc.binary_join_element_wise(text, zone, ""))
    is_other = pc.and_not(pc.match_substring_regex(text, OF_OTHER_ERAS), is_infinite)
    is_other = is_other.fill_null(False)
    found = [YEAR.sub(_before, each) + " BC" for each in text.filter(is_other).to_pylist()]
    return pc.replace_with_mask(text, is_other, pa.array(found, pa.string()))


def read(text: pa.StringArray, kind: pa.DataType) -> pa.Array:
    """Either form; `kind` is that of days, or of moments without a zone. Raises `ValueError` for
    what is neither."""
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
        raise ValueError("this is no moment")
    year, day, clock, is_before = match.groups()
    number = 1 - int(year) if is_before else int(year)
    sign = "-" if number < 0 else ""
    moment = np.datetime64(f"{sign}{abs(number):04}{day}T{clock or '00:00:00'}", unit)
    return int(moment.astype(np.int64))
