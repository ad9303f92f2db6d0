"""A log knows which leader wrote what, and where each left off."""

from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core_log.storage.leader_epochs import FILE_NAME, EpochCache
from headwater.core_log.storage.partition_log import PartitionLog
from tests.builders import append, batch, open_log, sync
from tests.fakes import MemoryFiles

DIRECTORY = Path("/log/orders-0")


def cache_of(*starts: tuple[int, int], end: int = 100) -> EpochCache:
    cache = EpochCache(MemoryFiles(), DIRECTORY)
    cache.log_end = lambda: end
    for epoch, offset in starts:
        cache.assign(epoch, offset)
    return cache


def test_an_epoch_ends_where_the_next_begins() -> None:
    cache = cache_of((1, 0), (3, 40), (4, 70))

    assert cache.end_offset_for(4) == (4, 100)
    assert cache.end_offset_for(3) == (3, 70)
    assert cache.end_offset_for(1) == (1, 40)


def test_an_epoch_in_which_nothing_was_written_ends_with_the_one_before_it() -> None:
    assert cache_of((1, 0), (3, 40)).end_offset_for(2) == (1, 40)


def test_an_epoch_older_than_all_ended_before_the_first() -> None:
    assert cache_of((3, 40)).end_offset_for(1) == (1, 40)


def test_an_epoch_newer_than_all_is_unknown() -> None:
    assert cache_of((3, 40)).end_offset_for(5) == (-1, -1)
    assert cache_of((3, 40)).end_offset_for(-1) == (-1, -1)
    assert cache_of().end_offset_for(0) == (-1, -1)


def test_epochs_only_grow() -> None:
    cache = cache_of((3, 40))
    cache.assign(2, 50)
    cache.assign(3, 60)

    assert cache.starts == ((3, 40),)


def test_an_epoch_that_wrote_nothing_gives_way_to_the_one_that_does() -> None:
    assert cache_of((3, 40), (4, 40)).starts == ((4, 40),)


def test_an_epoch_that_wrote_nothing_gives_way_to_an_older_one_that_did() -> None:
    """A leader of epoch 2 that wrote nothing then copies from the next one a batch of epoch 1."""
    cache = cache_of((0, 0), (2, 12), (1, 12), (4, 13), end=13)

    assert cache.epoch_at(12) == 1
    assert cache.end_offset_for(1) == (1, 13)


def test_an_epoch_that_wrote_nothing_gives_way_to_the_one_before_it_that_goes_on() -> None:
    assert cache_of((0, 0), (1, 5), (2, 12), (1, 12)).starts == ((0, 0), (1, 5))


def test_the_epoch_of_an_offset_is_the_one_in_force_there() -> None:
    cache = cache_of((1, 10), (3, 40))

    assert [cache.epoch_at(offset) for offset in (9, 10, 39, 40, 99)] == [-1, 1, 1, 3, 3]


def test_truncation_takes_the_epochs_that_began_beyond() -> None:
    cache = cache_of((1, 0), (3, 40), (4, 70))
    cache.truncate_to(40)

    assert cache.starts == ((1, 0),)
    assert cache.latest == 1


def test_a_new_start_keeps_the_epoch_in_force_there() -> None:
    cache = cache_of((1, 0), (3, 40), (4, 70))
    cache.forget_before(50)

    assert cache.starts == ((3, 50), (4, 70))


@given(starts=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 99)), max_size=8).map(sorted))
def test_assigned_epochs_are_read_back(starts: list[tuple[int, int]]) -> None:
    files = MemoryFiles()
    cache = EpochCache(files, DIRECTORY)
    cache.log_end = lambda: 100
    for epoch, offset in starts:
        cache.assign(epoch, max(offset, *(start for _, start in starts[: epoch + 1])))
    cache.flush()

    again = EpochCache(files, DIRECTORY)

    assert again.starts == cache.starts
    assert again.latest == cache.latest
    assert not again.is_damaged


@pytest.mark.parametrize("rows", [b"0\n2\n0 0\n3 4", b"0\n2\n3 0\n3 4\n", b"0\n2\n0 5\n3 5\n"])
def test_a_file_that_cannot_be_whole_is_damaged(rows: bytes) -> None:
    files = MemoryFiles()
    files.replace(DIRECTORY / FILE_NAME, rows)

    assert EpochCache(files, DIRECTORY).is_damaged


def test_a_new_epoch_writes_no_file_before_its_first_batch_is_synced() -> None:
    files = MemoryFiles()
    store, log = open_log(files)
    append(log, "one")
    sync(log, store)
    path = log.directory / FILE_NAME
    before = files.read(path)

    log.begin_epoch(5)
    sync(log, store)
    empty = files.read(path)
    append(log, "two", leader_epoch=5)
    sync(log, store)

    assert empty == before
    assert files.read(path) == b"0\n2\n0 0\n5 1\n"


def epochs_in_batches(log: PartitionLog) -> tuple[tuple[int, int], ...]:
    starts: list[tuple[int, int]] = []
    for header in log.heads(0):
        if not starts or starts[-1][0] != header.leader_epoch:
            starts.append((header.leader_epoch, header.base_offset))
    return tuple(starts)


STEPS = st.lists(st.sampled_from(["append", "epoch", "sync", "copy", "truncate"]), max_size=25)


@given(steps=STEPS, seed=st.integers(0, 1 << 32))
def test_epochs_after_a_power_cut_are_those_of_the_batches(steps: list[str], seed: int) -> None:
    files, random = MemoryFiles(), Random(seed)
    store, log = open_log(files)
    epoch = 0
    for step in steps:
        if step == "append":
            append(log, "x", leader_epoch=max(epoch, log.epochs.latest))
        elif step == "epoch":
            epoch += random.randint(1, 3)
            log.begin_epoch(epoch)
        elif step == "copy":  # a batch of an older leader, which this one did not know
            copied = max([each for each, _ in epochs_in_batches(log)], default=0)
            made = batch("y", base_offset=log.end_offset, leader_epoch=copied)
            log.append_as_follower(memoryview(made))
        elif step == "sync":
            sync(log, store)
        else:
            log.truncate_to(max(log.end_offset - random.randint(0, 2), 0))
    for left in (files, files.after_power_cut(random)):
        _, again = open_log(left.after_kill())

        assert again.epochs.starts == epochs_in_batches(again)
