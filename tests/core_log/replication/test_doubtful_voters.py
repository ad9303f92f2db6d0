"""A voter whose log may have lost records elects nobody who lacks them."""

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import integers

from headwater.core_log.foundation.errors import CorruptLog
from headwater.core_log.replication.voters import Count, is_majority
from tests.core_log.replication import quorum_world
from tests.core_log.replication.quorum_world import Node, World, play

pytestmark = pytest.mark.simulation
TRIES_MAX = 50
LOST_MAX = 12


def lose_end(world: World, _: Node) -> None:
    """The disk of a voter has lost what it had; never where nobody else has that."""
    node = world.random.choice(list(world.nodes.values())[:3])
    others = [each for each in world.nodes.values() if each is not node]
    whole = {each.key for each in others if world.holds_committed(each)}
    if node.log.end_offset > 1 and whole & node.voters_on_disk().latest:
        world.cut_power(node)
        end_offset = node.log.end_offset - world.random.randint(1, LOST_MAX)
        node.log.truncate_to(max(end_offset, 1))  # who votes is known
        node.is_doubtful = True
        world.restart(node)


def doubt(world: World, node: Node) -> None:
    """Nothing is lost, which nobody can know."""
    world.cut_power(node)
    node.is_doubtful = True


def doubt_all(world: World, node: Node) -> None:
    if world.random.random() < 0.1:
        for each in world.nodes.values():
            doubt(world, each)


STEPS = (
    *(
        each
        for each in quorum_world.STEPS
        if each not in {World.change_voters, World.wipe, World.take_snapshot}
    ),
    lose_end,
    doubt,
    doubt_all,
)


@pytest.fixture(autouse=True)
def steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three voters, of which one after the other loses records."""
    monkeypatch.setattr(quorum_world, "STEPS", STEPS)


@pytest.mark.property
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=integers(0, 1 << 32))
def test_no_voter_that_lost_records_breaks_a_promise_of_the_quorum(seed: int) -> None:
    play(seed, voters=(3,))


def is_found() -> bool:
    for seed in range(TRIES_MAX):
        try:
            play(seed, voters=(3,))
        except (AssertionError, CorruptLog):
            return True
    return False


def test_a_vote_that_counts_in_spite_of_a_doubt_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def has_won(self: Count) -> bool:
        return is_majority(self.granted, self.voters)

    monkeypatch.setattr(Count, "has_won", property(has_won))

    assert is_found()


def hold_back(world: World, node: Node, rounds: int) -> None:
    """Rounds in which nothing reaches that node."""
    for _ in range(rounds):
        world.bag = [each for each in world.bag if each.receiver != node.node_id]
        world.round(50)


def test_a_doubt_lasts_until_the_leader_has_no_more() -> None:
    """Of two voters one has lost what it had promised, and the other one never had it."""
    world = World(Random(1), voters=3)
    for _ in range(60):
        world.round(50)
    leader = next(each for each in world.nodes.values() if world.leads(each))
    lossy, lagging = [e for e in list(world.nodes.values())[:3] if e is not leader]
    hold_back(world, lagging, 1)
    before = len(world.committed)
    for _ in range(20):
        world.write(leader)
        hold_back(world, lagging, 1)
    hold_back(world, lagging, 20)
    assert len(world.committed) > before + 10

    doubt(world, lossy)
    lossy.log.truncate_to(before)
    world.boot(lossy)
    while lossy.log.end_offset < before + 4:
        hold_back(world, lagging, 1)
    world.cut_power(leader)
    for _ in range(100):
        world.round(50)

    assert lossy.is_doubtful
    assert not any(world.leads(each) for each in (lossy, lagging))
    world.boot(leader)
    for _ in range(100):
        world.round(50)
    assert any(world.leads(each) for each in world.nodes.values())
    assert not lossy.is_doubtful


def test_doubtful_voters_alone_elect_the_one_that_has_most() -> None:
    world = World(Random(1), voters=3)
    for _ in range(60):
        world.round(50)
    leader = next(each for each in world.nodes.values() if world.leads(each))
    world.write(leader)
    for _ in range(10):
        world.round(50)
    for node in list(world.nodes.values())[:3]:
        doubt(world, node)
        if node is not leader:
            node.log.truncate_to(node.log.end_offset - 1)
        world.boot(node)

    for _ in range(100):
        world.round(50)

    again = [each.node_id for each in world.nodes.values() if world.leads(each)]
    assert again == [leader.node_id]
    assert not any(each.is_doubtful for each in list(world.nodes.values())[:3])
