"""Commits keep their distance on average, and a delay ends with the change that had it."""

import pytest

from headwater.pipelines.loops.ingest.commit_rate import AHEAD_MAX, CommitRate

WAIT_MS = 5


def begins(arrivals: list[int], spacing: CommitRate) -> list[int]:
    """When the commit of each change began that came at these moments, one at a time."""
    found, now_ms = list[int](), 0
    for arrival in arrivals:
        now_ms = max(now_ms, arrival)
        now_ms += max(spacing.left_ms(now_ms), 0)
        spacing.take_token(now_ms)
        found.append(now_ms)
    return found


def test_the_first_change_after_quiet_goes_at_once() -> None:
    spacing = CommitRate(WAIT_MS)

    assert begins([1_000, 9_000, 20_000], spacing) == [1_000, 9_000, 20_000]


@pytest.mark.parametrize("delay_ms", [4, 5, 9, 13])
def test_a_delay_is_not_handed_on_to_changes_that_come_as_fast_as_they_may_go(
    delay_ms: int,
) -> None:
    """Not by a millisecond either, although the clock counts only whole ones."""
    spacing = CommitRate(WAIT_MS)
    on_time = [1_000 + WAIT_MS * number for number in range(40)]
    late = [*on_time[:5], *(max(each, on_time[5] + delay_ms) for each in on_time[5:])]
    uneven = [each - (number > 10 and number % 3 == 0) for number, each in enumerate(late)]

    assert begins(uneven, spacing) == uneven


def test_changes_that_come_faster_than_they_may_go_are_spaced_out() -> None:
    spacing = CommitRate(WAIT_MS)

    found = begins(list(range(1_000, 1_100)), spacing)

    assert found[-1] - found[0] == WAIT_MS * (len(found) - 1 - AHEAD_MAX)


def test_a_long_delay_gives_no_right_to_a_flood() -> None:
    spacing = CommitRate(WAIT_MS)
    begins([1_000], spacing)

    found = begins([5_000] * 10, spacing)

    assert found[-1] - found[0] == WAIT_MS * (9 - AHEAD_MAX)


def test_commits_that_could_not_wait_hold_up_nobody_for_longer_than_one_wait() -> None:
    """Full ones go at once, as many as there are; the first small one after them is not due for
    the sum of what they did not wait."""
    spacing = CommitRate(WAIT_MS)

    for now_ms in range(1_000, 1_500):
        spacing.take_token(now_ms)

    assert spacing.left_ms(1_500) <= WAIT_MS
