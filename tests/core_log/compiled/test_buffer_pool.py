"""A large buffer is used again as soon as nobody has anything of it, and never before."""

import pyarrow as pa
import pytest

from headwater.core_log.compiled.row_writer_kernels import LARGE_BYTES, BufferPool
from headwater.core_log.records.row_writer import RowColumn, RowPart, ValueEncoding, join_plainly

SIZE = 3 * LARGE_BYTES


def test_a_free_buffer_is_given_again() -> None:
    memory = BufferPool()
    first = memory.of(SIZE)
    address = first.ctypes.data

    del first

    assert memory.of(SIZE - 5).ctypes.data == address


def test_a_slice_of_a_column_keeps_its_buffer() -> None:
    memory = BufferPool()
    first = memory.of(SIZE)
    first[:] = ord("a")
    offsets = pa.py_buffer(pa.array([0, 5, SIZE], pa.int32()).buffers()[1])
    column = pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(first)])
    kept, address = column.slice(0, 1).cast(pa.binary()), first.ctypes.data

    del first, column
    second = memory.of(SIZE)
    second[:] = ord("b")

    assert second.ctypes.data != address
    assert kept.to_pylist() == [b"aaaaa"]


def test_a_view_keeps_its_buffer() -> None:
    memory = BufferPool()
    view = memoryview(pa.py_buffer(memory.of(SIZE)))[7:9]
    number = memory.of(SIZE)[:1]

    third = memory.of(SIZE)

    addresses = {pa.py_buffer(view).address - 7, number.ctypes.data, third.ctypes.data}
    assert len(addresses) == 3


def test_no_more_is_kept_than_was_said() -> None:
    memory = BufferPool(kept_bytes_max=2 * SIZE)

    held = [memory.of(SIZE) for _ in range(5)]
    giant = memory.of(10 * SIZE)

    assert memory.kept_bytes <= 2 * SIZE
    assert len({each.ctypes.data for each in (*held, giant)}) == 6


def test_a_small_buffer_is_of_its_size_and_nobody_keeps_it() -> None:
    memory = BufferPool()

    assert len(memory.of(17)) == 17
    assert not memory.kept_bytes


@pytest.mark.parametrize("more", [0, 1])
def test_joined_columns_stay_as_they_are_while_others_are_joined(more: int) -> None:
    pytest.importorskip("numba")
    from headwater.core_log.compiled.row_writer_kernels import join_compiled

    rows = 2_000 + more
    texts = [pa.array([f"{letter * 1_000}{row}" for row in range(rows)]) for letter in "abc"]
    pieces: list[list[RowPart]] = [[RowColumn(text, ValueEncoding.STRING), b","] for text in texts]

    kept = [join_compiled(each, rows, pa.string(), b"null") for each in pieces]
    for each in pieces:
        join_compiled(each, rows, pa.string(), b"null")

    assert kept == [join_plainly(each, rows, pa.string(), b"null") for each in pieces]
