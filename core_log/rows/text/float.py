"""Floats as Java writes them, and with it Jackson and Debezium."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

EMPTY = pa.scalar("", pa.string())
PLAIN_MIN, PLAIN_MAX = 1e-3, 1e7
"""Between them Java writes a float without an exponent."""
FLOAT = r"^(?P<sign>-?)(?P<whole>[0-9]+)(?:\.(?P<fraction>[0-9]+))?(?:e\+?(?P<exponent>-?[0-9]+))?$"


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
