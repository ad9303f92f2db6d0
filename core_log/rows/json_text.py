"""Columns as JSON text, put together in C++: no Python object per value."""

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from core_log import joining
from core_log.joining import Column, Kind
from core_log.rows.byte_text import to_base64
from core_log.rows.json_escapes import quote

Piece: TypeAlias = str | pa.Array | Column
"""Text that every row has, a column of text as it is, or one whose values become JSON; nulls of
either are written as JSON's null."""

EMPTY = pa.scalar("", pa.string())
PLAIN_MIN, PLAIN_MAX = 1e-3, 1e7
"""Between them Java writes a float without an exponent."""
FLOAT = r"^(?P<sign>-?)(?P<whole>[0-9]+)(?:\.(?P<fraction>[0-9]+))?(?:e\+?(?P<exponent>-?[0-9]+))?$"
NULL, NULL_BYTES = "null", b"null"


def constant(value: Any) -> str:
    """A value that all rows share."""
    if value is None:
        return NULL
    if isinstance(value, bool):
        return "true" if value else "false"
    return quote(value) if isinstance(value, str) else str(value)


def json_text(column: pa.Array) -> Column:
    """How a column in its wire form becomes JSON."""
    kind = column.type
    if kind == pa.string():
        return Column(column, Kind.STRING)
    if kind == pa.binary():
        return Column(to_base64(column), Kind.STRING)
    if kind == pa.bool_():
        return Column(column, Kind.BOOLEAN)
    if pa.types.is_floating(kind):
        return Column(_float_text(column), Kind.RAW)
    if pa.types.is_list(kind):
        return Column(_list_text(column), Kind.RAW)
    if pa.types.is_struct(kind):
        return Column(_struct_text(column), Kind.RAW)
    return Column(column, Kind.INTEGER)


def object_pieces(names: Sequence[str], texts: Iterable[Column]) -> list[Piece]:
    """`{"a":`, a column, `,"b":`, another column, `}`."""
    pieces: list[Piece] = ["{"]
    for place, (name, text) in enumerate(zip(names, texts, strict=True)):
        pieces += [f"{',' if place else ''}{quote(name)}:", text]
    return [*pieces, "}"]


def join(pieces: Sequence[Piece], row_count: int) -> pa.StringArray:
    """All pieces of a row behind each other, row for row."""
    return joining.join(list(map(_joined, pieces)), row_count, kind=pa.string(), null=NULL_BYTES)


def _joined(piece: Piece) -> joining.Piece:
    if isinstance(piece, str):
        return piece.encode()
    return piece if isinstance(piece, Column) else Column(piece, Kind.RAW)


def _float_text(column: pa.Array) -> pa.Array:
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


def _list_text(column: pa.Array) -> pa.Array:
    items = join([json_text(column.flatten())], len(column.flatten()))
    counts = pc.list_value_length(column).fill_null(0)
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(counts)])
    joined = pc.binary_join(pa.ListArray.from_arrays(offsets, items), ",")
    text = pc.binary_join_element_wise("[", joined, "]", EMPTY)
    return pc.if_else(column.is_valid(), text, None) if column.null_count else text


def _struct_text(column: pa.Array) -> pa.Array:
    names = [member.name for member in column.type]
    texts = [json_text(member) for member in column.flatten()]
    text = join(object_pieces(names, texts), len(column))
    return pc.if_else(column.is_valid(), text, None) if column.null_count else text
