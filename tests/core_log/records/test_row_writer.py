"""The compiled way and the plain one write the same bytes, which are those of a slow reference."""

import json
from datetime import UTC
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core_log.records import row_writer
from headwater.core_log.records.record_codec import encode_varint
from headwater.core_log.records.row_writer import (
    SHORT_ESCAPES,
    RowColumn,
    RowPart,
    RowWriter,
    ValueEncoding,
    join_few,
    join_plainly,
)

DECIMALS = (
    pa.decimal128(12, 2), pa.decimal128(18, 0), pa.decimal128(38, 38), pa.decimal128(5, -3),
    pa.decimal128(38, 9), pa.decimal256(50, 4),
)  # fmt: skip
SHORT_FLOATS = st.builds(
    lambda number, scale: number / 10**scale, st.integers(-(10**7), 10**7), st.integers(0, 4)
).filter(lambda value: value == 0 or 1e-3 <= abs(value) < 1e7)
MOMENTS = st.datetimes(timezones=st.just(UTC))
INTEGERS = st.integers(-(2**63), 2**63 - 1) | st.integers(-100, 100)
TEXTS = st.text(max_size=20) | st.text('"\\\b\t\n\f\r\0\x1f\x7f a', max_size=40)
ROWS = 11
NULLS = (b"null", b"")
TIMESPECS = {"ms": "milliseconds", "us": "microseconds"}


def ways() -> list[RowWriter]:
    pytest.importorskip("numba")
    from headwater.core_log.compiled.row_writer_kernels import join_compiled

    return [join_few, join_plainly, join_compiled]


@st.composite
def columns(draw: st.DrawFn) -> RowColumn:
    """Some are slices of longer ones, so that they begin in the middle of a byte."""
    values: list[Any]
    kind = draw(st.sampled_from(ValueEncoding))
    before = draw(st.integers(0, 9))
    count = ROWS + before
    match kind:
        case ValueEncoding.RAW | ValueEncoding.STRING:
            values, held = draw(lists(st.none() | TEXTS, count)), pa.string()
        case ValueEncoding.BOOLEAN:
            values, held = draw(lists(st.none() | st.booleans(), count)), pa.bool_()
        case ValueEncoding.INTEGER:
            held = draw(st.sampled_from([pa.int8(), pa.int16(), pa.int32(), pa.int64()]))
            most = 2 ** (held.bit_width - 1)
            values = draw(lists(st.none() | st.integers(-most, most - 1), count))
        case ValueEncoding.VARINT:
            values, held = draw(lists(INTEGERS, count)), pa.int64()
        case ValueEncoding.DECIMAL:
            held = draw(st.sampled_from(DECIMALS))
            most = 10**held.precision - 1
            unscaled = lists(st.none() | st.integers(-most, most) | st.integers(-99, 99), count)
            values = [None if each is None else scaled(each, held) for each in draw(unscaled)]
        case ValueEncoding.FLOAT:
            held = pa.float64()
            values = draw(lists(st.none() | SHORT_FLOATS, count))
        case ValueEncoding.MOMENT:
            held = pa.timestamp(draw(st.sampled_from(("ms", "us"))), "UTC")
            values = draw(lists(st.none() | MOMENTS, count))
            if held.unit == "ms":
                values = [each and each.replace(microsecond=0) for each in values]
    return RowColumn(pa.array(values, held).slice(before), kind)


def scaled(number: int, kind: pa.DataType) -> Decimal:
    sign, digits, _ = Decimal(number).as_tuple()
    return Decimal((sign, digits, -kind.scale))


def lists(values: st.SearchStrategy[Any], count: int) -> st.SearchStrategy[list[Any]]:
    return st.lists(values, min_size=1, max_size=count).map(lambda some: (some * count)[:count])


@given(st.lists(st.binary(max_size=12).map(bytes.hex) | columns(), max_size=6))
def test_every_way_writes_what_the_reference_does(drawn: list[str | RowColumn]) -> None:
    pieces: list[RowPart] = [each.encode() if isinstance(each, str) else each for each in drawn]
    pieces.append(b"|")
    kind = pa.string() if is_text(pieces) else pa.binary()

    found = [way(pieces, ROWS, kind, null).cast(pa.binary()) for way in ways() for null in NULLS]

    expected = [reference(pieces, row, null) for null in NULLS for row in range(ROWS)]
    for way in range(len(ways())):
        written = found[2 * way].to_pylist() + found[2 * way + 1].to_pylist()
        assert written == expected


def is_text(pieces: list[RowPart]) -> bool:
    return not any(
        isinstance(each, RowColumn) and each.kind == ValueEncoding.VARINT for each in pieces
    )


def reference(pieces: list[RowPart], row: int, null: bytes) -> bytes:
    return b"".join(
        each if isinstance(each, bytes) else written(each, row, null) for each in pieces
    )


def written(column: RowColumn, row: int, null: bytes) -> bytes:
    value = column.values[row].as_py()
    if value is None:
        return null
    match column.kind:
        case ValueEncoding.RAW:
            return bytes(value, "utf-8")
        case ValueEncoding.VARINT:
            return encode_varint(value)
        case ValueEncoding.DECIMAL:
            return f'"{value:f}"'.encode()
        case ValueEncoding.MOMENT:
            text = value.isoformat(timespec=TIMESPECS[column.values.type.unit])
            return f'"{text.removesuffix("+00:00")}Z"'.encode()
        case ValueEncoding.STRING:
            return as_jackson(json.dumps(value, ensure_ascii=False)).encode()
        case _:
            return json.dumps(value).encode()


def as_jackson(text: str) -> str:
    """With the digits of its escapes in upper case."""
    pieces = text.split("\\u00")
    return pieces[0] + "".join(f"\\u00{each[:2].upper()}{each[2:]}" for each in pieces[1:])


@pytest.mark.parametrize("length", [1, 7, 8, 9, 15, 16, 17, 100])
@pytest.mark.parametrize("odd", [*map(chr, SHORT_ESCAPES), "\0", "\x1f", "é", "\x7f", "𝄞"])
def test_an_escape_is_seen_wherever_it_stands(length: int, odd: str) -> None:
    texts = ["x" * place + odd + "x" * (length - place) for place in range(length + 1)]
    pieces = [RowColumn(pa.array(texts), ValueEncoding.STRING)]

    found = [way(pieces, len(texts), pa.string(), b"null").to_pylist() for way in ways()]

    expected = [as_jackson(json.dumps(each, ensure_ascii=False)) for each in texts]
    assert found == [expected] * len(ways())


@pytest.mark.slow
def test_text_that_is_all_escapes_finds_its_room() -> None:
    texts = ["\0" * 3_000, "a", "\1" * 100_000, None] * 20
    pieces: list[RowPart] = [b"<", RowColumn(pa.array(texts), ValueEncoding.STRING), b">"]

    few, plain, compiled = (way(pieces, len(texts), pa.string(), b"null") for way in ways())

    assert compiled.equals(plain)
    assert few.equals(plain)
    compiled.validate(full=True)


@given(st.lists(st.none() | st.floats() | SHORT_FLOATS, min_size=1, max_size=6), st.booleans())
def test_floats_of_any_size_are_written_alike(numbers: list[float | None], is_wide: bool) -> None:
    values = pa.array(numbers, pa.float64() if is_wide else pa.float32())

    plain, *others = (
        way([RowColumn(values, ValueEncoding.FLOAT)], len(values), pa.string(), b"null")
        for way in ways()
    )

    assert all(other.equals(plain) for other in others)


@pytest.mark.parametrize("unit", ["ms", "us"])
@given(numbers=st.lists(st.integers(1 - 2**63, 2**63 - 1), min_size=1, max_size=5))
def test_moments_of_any_year_are_written_alike(unit: str, numbers: list[int]) -> None:
    values = pa.array(numbers, pa.int64()).view(pa.timestamp(unit, "UTC"))

    few, plain, compiled = (
        way([RowColumn(values, ValueEncoding.MOMENT)], len(values), pa.string(), b"null")
        for way in ways()
    )

    assert compiled.equals(plain)
    assert few.equals(plain)


@pytest.mark.slow
def test_every_day_of_many_years_has_its_name() -> None:
    days = pa.array(range(-720_000, 2_930_000, 11), pa.int64())
    values = pc.add(pc.multiply(days, 86_400_000_000), 86_399_999_999)
    pieces = [RowColumn(values.view(pa.timestamp("us", "UTC")), ValueEncoding.MOMENT)]

    few, plain, compiled = (way(pieces, len(values), pa.string(), b"null") for way in ways())

    assert compiled.equals(plain)
    assert few.equals(plain)


def test_shared_values_are_taken_from_a_dictionary() -> None:
    shared = pa.DictionaryArray.from_arrays([1, 0, 0, 2, 1], ["ä", "", "a longer one"])
    pieces: list[RowPart] = [RowColumn(shared, ValueEncoding.RAW), b";"]

    found = [way(pieces, 5, pa.string(), b"null").to_pylist() for way in ways()]

    assert found == [[";", "ä;", "ä;", "a longer one;", ";"]] * 3


def test_no_rows_are_no_rows() -> None:
    pieces: list[RowPart] = [b"a", RowColumn(pa.array([], pa.string()), ValueEncoding.STRING)]

    found = [way(pieces, 0, pa.string(), b"null") for way in ways()]

    assert [each.to_pylist() for each in found] == [[], [], []]


def test_a_column_of_one_constant_is_that_in_every_row() -> None:
    found = row_writer.join([b"a", b"b"], 100, kind=pa.binary())

    assert found.to_pylist() == [b"ab"] * 100
