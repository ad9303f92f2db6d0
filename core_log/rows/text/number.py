"""Columns of decimals as text, as two's complement bytes, and back; floats as Java has them; and
values of the drivers of databases."""

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.foundation.array_types import UInt8Array
from headwater.core_log.rows.arrow_buffers import (
    bytes_and_offsets,
    column_of,
    is_valid,
    numbers_column,
)

SCALE_ALWAYS_PLAIN_MAX = 6
"""Arrow writes an exponent where the first digit lies further behind the point."""
EMPTY = pa.scalar("", pa.string())
PLAIN_MIN, PLAIN_MAX = 1e-3, 1e7
"""Between them Java writes a float without an exponent."""
FLOAT = r"^(?P<sign>-?)(?P<whole>[0-9]+)(?:\.(?P<fraction>[0-9]+))?(?:e\+?(?P<exponent>-?[0-9]+))?$"
TRUE, FALSE = pa.array(["t", "1", "true"]), pa.array(["f", "0", "false"])


def decimal_to_text(column: pa.Array) -> pa.Array:
    """Every digit of the scale, never an exponent."""
    kind = column.type
    if kind.scale < 0:
        kind = pa.decimal256(kind.precision - kind.scale, 0)
        return column.cast(kind).cast(pa.string())
    text = column.cast(pa.string())
    if kind.scale > SCALE_ALWAYS_PLAIN_MAX and (bytes_and_offsets(text)[0] == ord("E")).any():
        return _plain_text(column)
    return text


def _plain_text(column: pa.Array) -> pa.Array:
    scale = column.type.scale
    maker = pa.decimal128 if pa.types.is_decimal128(column.type) else pa.decimal256
    kind = maker(column.type.precision, 0)
    whole = pa.Array.from_buffers(kind, len(column), column.buffers(), offset=column.offset)
    text = whole.cast(pa.string())
    digits = pc.utf8_lpad(pc.utf8_ltrim(text, characters="-"), width=scale + 1, padding="0")
    pointed = pc.utf8_replace_slice(digits, start=-scale, stop=-scale, replacement=".")
    sign = pc.if_else(pc.starts_with(text, "-"), "-", "")
    return pc.binary_join_element_wise(sign, pointed, "")


def text_to_decimal(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Raises `ValueError` where digits would be lost or the text is no number."""
    if kind.scale >= 0:
        return column.cast(kind)
    return column.cast(pa.decimal256(kind.precision - kind.scale, 0)).cast(kind)


def decimal_to_bytes(column: pa.Array) -> pa.Array:
    """The unscaled number as the fewest big-endian bytes of two's complement."""
    numbers = _fixed_bytes(column)
    width = numbers.shape[1]
    signs = np.where(numbers[:, 0] & 0x80, np.uint8(0xFF), np.uint8(0))
    differs = numbers != signs[:, None]
    first = np.where(differs.any(axis=1), differs.argmax(axis=1), width - 1)
    # The first byte kept must carry the sign in its top bit.
    leads = numbers[np.arange(len(numbers)), first]
    starts = first - (((leads ^ signs) & 0x80) != 0)
    is_kept = np.arange(width)[None, :] >= starts[:, None]
    if column.null_count:
        is_kept &= is_valid(column)[:, None]
    offsets = np.concatenate(([0], np.cumsum(is_kept.sum(axis=1))))
    return column_of(pa.binary(), numbers[is_kept], offsets, like=column)


def _fixed_bytes(column: pa.Array) -> UInt8Array:
    """Big-endian, a row of bytes for each number; what stands where it is null is arbitrary."""
    width = column.type.byte_width
    data = np.frombuffer(column.buffers()[1], np.uint8)
    data = data[column.offset * width : (column.offset + len(column)) * width]
    return data.reshape(-1, width)[:, ::-1]


def bytes_to_decimal(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Raises `ValueError` where a number has more digits than `kind`."""
    data, offsets = bytes_and_offsets(column)
    lengths, width = np.diff(offsets), kind.byte_width
    is_empty = lengths == 0
    if (is_empty & is_valid(column)).any() or (lengths > width).any():
        raise ValueError("the bytes are not a number of the type")
    numbers = np.zeros((len(column), width), np.uint8)
    firsts = np.zeros(len(column), np.uint8)
    firsts[~is_empty] = data[offsets[:-1][~is_empty]]
    numbers[(firsts & 0x80) != 0] = 0xFF
    numbers[np.arange(width)[None, :] >= (width - lengths)[:, None]] = data
    decimals = numbers_column(kind, numbers[:, ::-1].reshape(-1), like=column)
    decimals.validate(full=True)
    return decimals


JAVA_WORDS = {"NaN": "NAN", "Infinity": "POSITIVE_INFINITY", "-Infinity": "NEGATIVE_INFINITY"}
"""Debezium's words in place of numbers that are none, as in a Java enum."""


def to_java_words(column: pa.Array) -> pa.Array:
    return _replace(column, JAVA_WORDS, "[Ny]$")


def from_java_words(column: pa.Array) -> pa.Array:
    return _replace(column, {word: text for text, word in JAVA_WORDS.items()}, "[NY]$")


def _replace(column: pa.Array, words: Mapping[str, str], endings: str) -> pa.Array:
    if not pc.any(pc.match_substring_regex(column, endings)).as_py():
        return column
    for text, word in words.items():
        column = pc.if_else(pc.equal(column, text), word, column)
    return column


def double_to_text(column: pa.Array) -> pa.Array:
    """The words for what is no number are the database's, not Arrow's."""
    text = column.cast(pa.string())
    for spelled, word in (("nan", "NaN"), ("inf", "Infinity"), ("-inf", "-Infinity")):
        text = pc.if_else(pc.equal(text, spelled), word, text)
    return text


EXPONENT_MAX = 200_000
VARIABLE_SCALE = pa.struct([("scale", pa.int32()), ("value", pa.binary())])
"""Debezium's form of a number whose column fixes no scale."""
_WHOLE = pa.struct([field.with_nullable(False) for field in VARIABLE_SCALE])


def text_to_variable_scale(column: pa.Array) -> pa.Array:
    """Value by value, since no column type holds numbers of any length."""
    return pa.array([_variable_scale(text) for text in column.to_pylist()], _WHOLE)


def _variable_scale(text: str | None) -> dict[str, object] | None:
    if text is None:
        return None
    sign, number, exponent = _parts(text)
    scale = -exponent
    while scale > 0 and number % 10 == 0:
        number, scale = number // 10, scale - 1
    if scale < 0:
        number, scale = number * 10**-scale, 0
    return {"scale": scale, "value": unscaled_bytes(-number if sign else number)}


def _parts(text: str) -> tuple[int, int, int]:
    """Sign, digits and exponent, by way of `Decimal`: `int` refuses text of many digits."""
    try:
        sign, digits, exponent = Decimal(text).as_tuple()
    except InvalidOperation as error:
        raise ValueError("the text is not a number") from error
    if not isinstance(exponent, int):
        raise ValueError("the number is not finite")
    if abs(exponent) > EXPONENT_MAX:
        raise ValueError("the number is longer than any database keeps")
    return sign, int(Decimal((0, digits, 0))), exponent


def variable_scale_to_text(column: pa.Array) -> pa.Array:
    return pa.array([_variable_text(number) for number in column.to_pylist()], pa.string())


def _variable_text(number: dict[str, object] | None) -> str | None:
    if number is None:
        return None
    scale, value = number["scale"], number["value"]
    if not isinstance(scale, int) or not isinstance(value, bytes) or not value:
        raise ValueError("the value is not a number with its scale")
    return unscaled_text(int.from_bytes(value, signed=True), scale=scale)


def text_to_scaled(column: pa.Array, *, scale: int) -> pa.Array:
    """Numbers too long for Arrow's decimals, as Connect's `Decimal` of a fixed scale."""
    return pa.array([_scale(text, scale=scale) for text in column.to_pylist()], pa.binary())


def _scale(text: str | None, *, scale: int) -> bytes | None:
    if text is None:
        return None
    sign, number, exponent = _parts(text)
    shift = exponent + scale
    if shift < 0 and number % 10**-shift:
        raise ValueError("the number has more digits than its column")
    number = number * 10**shift if shift >= 0 else number // 10**-shift
    return unscaled_bytes(-number if sign else number)


def scaled_to_text(column: pa.Array, *, scale: int) -> pa.Array:
    return pa.array(
        [
            None
            if value is None
            else unscaled_text(int.from_bytes(value, signed=True), scale=scale)
            for value in column.to_pylist()
        ],
        pa.string(),
    )


def unscaled_bytes(number: int) -> bytes:
    """The fewest bytes of two's complement, as Java's BigInteger writes them."""
    bits = (number if number >= 0 else ~number).bit_length() + 1
    return number.to_bytes((bits + 7) // 8, signed=True)


def unscaled_text(number: int, *, scale: int) -> str:
    digits = Decimal(abs(number)).as_tuple().digits
    return format(Decimal((int(number < 0), digits, -scale)), "f")


def float_text(column: pa.Array) -> pa.Array:
    """The fewest digits that name the number, laid out as Java lays them out."""
    text = column.cast(pa.string())
    numbers = column.fill_null(0.5).to_numpy()
    is_finite = np.isfinite(numbers)
    if not is_finite.all():
        for found, spelled in (
            (np.isnan(numbers), '"NaN"'),
            (numbers == np.inf, '"Infinity"'),
            (numbers == -np.inf, '"-Infinity"'),
        ):
            text = pc.if_else(pa.array(found), spelled, text)
    sizes = np.abs(np.where(is_finite, numbers, 0.5))
    is_far = ((sizes < PLAIN_MIN) | (sizes >= PLAIN_MAX)) & (sizes != 0)
    lacks_point = ~is_far & is_finite & (numbers == np.trunc(numbers))
    if lacks_point.any():
        lacks_point &= ~pc.match_substring(text, ".").fill_null(True).to_numpy(False)
        pointed = pc.binary_join_element_wise(text, ".0", EMPTY)
        text = pc.if_else(pa.array(lacks_point), pointed, text)
    if is_far.any():
        mask = pa.array(is_far)
        text = pc.replace_with_mask(text, mask, _scientific(text.filter(mask)))
    return text


def _scientific(text: pa.Array) -> pa.Array:
    """`1.2345678925E8` of `123456789.25`, `1.0E-5` of `0.00001`."""
    parts = pc.extract_regex(text, FLOAT)
    sign, whole, fraction, exponent = (
        pc.struct_field(parts, name) for name in ("sign", "whole", "fraction", "exponent")
    )
    digits = pc.binary_join_element_wise(whole, fraction, "")
    significant = pc.utf8_ltrim(digits, "0")
    zeros = pc.subtract(pc.binary_length(digits), pc.binary_length(significant))
    given = pc.if_else(pc.equal(exponent, ""), "0", exponent).cast(pa.int32())
    power = pc.subtract(pc.add(given, pc.subtract(pc.binary_length(whole), 1)), zeros)
    rest = pc.utf8_rtrim(pc.utf8_slice_codeunits(significant, 1), "0")
    return pc.binary_join_element_wise(
        sign, pc.utf8_slice_codeunits(significant, 0, 1), ".",
        pc.if_else(pc.equal(rest, ""), "0", rest), "E", power.cast(pa.string()), EMPTY,
    )  # fmt: skip


def value_text(value: Any) -> str | None:
    """Returns the text of a value that a driver returned; a decimal has no exponent."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode()
    return format(value, "f") if hasattr(value, "as_tuple") else str(value)


def text_to_booleans(texts: pa.StringArray) -> pa.BooleanArray:
    """Raises `ValueError` for other numbers: MySQL's `tinyint(1)` can hold any small number."""
    words = pc.utf8_lower(texts)
    is_true, is_false = (pc.is_in(words, value_set=each) for each in (TRUE, FALSE))
    if pc.any(pc.invert(pc.or_(pc.or_(is_true, is_false), words.is_null()))).as_py():
        raise ValueError("the text is neither true nor false")
    return pc.if_else(words.is_valid(), is_true, None)
