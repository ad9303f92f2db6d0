"""Parses dates, times, timestamps and intervals in ISO text, with infinity and years BC."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.connectors.postgres.types.column_reader import TypeReader
from headwater.core_log.rows.text.datetime import (
    DIGITS,
    INFINITE_DAYS,
    from_database_text,
    text_to_times,
    times_to_iso_text,
    with_eras,
)

DAY_US = 86_400 * 10**6
EPOCH_DAYS = 10_957
"""From 1970 to 2000, PostgreSQL's epoch."""
EPOCH_US = EPOCH_DAYS * DAY_US
INFINITE_US = {2**63 - 1: "infinity", -(2**63): "-infinity"}
COARSE_DIGITS_MAX = 3
ZONED_TIME = (
    r"^(?P<clock>\d\d:\d\d:\d\d(?:\.\d+)?)(?P<sign>[+-])(?P<hours>\d\d)"
    r"(?::(?P<minutes>\d\d))?(?::(?P<seconds>\d\d))?$"
)
PARTS = (
    r"^P(?:(?P<Y>-?\d+)Y)?(?:(?P<M>-?\d+)M)?(?:(?P<D>-?\d+)D)?"
    r"(?:T(?:(?P<h>-?\d+)H)?(?:(?P<m>-?\d+)M)?(?:(?P<sign>-?)(?P<s>\d+)(?P<fraction>\.\d+)?S)?)?$"
)
MONTH_US = 2_629_800 * 10**6
"""A twelfth of 365.25 days, as Debezium counts."""
UNITS_US = {
    "Y": 12 * MONTH_US, "M": MONTH_US, "D": DAY_US, "h": 3_600 * 10**6, "m": 60 * 10**6,
}  # fmt: skip
INFINITE_INTERVALS = {"infinity": 2**63 - 1, "-infinity": -(2**63)}
FRACTION_DIGITS = 6


def date_reading() -> TypeReader:
    return TypeReader(pa.date32(), lambda text: from_database_text(text, pa.date32()))


def time_reading(modifier: int) -> TypeReader:
    if 0 <= modifier <= COARSE_DIGITS_MAX:
        return TypeReader(pa.time32("ms"), lambda text: text_to_times(text, pa.time32("ms")))
    return TypeReader(pa.time64("us"), lambda text: text_to_times(text, pa.time64("us")))


def timestamp_reading(modifier: int) -> TypeReader:
    kind = pa.timestamp(_unit(modifier))
    return TypeReader(kind, lambda text: from_database_text(text, kind))


def zoned_timestamp_reading(modifier: int) -> TypeReader:
    kind = pa.timestamp(_unit(modifier), "UTC")
    shown = {} if modifier in (-1, 3, 6) else {DIGITS: str(modifier)}
    return TypeReader(kind, lambda text: from_database_text(text, kind), parameters=shown)


def zoned_time_reading() -> TypeReader:
    return TypeReader(pa.string(), _zoned_times, "io.debezium.time.ZonedTime")


def _unit(modifier: int) -> str:
    return "ms" if 0 <= modifier <= COARSE_DIGITS_MAX else "us"


def _zoned_times(text: pa.StringArray) -> pa.Array:
    """Returns times in UTC, with seconds, and with a fraction only if it is not zero."""
    parts = pc.extract_regex(text, ZONED_TIME)
    clock = text_to_times(pc.struct_field(parts, "clock"), pa.time64("us")).view(pa.int64())
    offset = pa.array(np.zeros(len(text), np.int64))
    for name, seconds in (("hours", 3_600), ("minutes", 60), ("seconds", 1)):
        part = pc.struct_field(parts, name)
        number = pc.if_else(pc.equal(part, ""), "0", part).cast(pa.int64())
        offset = pc.add(offset, pc.multiply(number, seconds * 10**6))
    is_west = pc.equal(pc.struct_field(parts, "sign"), "-")
    moved = pc.if_else(is_west, pc.add(clock, offset), pc.subtract(clock, offset))
    numbers = moved.fill_null(0).to_numpy() % DAY_US
    plain = pa.array(numbers, mask=moved.is_null().to_numpy(zero_copy_only=False))
    return times_to_iso_text(plain.view(pa.time64("us")))


def date_texts(days: Sequence[int]) -> pa.StringArray:
    """Returns PostgreSQL's text of dates, given as days since 2000."""
    words = {infinite: word for word, infinite in INFINITE_DAYS.items()}
    texts = [words.get(each) or str(np.datetime64(each + EPOCH_DAYS, "D")) for each in days]
    return with_eras(pa.array(texts, pa.string()))


def moment_texts(since_2000: Sequence[int], zone: str) -> pa.StringArray:
    """Returns PostgreSQL's text of timestamps, given as microseconds since 2000."""
    texts = [INFINITE_US.get(each) or _moment_text(each) for each in since_2000]
    return with_eras(pa.array(texts, pa.string()), zone=zone)


def _moment_text(since_2000: int) -> str:
    seconds, micros = divmod(since_2000 + EPOCH_US, 10**6)  # no 64 bits hold these as microseconds
    fraction = f".{micros:06}".rstrip("0") if micros else ""
    return str(np.datetime64(seconds, "s")).replace("T", " ") + fraction


def interval_reading(form: str) -> TypeReader:
    """Returns the reader; `form` is the setting `interval` of the source."""
    if form == "string":
        return TypeReader(pa.string(), _texts, "io.debezium.time.Interval")
    return TypeReader(pa.int64(), _micros, "io.debezium.time.MicroDuration")


def _parts(text: pa.StringArray) -> pa.StructArray:
    """Returns the parts; raises `ValueError` if the text is not an interval. Infinite ones have no
    parts."""
    parts = pc.extract_regex(text, PARTS)
    is_odd = pc.and_not(parts.is_null(), text.is_null())
    is_known = pc.is_in(text.filter(is_odd), pa.array(list(INFINITE_INTERVALS)))
    if not pc.all(is_known, min_count=0).as_py():
        raise ValueError("the text is not an interval of the style iso_8601")
    return parts


def _micros(text: pa.StringArray) -> pa.Array:
    parts = _parts(text)
    total = _sign(parts, _seconds_us(parts))
    for name, unit_us in UNITS_US.items():
        total = pc.add_checked(
            total, pc.multiply_checked(_number(pc.struct_field(parts, name)), unit_us)
        )
    for word, number in INFINITE_INTERVALS.items():  # since version 17
        total = pc.if_else(pc.equal(text, word), number, total)
    return total


def _number(digits: pa.Array) -> pa.Array:
    return pc.if_else(pc.equal(digits, ""), "0", digits).cast(pa.int64())


def _seconds_us(parts: pa.StructArray) -> pa.Array:
    fraction = pc.utf8_slice_codeunits(pc.struct_field(parts, "fraction"), 1)
    micros = pc.utf8_rpad(fraction, FRACTION_DIGITS, "0").cast(pa.int64())
    return pc.add(pc.multiply_checked(_number(pc.struct_field(parts, "s")), 10**6), micros)


def _sign(parts: pa.StructArray, number: pa.Array) -> pa.Array:
    return pc.if_else(pc.equal(pc.struct_field(parts, "sign"), "-"), pc.negate(number), number)


def _texts(text: pa.StringArray) -> pa.Array:
    parts = _parts(text)

    def shown(name: str) -> pa.Array:
        digits = pc.struct_field(parts, name)
        return pc.if_else(pc.equal(digits, ""), "0", digits)

    found = pc.binary_join_element_wise(
        "P", shown("Y"), "Y", shown("M"), "M", shown("D"), "DT", shown("h"), "H", shown("m"), "M",
        pc.struct_field(parts, "sign"), shown("s"), pc.struct_field(parts, "fraction"), "S", "",
    )  # fmt: skip
    return pc.coalesce(found, text)
