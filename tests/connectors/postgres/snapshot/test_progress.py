"""What was read of a table is written down shortly, and says what is left."""

from random import Random

import pyarrow as pa
import pytest

from headwater.connectors.postgres.server.lsn import PgSnapshot
from headwater.connectors.postgres.snapshot.progress import (
    LeafProgress,
    TableSnapshotProgress,
    chunks_of,
)
from headwater.connectors.snapshot.row_keys import having_keys
from headwater.connectors.snapshot.time_window import RateLimit
from headwater.core_log.foundation.errors import DecodeError
from tests.fakes import SimulatedClock

PAGES = 100


@pytest.mark.parametrize("seed", range(5))
def test_read_and_pending_pages_are_the_whole_table(seed: int) -> None:
    random = Random(seed)
    progress = TableSnapshotProgress(
        PgSnapshot(3, 9, frozenset({4})), (LeafProgress(1, 1, PAGES), LeafProgress(2, 2, 0))
    )
    read = set[int]()
    while not progress.is_read:
        todo = chunks_of(progress.leaves, pages_each=[random.randrange(1, 20), 1])
        assert {page for each in todo for page in range(*each.pages)} == set(range(PAGES)) - read
        chunk = random.choice(todo)
        read |= set(range(*chunk.pages))
        progress = TableSnapshotProgress.parse(progress.with_read(1, chunk.pages, rows=7).text())

    assert progress.leaves[0].read == ((0, PAGES),)
    assert TableSnapshotProgress.parse(progress.finish().text()) == progress.finish()


def test_a_reread_with_another_reason_leaves_out_the_same_changes() -> None:
    progress = TableSnapshotProgress(oid=1, since=7).to_be_read_again("returned", after=7)

    again = TableSnapshotProgress.parse(progress.to_be_read_again("another key", after=9).text())

    assert (again.since, again.after) == (7, 9)


@pytest.mark.parametrize("text", ["", "done", "[]", '{"version": 99}', '{"version": 1}'])
def test_a_part_that_is_none_of_ours_is_said_to_be_so(text: str) -> None:
    with pytest.raises(DecodeError):
        TableSnapshotProgress.parse(text)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int64(), [1, -5, 2**62, 0]),
        (pa.string(), ["a", "", "a:1", "ä"]),
        (pa.binary(), [b"\xff", b"", b"1:", b"a"]),
        (pa.decimal128(20, 3), [1, 2, 3, 4]),
        (pa.timestamp("us", "UTC"), [0, 2**62, -(2**62), 7]),
        (pa.date32(), [0, 2**30, -(2**30), 1]),
        (pa.float64(), [0.1, float("inf"), 1e300, 5.0]),
        (pa.bool_(), [True, False, True, False]),
        (pa.list_(pa.int32()), [[1], [], [1, 2], [12]]),
        (pa.struct({"a": pa.int32()}), [{"a": 1}, {"a": 2}, {"a": None}, {"a": 3}]),
    ],
    ids=str,
)
def test_keys_of_every_type_are_found_exactly(kind: pa.DataType, values: list[object]) -> None:
    column = pa.array(values, kind)
    rows = pa.RecordBatch.from_pydict({"k": column, "n": pa.array([1, 2, 3, 4])})

    one = having_keys(rows, pa.RecordBatch.from_pydict({"k": column.slice(1, 1)}))
    other = having_keys(rows, rows.slice(2, 1))

    assert one.tolist() == [value == values[1] for value in values]
    assert other.tolist() == [False, False, True, False], "by two columns"


def test_keys_of_several_columns_are_not_mixed_up() -> None:
    names = ("a", "b")
    rows = pa.RecordBatch.from_arrays(
        [pa.array(["x", "xy", "x:1", None, ""]), pa.array(["yz", "z", "", "", None])], names
    )

    found = [having_keys(rows, rows.slice(place, 1)).tolist() for place in range(5)]

    assert found == [[place == other for other in range(5)] for place in range(5)]


def test_rows_pass_no_faster_than_they_may() -> None:
    clock = SimulatedClock()
    throttle = RateLimit(clock, rows_per_second=1_000)

    waits = [throttle.owed_ms(500), throttle.owed_ms(500)]
    clock.advance(5_000)
    later = throttle.owed_ms(100)

    assert waits == [500, 1_000]
    assert later == 100
    assert RateLimit(clock, None).owed_ms(10**9) == 0
