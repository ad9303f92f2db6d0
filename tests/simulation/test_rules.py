"""Rules of a replicated log that are taken out of three whole brokers: a history finds each."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headwater.core_log.broker import partition as partition_module
from headwater.core_log.replication.leader import Leader
from tests.simulation.machine import Machine
from tests.simulation.world import ORDERS, Accidents, World, play

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


@pytest.mark.parametrize(
    ("take_out", "accidents"),
    [
        pytest.param(commit_what_the_own_disk_has, leader_dies_without_peers, id="R1"),
        pytest.param(
            keep_what_diverges,
            leader_comes_back_after_it_was_cut_off,
            id="R4",
            marks=pytest.mark.long("sim"),
        ),
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
