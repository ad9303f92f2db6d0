"""Whatever is lost, late or resigned, an epoch of the quorum has one leader, what is
committed stays, and somebody leads in the end."""

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis.strategies import integers

from headwater.core_log.foundation.errors import CorruptLog
from headwater.core_log.replication.quorum import (
    Quorum,
    QuorumEffects,
    QuorumRefusal,
)
from headwater.core_log.replication.voters import Ballot, ElectionState, Voters
from tests.core_log.replication import quorum_world
from tests.core_log.replication.quorum_world import MemoryLog, Node, World, play

pytestmark = pytest.mark.simulation

TRIES_MAX = 50
"""Histories within which a missing rule must be found; the first few find it."""


@pytest.mark.property
@given(seed=integers(0, 1 << 32))
def test_no_history_breaks_a_promise_of_the_quorum(seed: int) -> None:
    play(seed)


@pytest.mark.parametrize("seed", [852, 1912, 100953])
def test_a_log_that_only_a_snapshot_can_mend_takes_it(seed: int) -> None:
    """The last record of a follower was never committed, and the leader's log begins behind it."""
    play(seed)


def test_the_same_seed_plays_the_same_history() -> None:
    first, second = play(7), play(7)

    assert first.committed == second.committed
    assert first.leaders == second.leaders
    assert len(first.committed) > 50


def is_found(*, fetches_early: bool = False) -> bool:
    for seed in range(TRIES_MAX):
        try:
            play(seed, fetches_early=fetches_early)
        except (AssertionError, CorruptLog):
            return True
    return False


def test_a_fetch_ahead_of_the_disk_is_found() -> None:
    assert is_found(fetches_early=True)


def test_two_changes_of_voters_at_once_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader commits alone what two of the former three voters do not know when they elect."""
    refused = Quorum._change_refused

    def allow(self: Quorum, voters: Voters, wanted: Voters, now_ms: int) -> QuorumRefusal | None:
        refusal = refused(self, voters, wanted, now_ms)
        return None if refusal is QuorumRefusal.CHANGE_UNCOMMITTED else refusal

    monkeypatch.setattr(Quorum, "_change_refused", allow)
    world = World(Random(0), voters=3)
    while not (leading := [each for each in world.nodes.values() if world.leads(each)]):
        world.round(50)
    for _ in range(10):
        world.round(50)
    leader = leading[0]
    for other in sorted(world.quorum(leader).voters.latest - {leader.key}):
        effects = world.quorum(leader).propose_voters(
            world.quorum(leader).voters.latest - {other}, world.now_ms
        )
        assert isinstance(effects, QuorumEffects)
        world.do(leader, effects)
    world.sync(leader)
    world.cut_power(leader)

    with pytest.raises(AssertionError, match="a new leader has all that is committed"):
        for _ in range(200):
            world.round(50)


def test_a_vote_for_a_shorter_log_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def vote(self: Quorum, asked: Ballot, now_ms: int) -> bool:
        return asked.is_pre_vote or self.voted in (None, asked.candidate)

    monkeypatch.setattr(Quorum, "_is_grantable", vote)

    assert is_found()


def test_a_wiped_disk_that_keeps_its_directory_id_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def wipe(self: World, node: Node) -> None:
        node.log, node.stored = MemoryLog(), ElectionState()
        node.quorum = None

    steps: tuple[Callable[[World, Node], None], ...] = (
        *quorum_world.STEPS,
        wipe,
    )
    monkeypatch.setattr(quorum_world, "STEPS", steps)

    assert is_found()
