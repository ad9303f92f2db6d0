"""A reader gets exactly the batches it asked for, whole and in order, however it asks."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core_log.foundation.errors import OffsetOutOfRange
from headwater.core_log.storage.log_config import LogConfig
from headwater.core_log.storage.partition_log import PartitionLog
from tests.builders import append, batches_in, open_log, sync, values_in, values_of
from tests.fakes import MemoryFiles

SMALL = LogConfig(segment_bytes=600, index_interval_bytes=100)


def log_of(sizes: list[int], config: LogConfig = SMALL) -> PartitionLog:
    """A log with a batch of so many records for every size."""
    _, log = open_log(MemoryFiles(), config=config)
    for size in sizes:
        append(log, *["x" * (7 * size)] * size)
    return log


@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=12),
    bytes_max=st.integers(0, 1500),
    interval=st.sampled_from([0, 100, 4096]),
    data=st.data(),
)
def test_a_read_is_whole_batches_from_the_one_that_holds_the_offset(
    sizes: list[int], bytes_max: int, interval: int, data: st.DataObject
) -> None:
    log = log_of(sizes, replace(SMALL, index_interval_bytes=interval))
    bases = [sum(sizes[:number]) for number in range(len(sizes) + 1)]
    below = data.draw(st.sampled_from(bases))
    offset = data.draw(st.integers(0, log.end_offset))

    found = log.read(offset, below=below, bytes_max=bytes_max, at_least_one=True)

    if offset >= below:
        assert found is None
        return
    assert found is not None
    heads = batches_in(found.read())
    assert heads[0].base_offset == max(base for base in bases if base <= offset)
    assert heads[-1].next_offset == found.next_offset <= below
    assert [each.next_offset for each in heads[:-1]] == [each.base_offset for each in heads[1:]]
    assert len(heads) == 1 or found.size <= bytes_max


@given(sizes=st.lists(st.integers(1, 4), min_size=1, max_size=12), bytes_max=st.integers(0, 400))
def test_reading_on_from_where_a_read_ended_meets_every_record_once(
    sizes: list[int], bytes_max: int
) -> None:
    log = log_of(sizes)

    seen, offset = [], 0
    while (
        found := log.read(offset, below=log.end_offset, bytes_max=bytes_max, at_least_one=True)
    ) is not None:
        seen += [each for each, _ in values_in(found.read(), at_least=offset)]
        offset = found.next_offset

    assert seen == list(range(log.end_offset))


def test_a_batch_too_large_is_read_only_by_who_insists() -> None:
    log = log_of([3])

    assert log.read(0, below=3, bytes_max=10, at_least_one=False) is None
    assert log.read(0, below=3, bytes_max=10, at_least_one=True) is not None


def test_a_read_ends_at_the_bound_whatever_was_read_before() -> None:
    log = log_of([1] * 6, LogConfig())

    for below in (6, 3, 5, 1, 4):
        found = log.read(0, below=below, bytes_max=1 << 20, at_least_one=True)
        assert found is not None
        assert found.next_offset == below


def test_offsets_before_the_start_and_beyond_the_end_are_out_of_range() -> None:
    log = log_of([1, 1, 1])
    log.delete_records_before(1)

    for offset in (0, 4):
        with pytest.raises(OffsetOutOfRange):
            log.read(offset, below=3, bytes_max=100, at_least_one=True)
    assert log.read(3, below=3, bytes_max=100, at_least_one=True) is None


def test_a_new_segment_begins_when_the_next_batch_would_not_fit() -> None:
    log = log_of([1] * 30)

    assert len(log.segments) > 3
    assert all(segment.size <= SMALL.segment_bytes for segment in log.segments)
    assert [offset for offset, _ in values_of(log)] == list(range(30))


def test_a_new_segment_begins_when_the_records_span_segment_ms() -> None:
    _, log = open_log(MemoryFiles(), config=LogConfig(segment_ms=1000))

    for timestamp_ms in (5000, 5900, 6000, 6001, 7001, 7002):
        append(log, "x", timestamp_ms=timestamp_ms)

    assert [segment.base_offset for segment in log.segments] == [0, 3, 5]


def test_a_first_record_without_a_time_starts_no_clock() -> None:
    _, log = open_log(MemoryFiles(), config=LogConfig(segment_ms=1000))

    for timestamp_ms in (-1, 5000, 90_000):
        append(log, "x", timestamp_ms=timestamp_ms)

    assert len(log.segments) == 1


def test_old_records_do_not_get_a_segment_each() -> None:
    _, log = open_log(MemoryFiles(), config=LogConfig(segment_ms=1000))

    for _ in range(5):
        append(log, "x", timestamp_ms=7, now_ms=1_000_000)

    assert len(log.segments) == 1


def test_a_new_segment_begins_when_an_index_is_full() -> None:
    config = LogConfig(segment_index_bytes=60, index_interval_bytes=0)
    _, log = open_log(MemoryFiles(), config=config)

    for _ in range(20):
        append(log, "x")

    assert len(log.segments) > 2
    assert all(segment.index.file.count <= 5 for segment in log.segments)


def test_a_new_configuration_counts_from_the_next_append() -> None:
    _, log = open_log(MemoryFiles())
    append(log, "x" * 100)

    log.config = LogConfig(segment_bytes=100)
    append(log, "x" * 100)

    assert len(log.segments) == 2


def test_a_reader_keeps_its_bytes_when_their_segment_is_deleted() -> None:
    store, log = open_log(MemoryFiles(), config=SMALL)
    for number in range(12):
        append(log, f"value {number}", "x" * 200)
    sync(log, store)
    held = log.read(0, below=log.end_offset, bytes_max=1 << 20, at_least_one=True)
    assert held is not None
    before = held.read()

    log.delete_records_before(12)
    removal = log.apply_retention(0, below=log.end_offset)
    assert removal is not None
    removal.run()

    assert log.start_offset == 12
    assert held.read() == before
