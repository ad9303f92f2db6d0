"""A table is read again twice within an hour; a third time waits for a person."""

from headwater.connectors.snapshot.reread_limits import (
    AT_ONCE_MS,
    HOUR_MS,
    add_start,
    is_one_too_many,
)

NOON_MS = 43_200_000
APART_MS = 10 * AT_ONCE_MS


def test_the_third_start_within_an_hour_is_one_too_many() -> None:
    once = add_start((), NOON_MS)
    twice = add_start(once, NOON_MS + APART_MS)

    assert not is_one_too_many((), NOON_MS)
    assert not is_one_too_many(once, NOON_MS + APART_MS)
    assert is_one_too_many(twice, NOON_MS + 2 * APART_MS)
    assert is_one_too_many(twice, NOON_MS + HOUR_MS - 1)
    assert not is_one_too_many(twice, NOON_MS + HOUR_MS)


def test_a_start_directly_after_another_counts_with_it() -> None:
    once = add_start((), NOON_MS)
    twice = add_start(once, NOON_MS + APART_MS)
    again_ms = NOON_MS + APART_MS + AT_ONCE_MS - 1

    assert add_start(once, NOON_MS + AT_ONCE_MS - 1) == once
    assert add_start(twice, again_ms) == twice
    assert not is_one_too_many(twice, again_ms)
    assert is_one_too_many(twice, again_ms + 1)


def test_only_the_latest_starts_are_kept() -> None:
    starts: tuple[int, ...] = ()
    for number in range(5):
        starts = add_start(starts, NOON_MS + number * APART_MS)

    assert starts == (NOON_MS + 3 * APART_MS, NOON_MS + 4 * APART_MS)
