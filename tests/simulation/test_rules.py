"""Rules of a replicated log that are taken out of three whole brokers: clients or files show it."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headwater.core_log.broker import metadata_quorum
from headwater.core_log.broker import partition as partition_module
from headwater.core_log.broker.replica_fetcher import LeaderFetcher
from headwater.core_log.replication.follower import Follower, FollowerFetch
from headwater.core_log.replication.leader import Leader
from tests.simulation.machine import Machine
from tests.simulation.world import CLUSTER_FAULTS, ORDERS, Accidents, World, play

pytestmark = [pytest.mark.simulation, pytest.mark.slow]
SEEDS, WORK_S = range(1, 7), 2.0


@pytest.fixture(autouse=True)
def nothing_is_logged() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def leader_of(world: World) -> Machine:
    """Of a partition that clients write to all the time."""
    brokers = [each.broker for each in world.machines if each.broker is not None]
    record = brokers[0].image.partition(*ORDERS[0])
    assert record is not None
    return world.machines[record.leader - 1]


def separate(world: World, machine: Machine) -> set[tuple[str, str]]:
    """Its clients still reach it; its peers do not."""
    peers = [each.name for each in world.machines if each is not machine]
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
    ("take_out", "accidents"),
    [
        pytest.param(commit_what_the_own_disk_has, leader_dies_without_peers, id="R1"),
        pytest.param(keep_what_diverges, leader_comes_back_after_it_was_cut_off, id="R4"),
    ],
)
def test_a_history_is_sound_with_its_rule_and_unsound_without_it(
    take_out: Callable[[pytest.MonkeyPatch], None],
    accidents: Accidents,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a seed brings about changes with the code, and so several are tried."""

    def is_sound(seed: int) -> bool:
        return not play(seed, virtual_s=0, faults=(), nodes=3, accidents=accidents).problems

    with monkeypatch.context() as patch:
        take_out(patch)
        unsound = next((seed for seed in SEEDS if not is_sound(seed)), None)

    assert unsound is not None
    assert is_sound(unsound)
