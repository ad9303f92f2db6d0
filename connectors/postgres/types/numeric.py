"""Numbers: integers, floats, decimals of any size, and money in any currency."""

import re
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from headwater.connectors.postgres.types.column_reader import NAN, TypeReader, as_it_is
from headwater.core_log.rows.schema_text import decimal_type

DECIMAL = "org.apache.kafka.connect.data.Decimal"
VARIABLE_SCALE = "io.debezium.data.VariableScaleDecimal"
PRECISION = "connect.decimal.precision"
DIGITS_MAX = 76
"""Largest number of digits of Arrow's decimals."""
MODIFIER_OFFSET = 4
SCALE_BITS = 11
MONEY_DIGITS = 19
"""It is stored in 64 bits."""


def cast_reading(kind: pa.DataType) -> TypeReader:
    """Returns the reader of a type whose text Arrow can cast."""
    return TypeReader(kind, lambda text: text.cast(kind))


def boolean_reading() -> TypeReader:
    return TypeReader(pa.bool_(), lambda text: pc.equal(text, "t"))


def numeric_reading(modifier: int) -> TypeReader:
    """Returns the reader. Numbers without a declared size, or with more digits than Arrow supports,
    stay text."""
    if modifier < MODIFIER_OFFSET:
        return TypeReader(pa.string(), as_it_is, VARIABLE_SCALE)
    precision, scale = _precision_and_scale(modifier)
    declared = {"scale": str(scale), PRECISION: str(precision)}
    if scale < 0:  # zeros before the point, which few targets can declare
        precision, scale = precision - scale, 0
    digits = max(precision, scale)
    if digits > DIGITS_MAX:
        return TypeReader(pa.string(), as_it_is, DECIMAL, declared | {"scale": str(scale)})
    kind = decimal_type(digits, scale)
    is_plain = declared == {"scale": str(scale), PRECISION: str(digits)}
    parameters: Mapping[str, str] = {} if is_plain else declared | {"scale": str(scale)}

    def read_text(text: pa.StringArray) -> pa.StringArray:
        pc.if_else(pc.equal(text, NAN), None, text).cast(kind)
        return text

    return TypeReader(
        kind, lambda text: text.cast(kind), parameters=parameters, read_text=read_text
    )


def _precision_and_scale(modifier: int) -> tuple[int, int]:
    packed = modifier - MODIFIER_OFFSET
    scale = packed & (1 << SCALE_BITS) - 1
    if scale >= 1 << SCALE_BITS - 1:
        scale -= 1 << SCALE_BITS
    return packed >> 16, scale


def money_reading(one: str) -> TypeReader:
    """Returns the reader. `one` is the server's text of one unit of its currency, such as `$1.00`
    or `1,000 KWD`.

    Only digits and sign of an amount are read, because the rest depends on the locale.
    """
    scale = len(re.sub(r"\D", "", one)) - 1
    kind = pa.decimal128(MONEY_DIGITS, scale)

    def read(text: pa.StringArray) -> pa.Array:
        digits = pc.replace_substring_regex(text, r"[^0-9]", "")
        is_negative = pc.match_substring_regex(text, r"[-(]")
        signed = pc.if_else(is_negative, pc.binary_join_element_wise("-", digits, ""), digits)
        whole = signed.cast(pa.decimal128(MONEY_DIGITS, 0))
        buffers = whole.buffers()
        return pa.Array.from_buffers(kind, len(whole), buffers, offset=whole.offset)

    return TypeReader(kind, read, parameters={"scale": str(scale)})
