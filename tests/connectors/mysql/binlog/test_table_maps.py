"""A table of the binary log says which of its numbers are unsigned; for a column of type YEAR some
versions of MySQL write a sign as well."""

import pytest

from headwater.connectors.mysql.binlog.table_map import (
    LONG,
    TINY,
    YEAR,
    TableMap,
    YearSign,
    parse_table_map,
    year_sign,
)

SIGNEDNESS = 1


def table_map(types: list[int], signs: bytes) -> bytes:
    """The body of an event of a table d.t, whose columns need no more to be told."""
    name = b"\x01d\x00\x01t\x00"
    columns = bytes([len(types), *types, 0]) + bytes((len(types) + 7) // 8)
    return bytes(8) + name + columns + bytes([SIGNEDNESS, len(signs)]) + signs


def unsigned(table: TableMap) -> list[int]:
    numbers = enumerate(table.columns)
    return [place for place, each in numbers if each.is_unsigned and each.type != YEAR]


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("8.0.15", YearSign.LEFT_OUT),
        ("8.0.20-11-log", YearSign.LEFT_OUT),
        ("8.0.24", YearSign.UNKNOWN),
        ("8.0.29", YearSign.LOGGED),
        ("9.7.4-2", YearSign.LOGGED),
        ("a version of tomorrow", YearSign.UNKNOWN),
    ],
)
def test_the_version_says_whether_years_have_a_sign(version: str, expected: YearSign) -> None:
    assert year_sign(version, is_mariadb=False) is expected
    assert year_sign(version, is_mariadb=True) is YearSign.LOGGED


@pytest.mark.parametrize(
    ("year", "signs"), [(YearSign.LOGGED, 0b1010_0000), (YearSign.LEFT_OUT, 0b0100_0000)]
)
def test_a_year_before_numbers_does_not_shift_their_signs(year: YearSign, signs: int) -> None:
    body = table_map([YEAR, LONG, TINY], bytes([signs]))

    assert unsigned(parse_table_map(body, is_mariadb=False, year=year)) == [2]


def test_signs_are_unsure_only_where_a_year_could_shift_them() -> None:
    def table(types: list[int], signs: int) -> TableMap:
        body = table_map(types, bytes([signs]))
        return parse_table_map(body, is_mariadb=False, year=YearSign.UNKNOWN)

    assert table([YEAR, LONG, TINY], 0b1010_0000).has_unsure_signs
    sure = table([LONG, TINY, YEAR], 0b0110_0000)
    assert not sure.has_unsure_signs and unsigned(sure) == [1]
    assert not table([LONG, TINY], 0b0100_0000).has_unsure_signs


def test_more_years_than_signs_are_told_apart() -> None:
    """Nine columns and one byte: the years have none."""
    body = table_map([YEAR, *[LONG] * 8], bytes([0b1000_0001]))

    found = parse_table_map(body, is_mariadb=False, year=YearSign.UNKNOWN)
    assert unsigned(found) == [1, 8]
    assert not found.has_unsure_signs
