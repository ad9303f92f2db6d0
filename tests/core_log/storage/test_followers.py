"""A follower's log is its leader's, byte for byte, and gives up what the leader never had."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core_log.foundation.errors import CorruptBatch, StorageFailed
from headwater.core_log.storage.log_config import LogConfig
from headwater.core_log.storage.partition_log import PartitionLog
from headwater.core_log.storage.producers import DuplicateBatch
from tests.builders import START_MS, Sequenced, append, batch, open_log, sync, values_of
from tests.fakes import FaultyFiles, MemoryFiles

SMALL = LogConfig(segment_bytes=500, index_interval_bytes=100)


def led_log(count: int = 12) -> PartitionLog:
    """A leader's log with a sequence, an aborted transaction and three epochs."""
    _, log = open_log(MemoryFiles(), config=SMALL)
    for number in range(count):
        append(log, f"value {number}", producer=Sequenced(7, 0, number), leader_epoch=number // 4)
        if number == 5:
            stamp = Sequenced(8, 0, 0, is_transactional=True)
            append(log, "aborted", producer=stamp, leader_epoch=1)
        if number == 7:
            log.append_marker(
                8, 0, commit=False, coordinator_epoch=0, leader_epoch=1, now_ms=START_MS
            )
    return log


def bytes_of(log: PartitionLog) -> bytes:
    return b"".join(bytes(each) for each in log.batches(0))


def test_a_follower_that_copied_everything_knows_everything() -> None:
    leader = led_log()
    _, follower = open_log(MemoryFiles(), config=SMALL)

    end_offset = follower.append_as_follower(memoryview(bytes_of(leader)))

    assert end_offset == leader.end_offset
    assert bytes_of(follower) == bytes_of(leader)
    assert follower.epochs.starts == leader.epochs.starts
    assert follower.find_aborted(0, end_offset) == leader.find_aborted(0, end_offset)
    with pytest.raises(DuplicateBatch):
        append(follower, "value 11", producer=Sequenced(7, 0, 11), leader_epoch=3)


def test_a_batch_that_was_already_copied_is_refused() -> None:
    leader = led_log()
    _, follower = open_log(MemoryFiles())
    copied = memoryview(bytes_of(leader))
    follower.append_as_follower(copied)

    with pytest.raises(CorruptBatch, match="before the end of this log"):
        follower.append_as_follower(copied)


def test_a_damaged_batch_is_not_copied() -> None:
    data = bytearray(batch("x"))
    data[-1] ^= 1
    _, follower = open_log(MemoryFiles())

    with pytest.raises(CorruptBatch):
        follower.append_as_follower(memoryview(data))
    assert follower.end_offset == 0


def test_producers_are_not_forgotten_because_a_log_was_truncated() -> None:
    leader = led_log()
    _, follower = open_log(MemoryFiles(), config=SMALL)
    follower.append_as_follower(memoryview(bytes_of(leader)), now_ms=START_MS)

    follower.truncate_to(leader.end_offset - 1)

    assert follower.producers.expire(START_MS + 60_000) == 0
    with pytest.raises(DuplicateBatch):
        append(follower, "value 10", producer=Sequenced(7, 0, 10), leader_epoch=3)


def test_a_full_segment_is_not_continued_after_a_truncation() -> None:
    files = MemoryFiles()
    store, log = open_log(files, config=SMALL)
    log.append_as_follower(memoryview(bytes_of(led_log())))
    store.close()
    _, log = open_log(files, config=SMALL)
    full, following = list(log.segments)[-2:]

    log.truncate_to(following.base_offset)
    append(log, "next", leader_epoch=3)

    assert full.size <= SMALL.segment_bytes
    assert [each.base_offset for each in log.segments][-1] == following.base_offset


@given(count=st.integers(0, 14), is_clean=st.booleans())
def test_a_truncated_log_is_as_if_the_rest_had_never_been(count: int, is_clean: bool) -> None:
    files = MemoryFiles()
    store, log = open_log(files, config=SMALL)
    leader = led_log()
    data = [bytes(each) for each in leader.batches(0)]
    log.append_as_follower(memoryview(b"".join(data)))
    sync(log, store)
    _, expected = open_log(MemoryFiles(), config=SMALL)
    expected.append_as_follower(memoryview(b"".join(data[:count])))

    log.truncate_to(count)

    for _ in range(2):
        assert bytes_of(log) == bytes_of(expected)
        assert log.end_offset == expected.end_offset == count
        assert log.durable_offset == count
        assert log.epochs.starts == expected.epochs.starts
        assert log.find_aborted(0, 99) == expected.find_aborted(0, 99)
        assert log.producers.open_transactions() == [
            each._replace(timestamp_ms=found.timestamp_ms)
            for each, found in zip(
                expected.producers.open_transactions(),
                log.producers.open_transactions(),
                strict=True,
            )
        ]
        store.close(clean=is_clean)
        files = files.after_kill()
        store, log = open_log(files, config=SMALL)
    log.append_as_follower(memoryview(b"".join(data[count:])))
    assert values_of(log) == values_of(leader)


def test_truncating_beyond_the_end_changes_nothing() -> None:
    log = led_log()
    before = bytes_of(log)

    log.truncate_to(99)

    assert bytes_of(log) == before


def test_a_sync_under_way_proves_nothing_of_what_is_written_after_a_truncation() -> None:
    _, log = open_log(MemoryFiles())
    for value in "abc":
        append(log, value)

    job = log.sync_job()
    log.truncate_to(1)
    append(log, "d")
    append(log, "e")
    log.finish_sync(job)

    assert log.durable_offset == 1


@pytest.mark.parametrize("offset", [18, 40])
def test_a_log_that_starts_over_is_empty_and_goes_on_at_its_new_start(offset: int) -> None:
    files = MemoryFiles()
    store, log = open_log(files, config=SMALL)
    leader = led_log()
    log.append_as_follower(memoryview(bytes_of(leader)))
    sync(log, store)

    log.start_over(offset)

    for _ in range(2):
        assert (log.start_offset, log.end_offset, log.durable_offset) == (offset,) * 3
        assert (bytes_of(log), log.epochs.starts, len(log.producers)) == (b"", (), 0)
        store.close(clean=False)
        files = files.after_power_cut(Random(offset))
        store, log = open_log(files, config=SMALL)
    log.append_as_follower(memoryview(batch("next", base_offset=offset, leader_epoch=4)))
    assert values_of(log) == [(offset, b"next")]


@pytest.mark.slow
def test_a_power_cut_while_a_log_starts_over_leaves_a_whole_log() -> None:
    leader, seen = led_log(), set[tuple[int, int]]()
    for number in count():
        disk = MemoryFiles()
        files = FaultyFiles(disk)
        store, log = open_log(files, config=SMALL)
        log.append_as_follower(memoryview(bytes_of(leader)))
        sync(log, store)
        left = iter(range(number))

        def fault(what: str, path: Path, left: Iterator[int] = left) -> None:
            if next(left, None) is None:
                raise OSError(5, "power is about to go")

        files.fault = fault
        try:
            log.start_over(40)
        except StorageFailed:
            store.close(clean=False)
            _, after = open_log(disk.after_power_cut(Random(number)), config=SMALL)
            seen.add((after.start_offset, after.end_offset))
            assert bytes_of(leader).startswith(bytes_of(after))
            continue
        break

    assert seen >= {(0, 0), (40, 40)}
