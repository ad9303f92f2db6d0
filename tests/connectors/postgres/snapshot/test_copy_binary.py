"""What COPY sends is split into the very values that the table holds."""

from collections.abc import Sequence
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.connectors.postgres.snapshot.copy import (
    SIGNATURE,
    TRAILER,
    decode_tuples,
    tuples_of_messages,
)
from headwater.connectors.postgres.wal.kernels import Kernels, kernels_of
from headwater.core_log.foundation.errors import DecodeError

HEAD = SIGNATURE + bytes(8)
Row = tuple[str | None, ...]


def messages_of(rows: Sequence[Row]) -> list[bytes]:
    """As the server does it."""
    messages = [pack(">h", len(row)) + b"".join(map(cell, row)) for row in rows]
    first, *more = [*messages, TRAILER]
    return [HEAD + first, *more]


def cell(value: str | None) -> bytes:
    if value is None:
        return pack(">i", -1)
    content = value.encode()
    return pack(">i", len(content)) + content


def rows_of(kernels: Kernels, messages: Sequence[bytes], width: int) -> list[tuple[object, ...]]:
    """The last column is read as bytes."""
    are_texts = [place < width - 1 for place in range(width)]
    found = decode_tuples(tuples_of_messages(messages), are_texts, kernels).columns
    return list(zip(*(each.to_pylist() for each in found), strict=True))


def with_bytes(rows: Sequence[Row]) -> list[tuple[object, ...]]:
    return [(*row[:-1], None if row[-1] is None else row[-1].encode()) for row in rows]


def test_nulls_and_empty_values_are_told_apart(kernels: Kernels) -> None:
    rows: list[Row] = [(None, ""), ("", None), ("\0é", "\\N"), ("x" * 100, "\n")] * 5

    assert rows_of(kernels, messages_of(rows), 2) == with_bytes(rows)


def test_a_column_alone_may_be_empty(kernels: Kernels) -> None:
    rows: list[Row] = [("",), (None,), ("",)]

    assert rows_of(kernels, messages_of(rows), 1) == with_bytes(rows)


def test_no_rows_are_no_rows(kernels: Kernels) -> None:
    tuples = tuples_of_messages([HEAD + TRAILER])
    found = decode_tuples(tuples, [True, False, True], kernels).columns

    assert [len(each) for each in found] == [0, 0, 0]


def test_text_that_is_not_utf8_is_marked_and_its_bytes_are_shown(kernels: Kernels) -> None:
    bad = pack(">h", 2) + pack(">i", 3) + b"a\n\xe9" + cell(None)
    good = messages_of([("é", "b"), *[("x", "y")] * 20])

    found = decode_tuples(tuples_of_messages([bad, *good[1:]]), [True, True], kernels)

    assert found.has_unreadable
    assert found.columns[0].to_pylist() == ["\0a\n<e9>", *["x"] * 20]
    assert found.columns[1].to_pylist() == [None, *["y"] * 20]
    bytes_alone = decode_tuples(tuples_of_messages([bad, *good[1:]]), [False, True], kernels)
    assert not bytes_alone.has_unreadable
    assert not decode_tuples(tuples_of_messages(good), [True, True], kernels).has_unreadable


def test_a_head_may_be_longer_than_today(kernels: Kernels) -> None:
    head = SIGNATURE + bytes(4) + pack(">i", 3) + b"new"
    [first, *more] = messages_of([("a", "b")])

    assert rows_of(kernels, [head + first.removeprefix(HEAD), *more], 2) == [("a", b"b")]


@pytest.mark.parametrize(
    "message",
    [
        b"\0",
        b"\0\1" + cell("a"),
        b"\0\3" + cell("a") * 3,
        b"\0\2" + cell("a"),
        b"\0\2" + cell("a") * 3,
        b"\0\2" + cell("a") + b"\0\0\0\2b",
        b"\0\2" + cell("a") + b"\x7f\xff\xff\xffb",
        b"\0\2" + cell("a") + b"\xff\xff\xff\xfeb",
        SIGNATURE,
        SIGNATURE + bytes(4) + b"\xff\xff\xff\xff",
    ],
)
def test_messages_that_are_no_rows_are_refused(kernels: Kernels, message: bytes) -> None:
    with pytest.raises(DecodeError):
        rows_of(kernels, [message, *messages_of([("a", "b")])], 2)


@given(
    rows=st.integers(1, 4).flatmap(
        lambda width: st.lists(
            st.tuples(*[st.none() | st.text(alphabet="\0\nté\U0001f600")] * width), min_size=1
        )
    )
)
@pytest.mark.property
def test_any_rows_come_back(rows: list[Row]) -> None:
    messages, width = messages_of(rows), len(rows[0])

    plain, fast = (
        rows_of(kernels_of(each, few_rows=2), messages, width) for each in ("python", "fast")
    )

    assert plain == fast == with_bytes(rows)


@given(messages=st.lists(st.binary(), min_size=1), width=st.integers(1, 3))
@pytest.mark.property
def test_any_bytes_are_read_alike_or_refused_by_both(messages: list[bytes], width: int) -> None:
    plain, fast = (
        outcome(kernels_of(each, few_rows=2), messages, width) for each in ("python", "fast")
    )

    assert plain == fast


def outcome(kernels: Kernels, messages: list[bytes], width: int) -> object:
    try:
        return rows_of(kernels, messages, width)
    except DecodeError as error:
        return str(error)
