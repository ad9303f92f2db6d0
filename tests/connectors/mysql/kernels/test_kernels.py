"""The compiled loops over bytes do the same as the plain ones."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.connectors.mysql.kernels.kernels import (
    LazyMysqlKernels,
    MysqlKernels,
    RowLayout,
    kernels_of,
    with_slack,
)

FAST, PLAIN = kernels_of("fast"), kernels_of("python")
WIDTHS = st.sampled_from([1, 2, 3, 8, -1, -2, -4])
CELLS = st.none() | st.binary(max_size=300)


@st.composite
def layouts(draw: st.DrawFn) -> RowLayout:
    images = draw(st.lists(st.integers(1, 10), min_size=1, max_size=2))
    widths = [draw(WIDTHS) for _ in range(sum(images))]
    return RowLayout(np.array(images, np.int32), np.array(widths, np.int32))


def row_of(layout: RowLayout, data: st.DataObject) -> bytes:
    draw, found, first = data.draw, b"", 0
    for count in layout.images.tolist():
        nulls = [draw(st.booleans()) for _ in range(count)]
        found += np.packbits(nulls, bitorder="little").tobytes()
        for width, is_null in zip(
            layout.widths[first : first + count].tolist(), nulls, strict=True
        ):
            if is_null:
                continue
            value = draw(st.binary(max_size=20))
            found += (
                value[:width].ljust(width, b"\0")
                if width > 0
                else len(value).to_bytes(-width, "little") + value
            )
        first += count
    return found


@pytest.mark.property
@given(layouts(), st.data())
def test_rows_are_split_in_the_same_way(layout: RowLayout, data: st.DataObject) -> None:
    chunks = [
        b"".join(row_of(layout, data) for _ in range(data.draw(st.integers(0, 4))))
        for _ in range(data.draw(st.integers(1, 4)))
    ]
    if data.draw(st.booleans()):
        chunks[-1] = chunks[-1][: data.draw(st.integers(0, len(chunks[-1])))]
    buffer, ends = with_slack(chunks), np.cumsum([len(each) for each in chunks])
    begins = np.append(0, ends[:-1])

    fast, plain = (each.rows(buffer, begins, ends, layout) for each in (FAST, PLAIN))

    assert fast.counts.tolist() == plain.counts.tolist()
    assert fast.bounds.tolist() == plain.bounds.tolist()
    assert fast.is_null.tolist() == plain.is_null.tolist()
    if fast.is_null.shape[1]:
        gathered = [each.gather(buffer, fast.bounds, fast.is_null) for each in (FAST, PLAIN)]
        assert [each.to_pylist() for each in gathered[0]] == [
            each.to_pylist() for each in gathered[1]
        ]


@pytest.mark.parametrize("kernels", [FAST, PLAIN], ids=["fast", "plain"])
def test_a_damaged_length_of_four_bytes_ends_the_walk(kernels: MysqlKernels) -> None:
    layout = RowLayout(np.ones(1, np.int32), np.array([-4], np.int32))
    buffer, place = with_slack([b"\0" + b"\xff" * 4 + b"abc"]), np.zeros(1, np.int64)

    assert kernels.rows(buffer, place, place + 8, layout).counts.tolist() == [-1]


@pytest.mark.property
@given(st.integers(1, 4).flatmap(lambda n: st.lists(st.lists(CELLS, min_size=n, max_size=n))))
def test_rows_of_a_select_are_split_in_the_same_way(rows: list[list[bytes | None]]) -> None:
    sent = [packet_of(b"".join(map(cell_of, row)), number) for number, row in enumerate(rows)]
    buffer, end = with_slack([*sent, b"\5\0"]), sum(map(len, sent))

    for each in (FAST, PLAIN):
        packets = each.packets(buffer, end + 2)
        assert packets.stop == end and len(packets.starts) == len(rows)
        if rows:
            spans = each.cells(buffer, packets.starts, packets.stops, len(rows[0]))
            columns = each.gather(buffer, spans.bounds, spans.is_null)
            assert spans.is_sound
            assert [
                list(row) for row in zip(*[c.to_pylist() for c in columns], strict=True)
            ] == rows


@pytest.mark.property
@given(st.binary(max_size=60), st.integers(1, 5))
def test_noise_as_a_row_of_a_select_is_sound_for_both_or_neither(
    noise: bytes, columns: int
) -> None:
    buffer, start = with_slack([noise]), np.zeros(1, np.int64)

    fast, plain = (each.cells(buffer, start, start + len(noise), columns) for each in (FAST, PLAIN))

    assert fast.is_sound == plain.is_sound
    if fast.is_sound:
        assert fast.bounds.tolist() == plain.bounds.tolist()


@pytest.mark.slow
def test_the_compiled_kernels_are_loaded_once_enough_was_read() -> None:
    lazy, layout = LazyMysqlKernels(worth_bytes=100), RowLayout(*2 * [np.ones(1, np.int32)])
    buffer, place = with_slack([b"\0\7" * 100]), np.zeros(1, np.int64)

    counts = [lazy.rows(buffer, place, place + 200, layout).counts.tolist()]
    lazy.wait()
    counts.append(lazy.rows(buffer, place, place + 200, layout).counts.tolist())

    assert lazy.is_warm
    assert counts == [[100], [100]]


def cell_of(cell: bytes | None) -> bytes:
    if cell is None:
        return b"\xfb"
    head = bytes([len(cell)]) if len(cell) < 251 else b"\xfc" + len(cell).to_bytes(2, "little")
    return head + cell


def packet_of(payload: bytes, number: int) -> bytes:
    return len(payload).to_bytes(3, "little") + bytes([number % 256]) + payload
