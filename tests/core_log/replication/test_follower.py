"""A follower keeps exactly what its leader has too, as far as their epochs can tell."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis.strategies import integers, lists, tuples

from headwater.core_log.foundation.errors import OffsetOutOfRange
from headwater.core_log.replication.follower import (
    EpochEnd,
    Follower,
    find_divergence,
    needs_snapshot,
)
from headwater.core_log.replication.leader import Leader
from headwater.core_log.replication.metadata_records import Assignment
from headwater.core_log.storage.leader_epochs import EpochCache
from tests.fakes import MemoryFiles

EPOCHS = lists(integers(0, 5), max_size=12).map(sorted)


def epochs_of(log: list[int]) -> EpochCache:
    """Storage's own memory of a log whose records were written in these epochs."""
    cache = EpochCache(MemoryFiles(), Path("/log"))
    cache.log_end = lambda: len(log)
    for offset, epoch in enumerate(log):
        cache.assign(epoch, offset)
    return cache


@pytest.mark.parametrize(
    ("last_fetched_epoch", "fetch_offset", "diverging"),
    [
        (-1, 0, None),
        (2, 4, None),
        (2, 5, None),
        (2, 6, EpochEnd(2, 5)),
        (3, 4, EpochEnd(2, 5)),
        (3, 6, EpochEnd(2, 5)),
        (4, 7, None),
        (4, 9, EpochEnd(4, 8)),
        (0, 2, None),
        (0, 3, EpochEnd(0, 2)),
    ],
)
def test_a_log_is_a_prefix_or_parts_where_an_epoch_ended(
    last_fetched_epoch: int, fetch_offset: int, diverging: EpochEnd | None
) -> None:
    """The leader wrote 0, 1 in epoch 0; 2 to 4 in epoch 2; 5 to 7 in epoch 4."""
    epochs = epochs_of([0, 0, 2, 2, 2, 4, 4, 4])

    found = find_divergence(
        epochs, last_fetched_epoch=last_fetched_epoch, fetch_offset=fetch_offset
    )

    assert found == diverging


@pytest.mark.parametrize(
    ("last_fetched_epoch", "fetch_offset", "is_needed"),
    [(-1, 0, True), (2, 4, True), (2, 5, True), (2, 6, True), (3, 5, False), (3, 6, False)],
)
def test_a_log_behind_a_snapshot_cannot_tell_where_older_epochs_ended(
    last_fetched_epoch: int, fetch_offset: int, is_needed: bool
) -> None:
    """The snapshot ends at 5, and its last record was written in epoch 3."""
    assert is_needed is needs_snapshot(
        EpochEnd(3, 5), last_fetched_epoch=last_fetched_epoch, fetch_offset=fetch_offset
    )


def test_a_log_that_begins_at_its_beginning_needs_no_snapshot() -> None:
    assert not needs_snapshot(EpochEnd(-1, 0), last_fetched_epoch=-1, fetch_offset=0)
    assert not needs_snapshot(EpochEnd(-1, 0), last_fetched_epoch=0, fetch_offset=3)


def test_an_epoch_the_leader_never_heard_of_is_out_of_range() -> None:
    with pytest.raises(OffsetOutOfRange):
        find_divergence(epochs_of([0, 1]), last_fetched_epoch=2, fetch_offset=1)


@pytest.mark.property
@given(shared=EPOCHS, ends=tuples(EPOCHS, EPOCHS))
def test_rounds_of_divergence_end_at_what_both_have(
    shared: list[int], ends: tuple[list[int], list[int]]
) -> None:
    """Both logs begin alike; what follows was written by different leaders, never in one epoch."""
    base = max(shared, default=-1) + 1
    theirs = shared + [base + 2 * epoch for epoch in ends[0]]
    mine = shared + [base + 2 * epoch + 1 for epoch in ends[1]]
    newest = max([*theirs, *mine], default=0) + 1
    leading = epochs_of(theirs)
    leading.assign(newest, len(theirs))
    follower = Follower(
        broker_id=2,
        leader_id=1,
        leader_epoch=newest,
        end_offset=len(mine),
        durable_offset=len(mine),
        last_epoch=mine[-1] if mine else -1,
    )

    rounds = 0
    while True:
        asked = follower.next_fetch()
        assert asked is not None
        diverging = find_divergence(
            leading, last_fetched_epoch=asked.last_fetched_epoch, fetch_offset=asked.offset
        )
        if diverging is None:
            break
        offset = follower.on_diverging(diverging, epochs_of(mine))
        assert offset < len(mine), "every round makes progress"
        mine = mine[:offset]
        follower.on_truncated(offset, mine[-1] if mine else -1)
        rounds += 1

    assert mine == shared
    assert rounds <= len(ends[1])


def test_the_low_watermark_is_the_least_start_of_those_in_sync() -> None:
    leader = Leader(
        broker_id=1,
        leader_epoch=0,
        assignment=Assignment((1, 2, 3)),
        in_sync=frozenset({1, 2}),
        end_offset=9,
    )
    leader.on_follower_fetch(2, 9, 0, start_offset=3)
    leader.on_follower_fetch(3, 0, 0, start_offset=1)

    assert leader.low_watermark(5) == 3
    assert leader.low_watermark(2) == 2


def test_a_proposed_follower_counts_for_the_low_watermark() -> None:
    """The controller may have written the proposal, and elect the follower: what it lacks must not
    be said to be deleted."""
    leader = Leader(
        broker_id=1, leader_epoch=0, assignment=Assignment((1, 2)), in_sync=frozenset({1})
    )
    leader.on_follower_fetch(2, 0, 0, start_offset=0)

    before = (leader.low_watermark(3), leader.has_deleted(3))
    leader.on_follower_fetch(2, 0, 0, start_offset=3)

    assert before == (0, False)
    assert (leader.low_watermark(3), leader.has_deleted(3)) == (3, True)


def test_nothing_is_said_to_be_deleted_or_agreed_while_too_few_are_in_sync() -> None:
    """One that dropped out meanwhile may lead, and perhaps has less."""
    leader = Leader(
        broker_id=1,
        leader_epoch=0,
        assignment=Assignment((1, 2)),
        in_sync=frozenset({1}),
        min_in_sync=2,
    )

    before = (leader.has_deleted(3), leader.agreed_to(3))
    leader.on_min_in_sync(1)

    assert before == (False, 0)
    assert (leader.has_deleted(3), leader.agreed_to(3)) == (True, 3)


def test_a_follower_joins_once_it_begins_where_its_leader_begins() -> None:
    """It may be elected at once, and would serve records that were said to be deleted."""
    leader = Leader(
        broker_id=1, leader_epoch=0, assignment=Assignment((1, 2)), in_sync=frozenset({1})
    )

    refused = leader.on_follower_fetch(2, 0, 0, start_offset=2, start_least=3)
    taken = leader.on_follower_fetch(2, 0, 0, start_offset=3, start_least=3)

    assert refused is None
    assert taken is not None and taken.in_sync == {1, 2}


def test_a_proposal_says_under_which_registration_each_follower_fetched() -> None:
    leader = Leader(
        broker_id=1, leader_epoch=0, assignment=Assignment((1, 2)), in_sync=frozenset({1})
    )

    proposal = leader.on_follower_fetch(2, 0, 0, broker_epoch=7)

    assert proposal is not None and proposal.broker_epochs == {2: 7}


def test_a_follower_joins_once_it_has_stored_the_marks_of_compaction() -> None:
    """It may be elected at once, and would tell lower marks than were told before."""
    leader = Leader(
        broker_id=1, leader_epoch=0, assignment=Assignment((1, 2)), in_sync=frozenset({1})
    )

    refused = leader.on_follower_fetch(2, 0, 0, marks=(3, 2), marks_least=(3, 3))
    taken = leader.on_follower_fetch(2, 0, 0, marks=(3, 3), marks_least=(3, 3))

    assert refused is None
    assert taken is not None and taken.in_sync == {1, 2}


def test_compaction_waits_for_a_follower_whose_joining_is_proposed() -> None:
    """The controller may have written the proposal, and elect the follower."""
    leader = Leader(
        broker_id=1, leader_epoch=0, assignment=Assignment((1, 2)), in_sync=frozenset({1})
    )
    leader.on_follower_fetch(2, 0, 0)

    before = leader.has_announced((3, 0))
    leader.on_follower_fetch(2, 0, 0, marks=(3, 0))

    assert (before, leader.has_announced((3, 0))) == (False, True)
