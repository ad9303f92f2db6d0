"""Arrays are read from their text, however their items are quoted."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.connectors.postgres.types.arrays import array_reading
from headwater.connectors.postgres.types.column_reader import text_reading
from headwater.connectors.postgres.types.numeric import cast_reading

ITEMS = st.none() | st.sampled_from(
    ["", "a", "NULL", "null", "a b", "{", "}", ",", '"', "\\", '\\"', "naïve ☺", " x ", "[1:2]={"]
)
TEXTS = array_reading(text_reading(), delimiter=",", dimensions=1)
NUMBERS = array_reading(cast_reading(pa.int32()), delimiter=",", dimensions=1)
TABLES = array_reading(cast_reading(pa.int32()), delimiter=",", dimensions=2)


def written(items: list[str | None] | None) -> str | None:
    """As the server writes an array: quotes where they are needed."""
    if items is None:
        return None
    return "{" + ",".join(map(item, items)) + "}"


def item(value: str | None) -> str:
    if value is None:
        return "NULL"
    if value == "" or value.upper() == "NULL" or set(value) & set('{}",\\ '):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return value


@pytest.mark.property
@given(st.lists(st.none() | st.lists(ITEMS, max_size=4), max_size=6), st.booleans())
def test_every_array_is_what_was_written(rows: list[list[str | None] | None], flat: bool) -> None:
    if flat:
        escaped = set('"\\')
        rows = [row and [each for each in row if not set(each or "") & escaped] for row in rows]

    found = TEXTS.read(pa.array([written(row) for row in rows], pa.string()))

    found.validate(full=True)
    assert found.to_pylist() == rows


def test_slices_lower_bounds_and_nothing_at_all() -> None:
    text = pa.array(["{9}", "{1,NULL,-3}", None, "{}", "[0:1]={7,8}"])

    assert NUMBERS.read(text.slice(1, 3)).to_pylist() == [[1, None, -3], None, []]
    assert NUMBERS.read(text).to_pylist() == [[9], [1, None, -3], None, [], [7, 8]]
    assert NUMBERS.read(text.slice(2, 1)).to_pylist() == [None]
    assert NUMBERS.read(text.slice(0, 0)).to_pylist() == []


def test_a_second_dimension_has_to_be_declared() -> None:
    text = pa.array(["{{1,2},{3,NULL}}", "{}", None])

    assert TABLES.read(text).to_pylist() == [[[1, 2], [3, None]], [], None]
    with pytest.raises(ValueError, match="dimensions"):
        NUMBERS.read(text)
