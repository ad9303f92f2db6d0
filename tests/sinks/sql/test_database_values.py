"""Columns become a database's text or values without losing a digit, a letter or a null."""

from decimal import Decimal

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headwater.sinks.sql.database_values import (
    copy_text,
    sqlite_rows,
    statements,
    text_of,
    value_lists,
)

TEXTS = st.lists(st.one_of(st.none(), st.text(st.characters(exclude_categories=["Cs"]))))


@given(st.lists(st.one_of(st.none(), st.decimals(1 - 10**8, 10**8 - 1, places=7)), min_size=1))
def test_decimals_of_fifteen_digits_are_the_nearest_doubles(values: list[Decimal | None]) -> None:
    rows = pa.RecordBatch.from_arrays([pa.array(values, pa.decimal128(15, 7))], names=["x"])

    found = [value for (value,) in sqlite_rows(rows)]

    assert found == [None if value is None else float(value) for value in values]


@given(TEXTS)
def test_a_line_of_copy_is_a_row_whatever_its_letters(values: list[str | None]) -> None:
    rows = pa.RecordBatch.from_arrays([pa.array(values, pa.string())] * 2, names=["a", "b"])

    lines = bytes(copy_text(rows)).decode().split("\n")[:-1]

    assert [line.split("\t") for line in lines] == [
        [r"\N" if value is None else escaped(value)] * 2 for value in values
    ]


def escaped(text: str) -> str:
    """The slow and obvious way."""
    names = {"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"}
    return "".join(names.get(letter, letter) for letter in text)


@given(TEXTS, st.integers(1, 200))
def test_long_statements_are_cut_between_rows(values: list[str | None], bytes_max: int) -> None:
    rows = pa.RecordBatch.from_arrays([pa.array(values, pa.string())], names=["a"])
    lists = value_lists(rows)

    found = statements(lists, bytes_max=bytes_max)

    assert b",".join(found) == ",".join(lists.to_pylist()).encode()
    assert all(len(each) <= bytes_max + max(map(len, found), default=0) for each in found)
    quoted = ["NULL" if each is None else "'" + each.replace("'", "''") + "'" for each in values]
    assert lists.to_pylist() == [f"({each})" for each in quoted]


@given(st.lists(st.one_of(st.none(), st.binary(max_size=5))), st.integers(0, 3))
def test_bytes_are_two_digits_each_also_in_the_middle_of_a_column(
    values: list[bytes | None], start: int
) -> None:
    found = text_of(pa.array(values, pa.binary()).slice(start)).to_pylist()

    assert found == [None if value is None else value.hex() for value in values[start:]]
