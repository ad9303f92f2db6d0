"""What text of each type becomes, at the values at which something changes."""

import struct
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from headwater.connectors.postgres.settings import PostgresSettings
from headwater.connectors.postgres.types.builtin import (
    bits_reading,
    builtin_reading,
    extension_reading,
    hstore_reading,
)
from headwater.connectors.postgres.types.column_reader import TypeReader
from headwater.connectors.postgres.types.datetime import interval_reading
from headwater.connectors.postgres.types.numeric import money_reading, numeric_reading
from headwater.connectors.postgres.types.type_map import PgType, TypeMap
from headwater.core_log.rows.rejects import UNFIT

DAY_MS = 86_400_000
LONG = "1" * 40 + "." + "2" * 20


def numeric(precision: int, *, scale: int) -> TypeReader:
    return numeric_reading((precision << 16 | scale & 0x7FF) + 4)


def of(name: str, modifier: int = -1) -> TypeReader:
    reading = builtin_reading(name, modifier)
    assert reading is not None
    return reading


def read(reading: TypeReader, *texts: str | None) -> list[Any]:
    """Times as numbers, and a null and an empty column beside them."""
    column = reading.read(pa.array([*texts, None], pa.string()))
    assert column.type == reading.type == reading.read(pa.array([], pa.string())).type
    assert reading.read(pa.nulls(2, pa.string())).null_count == 2
    if pa.types.is_temporal(column.type):
        column = column.view(pa.int32() if column.type.bit_width == 32 else pa.int64())
    found: list[Any] = column.to_pylist()
    assert found.pop() is None
    return found


@pytest.mark.parametrize(
    ("precision", "scale", "text", "kind", "found"),
    [
        (5, 2, "-999.99", pa.decimal128(5, 2), Decimal("-999.99")),
        (3, 5, "0.00999", pa.decimal128(5, 5), Decimal("0.00999")),
        (5, -2, "12300", pa.decimal128(7, 0), Decimal(12300)),
        (60, 20, LONG, pa.decimal256(60, 20), Decimal(LONG)),
        (200, 100, "3.14", pa.string(), "3.14"),
    ],
)  # fmt: skip
def test_numbers_keep_every_digit(
    precision: int, scale: int, text: str, kind: pa.DataType, found: Any
) -> None:
    reading = numeric(precision, scale=scale)

    assert reading.type == kind
    assert read(reading, text) == [found]


def test_no_decimal_is_not_a_number() -> None:
    reading = numeric(5, scale=2)
    assert reading.read_text is not None
    for read_column, text in ((reading.read, "NaN"), (reading.read_text, "1000.00")):
        with pytest.raises(UNFIT):
            read_column(pa.array([text]))
    assert reading.read_text(pa.array(["NaN", "1.50", None])).to_pylist() == ["NaN", "1.50", None]
    assert read(numeric_reading(-1), "NaN", "1.50", "-Infinity") == ["NaN", "1.50", "-Infinity"]


@pytest.mark.parametrize(
    ("one", "text", "amount"),
    [
        ("$1.00", "-$92,233,720,368,547,758.08", "-92233720368547758.08"),
        ("1,00 €", "-1.234,56 €", "-1234.56"),
        ("￥1", "￥1,234", "1234"),
        ("1.000 KWD", "(5.250 KWD)", "-5.250"),
    ],
)
def test_money_is_read_in_any_currency(one: str, text: str, amount: str) -> None:
    assert read(money_reading(one), text) == [Decimal(amount)]


def test_days_of_all_eras() -> None:
    texts = ("1970-01-01", "0044-03-15 BC", "4713-01-01 BC", "5874897-12-31", "infinity")

    assert read(of("date"), *texts) == [0, -735160, -2440550, 2145042905, 2**31 - 1]


def test_moments_of_all_eras_and_precisions() -> None:
    assert read(of("timestamp"), "infinity", "-infinity", "1969-12-31 23:59:59.999999") == [
        9223372036825200000, -9223372036832400000, -1,
    ]  # fmt: skip
    assert read(of("timestamp", 3), "0044-03-15 12:00:00 BC", "20000-02-03 04:05:06.789") == [
        -63517780800000, 568974686706789,
    ]  # fmt: skip
    assert read(of("timestamptz", 0), "1970-01-02 00:00:00+00", "infinity") == [
        DAY_MS, 9223372036825200,
    ]  # fmt: skip
    assert of("timestamptz", 1).parameters == {"digits": "1"}
    with pytest.raises(UNFIT):
        of("timestamp").read(pa.array(["294276-12-31 23:59:59"]))


def test_times_of_day_and_the_end_of_one() -> None:
    assert read(of("time"), "24:00:00", "12:34:56.1") == [86_400_000_000, 45_296_100_000]
    assert read(of("time", 3), "24:00:00", "00:00:00.001") == [DAY_MS, 1]
    assert read(of("timetz"), "01:00:00+14", "24:00:00+00", "00:00:00.5-15:59:30") == [
        "11:00:00Z", "00:00:00Z", "15:59:30.5Z",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "number", "words"),
    [
        ("PT0S", 0, "P0Y0M0DT0H0M0S"),
        ("PT-0.5S", -500_000, "P0Y0M0DT0H0M-0.5S"),
        ("P1Y2M3DT4H5M6.789012S", 37_091_106_789_012, "P1Y2M3DT4H5M6.789012S"),
        ("P1M-1D", 2_543_400_000_000, "P0Y1M-1DT0H0M0S"),
        ("P-2DT3H", -162_000_000_000, "P0Y0M-2DT3H0M0S"),
        ("infinity", 2**63 - 1, "infinity"),
    ],
)
def test_spans_of_time_have_a_number_and_parts(text: str, number: int, words: str) -> None:
    assert read(interval_reading("numeric"), text) == [number]
    assert read(interval_reading("string"), text) == [words]


def test_bits_stand_lowest_first_without_zeros() -> None:
    assert read(bits_reading(1), "0", "1") == [False, True]
    assert read(bits_reading(-1), "", "0", "101", "1" + "0" * 69) == [
        b"", b"", b"\x05", b"\0" * 8 + b"\x20",
    ]  # fmt: skip


def test_hstore_becomes_json() -> None:
    text = r'"a"=>"1", "k \" e"=>NULL, "é"=>"v\\"'

    assert read(hstore_reading("json"), text, "") == [r'{"a":"1","k \" e":null,"é":"v\\"}', "{}"]


def test_shapes_carry_their_binary_form() -> None:
    point = struct.pack("<BIdd", 1, 1, 1.5, -2.25)
    [found] = read(of("point"), "(1.5,-2.25)")
    assert found == {"x": 1.5, "y": -2.25, "wkb": point, "srid": None}

    geometry = extension_reading("geometry", -1)
    assert geometry is not None
    placed = struct.pack(">BIIdd", 0, 0x20000001, 4326, 1.0, 2.0)
    assert read(geometry, point.hex().upper(), placed.hex()) == [
        {"wkb": point, "srid": None}, {"wkb": placed, "srid": 4326},
    ]  # fmt: skip


def test_vectors_are_lists_of_numbers() -> None:
    vector, half = (extension_reading(name, 3) for name in ("vector", "halfvec"))
    assert vector is not None and half is not None

    assert read(vector, "[1,2.5,-3e-05]") == [[1.0, 2.5, -3e-05]]
    assert read(half, "[1,2]") == [[1.0, 2.0]]
    assert half.type == pa.list_(pa.float32())


def book(**settings: Any) -> TypeMap:
    """int4 and its array, a domain over a domain over an enum, and an array of domains."""
    found = TypeMap(
        PostgresSettings.model_validate({"url": "postgresql://x/y", "tables": ["*"], **settings})
    )
    rows = [
        PgType(23, "pg_catalog", "int4", "b", 0, -1, 0, 0, None, None),
        PgType(1007, "pg_catalog", "_int4", "b", 0, -1, 23, 0, ",", None),
        PgType(1700, "pg_catalog", "numeric", "b", 0, -1, 0, 0, None, None),
        PgType(9001, "hw", "mood", "e", 0, -1, 0, 0, None, ["sad", "ok"]),
        PgType(9002, "hw", "feeling", "d", 9001, -1, 0, 0, None, None),
        PgType(9003, "hw", "price", "d", 1700, (8 << 16 | 3) + 4, 0, 0, None, None),
        PgType(9004, "hw", "_price", "b", 0, -1, 9003, 0, ",", None),
    ]
    found._types = {row.oid: row for row in rows}
    return found


def test_domains_are_what_they_are_made_of() -> None:
    feeling = book().plan("c", 9002, -1, is_nullable=False)
    prices = book().plan("c", 9004, -1, is_nullable=True)

    assert feeling is not None and prices is not None
    assert feeling.column.parameters == {"allowed": "sad,ok"} and not feeling.column.is_nullable
    assert prices.column.type == pa.list_(pa.decimal128(8, 3))


def test_unknown_types_are_text_or_left_out() -> None:
    plan = book().plan("c", 424_242, -1, is_nullable=True)

    assert plan is not None and plan.column.type == pa.string()
    assert book(unknown_types="skip").plan("c", 424_242, -1, is_nullable=True) is None
    assert book(unknown_types="skip").plan("c", 9004, -1, is_nullable=True) is None
