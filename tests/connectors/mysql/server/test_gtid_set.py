"""Sets of GTIDs behave as sets of numbers, in text and on the wire."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.connectors.mysql.server.gtid_set import GtidSet, MariadbGtids
from headwater.core_log.foundation.errors import DecodeError

ONE, TWO = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "4e11fa47-71ca-11e1-9e33-c80aa9429562"
SOURCES = [(ONE, ""), (ONE, "tag"), (TWO, "")]
NUMBERS = st.sets(st.tuples(st.sampled_from(SOURCES), st.integers(1, 30)), max_size=40)


def set_of(numbers: set[tuple[tuple[str, str], int]]) -> GtidSet:
    found = GtidSet()
    for source, number in numbers:
        found.add(source, number, number + 1)
    return found


@pytest.mark.property
@given(NUMBERS, NUMBERS)
def test_a_gtid_set_is_a_set_of_numbers(
    some: set[tuple[tuple[str, str], int]], others: set[tuple[tuple[str, str], int]]
) -> None:
    one, other = set_of(some), set_of(others)

    assert GtidSet.parse(str(one)) == one
    assert str(one.without(other)) == str(set_of(some - others))
    assert one.is_within(other) == (some <= others)
    assert all(one.has(source, number) for source, number in some)
    assert str(GtidSet.decode(one.encode())) == str(one)


def test_the_text_of_the_server_is_read() -> None:
    text = f"{ONE}:1-5:7:tag:1-3,\n{TWO.upper()}:9"

    assert str(GtidSet.parse(text)) == f"{ONE}:1-5:7:tag:1-3,{TWO}:9"


@pytest.mark.parametrize("text", ["x", f"{ONE}:a-b", f"{ONE}:1-"])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(DecodeError):
        GtidSet.parse(text)


def test_a_position_of_mariadb_has_the_last_number_of_each_domain() -> None:
    gtids = MariadbGtids.parse("1-7-30,0-1-9")
    gtids.add(0, 2, 10)

    assert str(gtids) == "0-2-10,1-7-30"
    assert gtids.has(0, 10) and not gtids.has(0, 11) and not gtids.has(2, 1)
    with pytest.raises(DecodeError):
        MariadbGtids.parse("1-2")
