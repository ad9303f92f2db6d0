"""What COPY sends is split into the very values that the table holds."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.postgres.wal.choosing import kernels_of
from connectors.postgres.wal.copy_text import decode_copy
from connectors.postgres.wal.kernels import Kernels
from core_log.errors import DecodeError

ESCAPES = {
    "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v",
}  # fmt: skip


def encoded(rows: Sequence[tuple[str | None, ...]]) -> bytes:
    """As the server does it."""
    lines = ["\t".join(cell(value) for value in row) + "\n" for row in rows]
    return "".join(lines).encode()


def cell(value: str | None) -> str:
    return "\\N" if value is None else "".join(ESCAPES.get(each, each) for each in value)


def rows_of(kernels: Kernels, content: bytes, columns: int) -> list[tuple[str | None, ...]]:
    found = decode_copy(content, columns, kernels).columns
    return list(zip(*(each.to_pylist() for each in found), strict=True))


def test_nulls_empty_texts_and_their_likes_are_told_apart(kernels: Kernels) -> None:
    rows = [(None, ""), ("", None), ("\\N", "N"), ("\\", "NN"), ("é\n", "\t\\\t")]

    assert rows_of(kernels, encoded(rows), 2) == rows


def test_a_backslash_at_the_end_of_a_value_is_none_of_the_next(kernels: Kernels) -> None:
    rows = [("a\\", "n"), ("\\\\", "t"), ("\\", "\n"), ("\\n", "b")]

    assert rows_of(kernels, encoded(rows), 2) == rows


def test_a_column_alone_may_be_empty(kernels: Kernels) -> None:
    rows: list[tuple[str | None, ...]] = [("",), (None,), ("",)]

    assert rows_of(kernels, encoded(rows), 1) == rows


def test_text_that_is_not_utf8_is_marked_and_its_bytes_are_shown(kernels: Kernels) -> None:
    found = decode_copy(b"a\\n\xe9\t\\N\n\xc3\xa9\tb\n" + b"x\ty\n" * 20, 2, kernels)

    assert found.has_unreadable
    assert found.columns[0].to_pylist() == ["\0a\n<e9>", "é", *["x"] * 20]
    assert found.columns[1].to_pylist() == [None, "b", *["y"] * 20]
    assert not decode_copy(b"\xc3\xa9\tb\n" * 20, 2, kernels).has_unreadable


def test_no_rows_are_no_rows(kernels: Kernels) -> None:
    assert [len(each) for each in decode_copy(b"", 3, kernels).columns] == [0, 0, 0]


@pytest.mark.parametrize(
    "content",
    [
        b"a\tb",
        b"a\n",
        b"a\tb\tc\n",
        b"a\tb\nc\n",
        b"a\nb\n",
        b"a\tb\n\n",
        b"\t",
        b"a\t\\\n",
    ],
)
def test_lines_that_are_no_rows_are_refused(kernels: Kernels, content: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_copy(content, 2, kernels)


@given(
    rows=st.integers(1, 4).flatmap(
        lambda width: st.lists(
            st.tuples(*[st.none() | st.text(alphabet="\\Nntab\n\té\U0001f600")] * width), min_size=1
        )
    )
)
@pytest.mark.property
def test_any_rows_come_back(rows: list[tuple[str | None, ...]]) -> None:
    content, width = encoded(rows), len(rows[0])

    plain, fast = (
        rows_of(kernels_of(each, few_rows=2), content, width) for each in ("python", "fast")
    )

    assert plain == fast == rows


@given(content=st.binary(), width=st.integers(1, 3))
@pytest.mark.property
def test_any_bytes_are_read_alike_or_refused_by_both(content: bytes, width: int) -> None:
    plain, fast = (
        outcome(kernels_of(each, few_rows=2), content, width) for each in ("python", "fast")
    )

    assert plain == fast


def outcome(kernels: Kernels, content: bytes, width: int) -> object:
    try:
        return rows_of(kernels, content, width)
    except DecodeError as error:
        return str(error)
