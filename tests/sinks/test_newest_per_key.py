"""Of every key the newest change is found, whatever the key is made of."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.sinks.fold import newest

KEYS = st.lists(st.tuples(st.integers(-3, 3), st.one_of(st.none(), st.text("aß\0", max_size=2))))


def batch(keys: list[tuple[int, str | None]]) -> pa.RecordBatch:
    numbers, texts = [key[0] for key in keys], [key[1] for key in keys]
    arrays = [pa.array(numbers, pa.int64()), pa.array(texts, pa.string())]
    return pa.RecordBatch.from_arrays(arrays, names=["number", "text"])


@given(KEYS)
def test_the_last_place_of_every_key_is_found(keys: list[tuple[int, str | None]]) -> None:
    places = newest(batch(keys))

    expected = sorted({key: place for place, key in enumerate(keys)}.values())
    assert (list(range(len(keys))) if places is None else places.to_pylist()) == expected


def test_keys_of_many_wide_columns_do_not_overflow() -> None:
    columns = [pa.array([row * column for row in range(2_000)] * 2) for column in range(1, 8)]
    keys = pa.RecordBatch.from_arrays(columns, names=[str(place) for place in range(1, 8)])

    places = newest(keys)

    assert places is not None
    assert places.to_pylist() == list(range(2_000, 4_000))


def test_rows_that_are_all_different_need_no_choice() -> None:
    assert newest(batch([(1, "a"), (2, "a"), (1, "b")])) is None


@given(st.lists(st.one_of(st.integers(-4, 4), st.sampled_from([-(2**63), 2**63 - 1, 10**9]))))
def test_numbers_are_told_apart_whether_they_lie_close_or_far(keys: list[int]) -> None:
    places = newest(pa.RecordBatch.from_arrays([pa.array(keys, pa.int64())], names=["id"]))

    expected = sorted({key: place for place, key in enumerate(keys)}.values())
    assert (list(range(len(keys))) if places is None else places.to_pylist()) == expected


def test_lists_are_keys_as_well() -> None:
    keys = pa.array([[1, None], [1], None, [1, None], []], pa.list_(pa.int32()))

    places = newest(pa.RecordBatch.from_arrays([keys], names=["id"]))

    assert places is not None and places.to_pylist() == [1, 2, 3, 4]


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_both_zeros_and_every_nan_are_one_key_each(kind: pa.DataType) -> None:
    nans = np.array([0x7FF8 << 48, 0xFFF8 << 48], np.uint64).view(np.float64)
    keys = pa.concat_arrays([pa.array([0.0, -0.0, None]), pa.array(nans)]).cast(kind)

    places = newest(pa.RecordBatch.from_arrays([keys], names=["rate"]))

    assert places is not None and places.to_pylist() == [1, 2, 4]
