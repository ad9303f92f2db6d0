"""Parses intervals of the style iso_8601 as one number or as text with all parts."""

import pyarrow as pa
import pyarrow.compute as pc

from headwater.connectors.postgres.types.column_reader import TypeReader

PARTS = (
    r"^P(?:(?P<Y>-?\d+)Y)?(?:(?P<M>-?\d+)M)?(?:(?P<D>-?\d+)D)?"
    r"(?:T(?:(?P<h>-?\d+)H)?(?:(?P<m>-?\d+)M)?(?:(?P<sign>-?)(?P<s>\d+)(?P<fraction>\.\d+)?S)?)?$"
)
DAY_US = 86_400 * 10**6
MONTH_US = 2_629_800 * 10**6
"""A twelfth of 365.25 days, as Debezium counts."""
UNITS_US = {
    "Y": 12 * MONTH_US, "M": MONTH_US, "D": DAY_US, "h": 3_600 * 10**6, "m": 60 * 10**6,
}  # fmt: skip
INFINITE_US = {"infinity": 2**63 - 1, "-infinity": -(2**63)}
FRACTION_DIGITS = 6


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
    is_known = pc.is_in(text.filter(is_odd), pa.array(list(INFINITE_US)))
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
    for word, number in INFINITE_US.items():  # since version 17
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
