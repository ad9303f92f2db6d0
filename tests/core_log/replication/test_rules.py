"""Rules that are taken out of the replicas or of the quorum are found by their histories."""

from random import Random
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis.strategies import integers

from headwater.core_log.replication.elections import Losses
from headwater.core_log.replication.follower import Follower
from headwater.core_log.replication.metadata import NO_LEADER
from headwater.core_log.replication.voters import Ballot, ElectionState
from tests.core_log.replication import test_replica_histories
from tests.core_log.replication.quorum_world import Node, World
from tests.core_log.replication.test_replica_histories import STEPS, Cluster, is_found
from tests.core_log.replication.test_replica_histories import Node as Replica
from tests.core_log.rule_switches import (
    admit_earlier_lives,
    elect_anybody,
    keep_new_disks_eligible,
)

pytestmark = pytest.mark.simulation


def test_an_unclean_election_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    elect_anybody(monkeypatch)

    assert is_found()


def wipe(self: Cluster, node: Replica) -> None:
    """Its disk is replaced, where others have everything."""
    state = self.state
    complete = {state.leader, *state.in_sync, *state.eligible} - {NO_LEADER, node.broker_id}
    if complete and node.broker_id in state.replicas:
        self.crash(node)
        node.lost_disks.append(node.log[: node.durable])
        node.lose()
        incarnation = UUID(int=next(self.numbers))
        decision = self.controller.register_broker(
            node.broker_id, incarnation, host="h", port=1, losses=Losses(has_new_disk=True)
        )
        self.write(decision)
        node.broker_epoch, node.is_down = decision.answer, False
        self.learn(node)


WITH_WIPED_DISKS = (*STEPS, *[wipe] * 2, *[Cluster.propose] * 3)


@pytest.mark.property
@settings(max_examples=50)
@given(seed=integers(0, 1 << 32))
def test_committed_records_stay_although_disks_are_replaced(seed: int) -> None:
    test_replica_histories.play(seed, WITH_WIPED_DISKS)


def test_a_claim_of_an_earlier_life_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    admit_earlier_lives(monkeypatch)

    assert is_found(WITH_WIPED_DISKS)


def test_a_new_disk_that_stays_eligible_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    keep_new_disks_eligible(monkeypatch)

    assert is_found(WITH_WIPED_DISKS)


def test_a_log_that_keeps_what_diverges_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_none(*given: Any, **named: Any) -> None:
        return None

    monkeypatch.setattr(test_replica_histories, "find_divergence", find_none)

    assert is_found()


def test_a_follower_that_cuts_its_log_to_its_own_mark_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As Kafka's did before KIP-101."""

    def cut(self: Follower, leaders: object, own: object) -> int:
        return self.high_watermark

    monkeypatch.setattr(Follower, "on_diverging", cut)

    assert is_found()


def test_a_vote_that_is_not_kept_is_given_twice() -> None:
    """So that an epoch has two leaders: each of two candidates has a majority of three."""
    world = World(Random(1), voters=3)
    one, other, voter = list(world.nodes.values())[:3]

    def ask(candidate: Node) -> bool:
        ballot = Ballot(candidate.key, voter.key, 1, 0, 1, is_pre_vote=False)
        answer, effects = world.quorum(voter).on_vote(ballot, world.now_ms)
        world.do(voter, effects)
        return answer.is_granted

    first = ask(one)
    world.boot(voter)
    kept = ask(other)
    voter.stored = ElectionState(voter.stored.epoch)  # without the rule
    world.boot(voter)
    forgotten = ask(other)

    assert (first, kept, forgotten) == (True, False, True)
