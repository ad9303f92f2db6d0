"""A log knows which leader wrote what, and where each left off."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from headwater.core_log.storage.leader_epochs import EpochCache
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
    for epoch, offset in starts:
        cache.assign(epoch, max(offset, *(start for _, start in starts[: epoch + 1])))

    again = EpochCache(files, DIRECTORY)

    assert again.starts == cache.starts
    assert again.latest == cache.latest
    assert not again.is_damaged
