"""Rules of a replicated log that are taken out of three whole brokers: clients or files show it."""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import pytest

from headwater.core_log.broker import metadata_quorum
from headwater.core_log.broker import partition as partition_module
from headwater.core_log.broker.partition import Partition
from headwater.core_log.broker.replica_fetcher import LeaderFetcher
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.replication.follower import Follower, FollowerFetch
from headwater.core_log.replication.leader import Leader
from tests.simulation.machine import Machine
from tests.simulation.world import CLUSTER_FAULTS, NEWEST, ORDERS, Accidents, World, play

pytestmark = [pytest.mark.simulation, pytest.mark.slow]
SEEDS, WORK_S = range(1, 7), 2.0


@pytest.fixture(autouse=True)
def nothing_is_logged() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def leader_of(world: World, at: TopicPartition = ORDERS[0]) -> Machine:
    """Of a partition that clients write to all the time."""
    brokers = [each.broker for each in world.machines if each.broker is not None]
    record = brokers[0].image.partition(*at)
    assert record is not None
    return world.machines[record.leader - 1]


def separate(
    world: World, machine: Machine, *, of: Collection[Machine] = ()
) -> set[tuple[str, str]]:
    """Its clients still reach it; its peers do not, or one of them."""
    peers = [each.name for each in of or world.machines if each is not machine]
    ways = {(machine.name, each) for each in peers} | {(each, machine.name) for each in peers}
    world.network.cut_off(ways)
    return ways


async def leader_dies_without_peers(world: World) -> None:
    """It is killed before anybody has noticed that it is cut off."""
    await asyncio.sleep(WORK_S)
    leader = leader_of(world)
    ways = separate(world, leader)
    await asyncio.sleep(1.5)
    leader.kill()
    world.network.restore(ways)
    await asyncio.sleep(4.0)
    leader.boot()


async def leader_comes_back_after_it_was_cut_off(world: World) -> None:
    """Another one led meanwhile, and wrote other records at the same offsets."""
    await asyncio.sleep(WORK_S)
    leader = leader_of(world)
    ways = separate(world, leader)
    await asyncio.sleep(6.0)
    world.network.restore(ways)


async def old_leader_is_asked_after_another_one(world: World) -> None:
    """By a client that has not heard of its successor, while another one has."""
    await asyncio.sleep(WORK_S)
    leader = leader_of(world)
    others = [each for each in world.machines if each is not leader]
    unaware = world.open_reader("unaware", knowing=world.machines)
    await unaware.ask_marks()
    ways = separate(world, leader)
    await asyncio.sleep(5.0)
    aware = world.open_reader("aware", knowing=others)
    await aware.ask_marks()
    asking = asyncio.ensure_future(unaware.ask_marks())
    await asyncio.wait([asking], timeout=WORK_S)
    world.network.restore(ways)
    await asking
    for each in (unaware, aware):
        await each.log.close()


async def follower_of_two_replicas_dies(world: World) -> None:
    """The quorum goes on, since the third node has nothing of that partition."""
    await asyncio.sleep(WORK_S)
    leader = leader_of(world)
    numbered = {each: node for node, each in enumerate(world.machines, 1)}
    follower = next(each for each in world.machines if each is not leader)
    await world.move(ORDERS[0], (numbered[leader], numbered[follower]))
    await asyncio.sleep(WORK_S)
    follower.kill()
    await asyncio.sleep(5.0)
    follower.boot()


SELDOM = {"housekeeping_interval_ms": 3_000}
"""So that much is to be compacted each time."""


async def follower_hears_nothing_of_compaction(world: World) -> None:
    """For so short a time that it stays in sync."""
    for _ in range(4):
        await asyncio.sleep(WORK_S)
        leader = leader_of(world, NEWEST[0])
        follower = next(each for each in world.machines if each is not leader)
        ways = separate(world, leader, of=[follower])
        await asyncio.sleep(2.5)
        world.network.restore(ways)


def commit_what_the_own_disk_has(patch: pytest.MonkeyPatch) -> None:
    def advance(self: Leader) -> None:
        if self.has_enough_in_sync:
            self.high_watermark = max(self.high_watermark, self.durable_offset)

    patch.setattr(Leader, "_advance", advance)


def keep_what_diverges(patch: pytest.MonkeyPatch) -> None:
    def find_none(*given: Any, **named: Any) -> None:
        return None

    patch.setattr(partition_module, "find_divergence", find_none)


def keep_no_vote(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(metadata_quorum, "write_quorum_state", lambda *given: None)


def fetch_ahead_of_the_disk(patch: pytest.MonkeyPatch) -> None:
    async def wait_for_nothing(*given: object) -> None:
        """Asks for more at once."""

    def next_fetch(self: Follower) -> FollowerFetch:
        return FollowerFetch(self.end_offset, self.last_epoch, self.leader_epoch)

    patch.setattr(LeaderFetcher, "_wait_synced", wait_for_nothing)
    patch.setattr(Follower, "next_fetch", next_fetch)


def compact_at_once(patch: pytest.MonkeyPatch) -> None:
    async def announce(self: Partition, *, wait_s_max: float) -> bool:
        return True

    patch.setattr(Partition, "announce_marks", announce)


def compact_what_is_stored(patch: pytest.MonkeyPatch) -> None:
    """A follower does not wait until all in sync have stored the marks."""
    patch.setattr(Partition, "agreed_to", property(lambda self: self.log.cleaned_to))


def commit_below_the_minimum(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Leader, "has_enough_in_sync", property(lambda self: True))


def answer_without_proof(patch: pytest.MonkeyPatch) -> None:
    async def wait(self: Partition, question: int) -> None:
        self.check_led()

    patch.setattr(Partition, "wait_proved", wait)


@pytest.mark.parametrize(
    ("take_out", "problem"),
    [
        pytest.param(commit_what_the_own_disk_has, "not on every disk: ", id="R1"),
        pytest.param(fetch_ahead_of_the_disk, "not on every disk: ", id="R10 records"),
        pytest.param(keep_no_vote, "epoch not on disk: ", id="R10 votes"),
    ],
)
def test_files_show_that_a_rule_is_missing_before_anything_fails(
    take_out: Callable[[pytest.MonkeyPatch], None], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That this history is sound with its rules, `test_cluster_histories.py` holds."""
    take_out(monkeypatch)

    history = play(1, virtual_s=2.0, faults=(), nodes=3)

    assert any(each.startswith(problem) for each in history.problems), history.problems[:20]


@pytest.mark.long("sim")
def test_files_show_that_a_history_keeps_what_diverges(monkeypatch: pytest.MonkeyPatch) -> None:
    keep_what_diverges(monkeypatch)
    histories = (play(seed, virtual_s=5.0, faults=CLUSTER_FAULTS, nodes=3) for seed in SEEDS)

    assert any(
        each.startswith("two values: ") for history in histories for each in history.problems
    )


@pytest.mark.long("sim")
@pytest.mark.parametrize(
    ("take_out", "accidents", "settings"),
    [
        pytest.param(commit_what_the_own_disk_has, leader_dies_without_peers, {}, id="R1"),
        pytest.param(commit_below_the_minimum, follower_of_two_replicas_dies, {}, id="R2"),
        pytest.param(keep_what_diverges, leader_comes_back_after_it_was_cut_off, {}, id="R4"),
        pytest.param(
            compact_at_once, follower_hears_nothing_of_compaction, SELDOM, id="R9 announcement"
        ),
        pytest.param(answer_without_proof, old_leader_is_asked_after_another_one, {}, id="R8"),
        pytest.param(
            compact_what_is_stored, follower_hears_nothing_of_compaction, SELDOM, id="R9 agreement"
        ),
    ],
)
def test_a_history_is_sound_with_its_rule_and_unsound_without_it(
    take_out: Callable[[pytest.MonkeyPatch], None],
    accidents: Accidents,
    settings: Mapping[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a seed brings about changes with the code, and so several are tried."""

    def is_sound(seed: int) -> bool:
        found = play(seed, virtual_s=0, faults=(), nodes=3, accidents=accidents, **settings)
        return not found.problems

    with monkeypatch.context() as patch:
        take_out(patch)
        unsound = next((seed for seed in SEEDS if not is_sound(seed)), None)

    assert unsound is not None
    assert is_sound(unsound)
