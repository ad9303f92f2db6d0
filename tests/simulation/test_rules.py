"""Rules of a replicated log that are taken out of whole brokers: clients or files show it."""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import pytest

from headwater.core_log.broker import metadata_quorum
from headwater.core_log.broker.broker import Broker
from headwater.core_log.broker.replica_fetcher import LeaderFetcher
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.replication.follower import Follower, FollowerFetch
from headwater.core_log.replication.leader import Leader
from headwater.core_log.replication.metadata_records import PartitionRecord
from tests.core_log.rule_switches import (
    admit_earlier_lives,
    answer_without_proof,
    believe_earlier_lives,
    commit_below_the_minimum,
    commit_what_the_own_disk_has,
    compact_at_once,
    compact_what_is_stored,
    elect_anybody,
    keep_new_disks_eligible,
    keep_what_diverges,
)
from tests.simulation.machine import Machine
from tests.simulation.world import CLUSTER_FAULTS, NEWEST, ORDERS, Accidents, World, play

pytestmark = [pytest.mark.simulation, pytest.mark.slow]
SEEDS, WORK_S, NEXT_S_MAX = range(1, 7), 2.0, 30.0


@pytest.fixture(autouse=True)
def nothing_is_logged() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def controller_of(world: World) -> Machine:
    return next(each for each in world.machines if each.broker and each.broker.is_controller)


def broker_of(machine: Machine) -> Broker:
    assert machine.broker is not None, "the machine is up"
    return machine.broker


def leader_of(world: World, at: TopicPartition = ORDERS[0]) -> Machine:
    """Of a partition that clients write to all the time."""
    brokers = [each.broker for each in world.machines if each.broker is not None]
    record = brokers[0].image.partition(*at)
    assert record is not None
    return world.machines[record.leader - 1]


def led_by_member(world: World) -> tuple[TopicPartition, Machine]:
    """Returns a partition whose leader does not lead the quorum."""
    controller = controller_of(world)
    led = ((at, leader_of(world, at)) for at in ORDERS)
    return next((at, leader) for at, leader in led if leader is not controller)


async def until(is_so: Callable[[], bool], *, look_s: float = 0.05) -> None:
    """Fails in virtual time, since a history has no end by itself."""
    end_s = asyncio.get_running_loop().time() + NEXT_S_MAX
    while not is_so():
        assert asyncio.get_running_loop().time() < end_s, "the next accident comes in time"
        await asyncio.sleep(look_s)


def record_of(world: World, at: TopicPartition) -> PartitionRecord:
    """A partition, as the broker knows it that decides about it."""
    record = broker_of(controller_of(world)).image.partition(*at)
    assert record is not None
    return record


async def until_in_sync(world: World, at: TopicPartition, count: int) -> None:
    await until(lambda: len(record_of(world, at).in_sync) == count)


def proposed_by(machine: Machine) -> Collection[int]:
    partition = broker_of(machine).find_led(*ORDERS[0])
    leader = None if partition is None else partition.leader
    pending = leader.pending if isinstance(leader, Leader) else None
    return () if pending is None else pending.in_sync


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


FIVE = {"nodes": 5}
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


async def place_beside_the_quorum(world: World, at: TopicPartition) -> Sequence[Machine]:
    """Moves the partition to three of five brokers, without which the quorum goes on."""
    await asyncio.sleep(WORK_S)
    await until(lambda: world.is_whole)
    controller = controller_of(world)
    voters = [each.node_id for each in broker_of(controller).quorum.voters]
    others = [node for node in range(1, 6) if node not in voters]
    chosen = (*others, next(each for each in voters if world.machines[each - 1] is not controller))
    await world.move(at, chosen)
    await until(lambda: record_of(world, at).in_sync == record_of(world, at).replicas == chosen)
    await until(lambda: world.is_whole)
    return [world.machines[node - 1] for node in chosen]


async def replicas_go_one_after_the_other(world: World) -> None:
    """Each after the election that the one before has brought about; the first one, which lacks
    what was written since, comes back first."""
    chosen = await place_beside_the_quorum(world, ORDERS[0])
    for left, each in zip((2, 1, 0), chosen, strict=True):
        await asyncio.sleep(0.5)
        each.kill()
        await until_in_sync(world, ORDERS[0], left)
    for each in chosen:
        each.boot()
        await each.started()
        await asyncio.sleep(WORK_S)


def replace_disk(world: World, machine: Machine) -> None:
    others = [each.address for each in world.machines if each is not machine]
    machine.lose_disk(join=others)
    machine.boot()


async def until_back(world: World, machine: Machine, *, as_seen_by: Machine) -> None:
    """Until it is alive with the disk that it has now."""
    node, image = world.node_of(machine), broker_of(as_seen_by).image
    await until(
        lambda: image.is_alive(node) and image.brokers[node].directory_id == machine.directory_id
    )


async def fetch_outlives_a_disk(world: World) -> None:
    """Meanwhile another follower is not heard, so that nothing behind that fetch is committed."""
    chosen = await place_beside_the_quorum(world, ORDERS[0])
    leader = leader_of(world)
    follower, other = (each for each in chosen if each is not leader)
    silent = {(other.name, leader.name)}
    there, back = {(follower.name, leader.name)}, {(leader.name, follower.name)}
    world.network.cut_off(silent)
    await asyncio.sleep(0.5)
    world.network.cut_off(there)
    await asyncio.sleep(2.5)  # the fetch before is answered by then
    world.network.cut_off(back)
    replace_disk(world, follower)
    await until_back(world, follower, as_seen_by=leader)
    world.network.restore(there)
    await asyncio.sleep(1.5)
    world.network.restore(silent | back)


async def proposal_outlives_a_disk(world: World) -> None:
    """A follower loses its disk when its leader has proposed it for the in-sync set."""
    chosen = await place_beside_the_quorum(world, ORDERS[0])
    controller, leader = controller_of(world), leader_of(world)
    follower = next(each for each in chosen if each is not leader)
    node, image = world.node_of(follower), broker_of(leader).image
    follower.kill()
    await until(lambda: not image.is_alive(node))
    await asyncio.sleep(0.5)
    follower.boot()
    await until(lambda: image.is_alive(node), look_s=0.001)
    late = {(leader.name, controller.name)}
    world.network.cut_off(late)
    await until(lambda: node in proposed_by(leader))
    follower.kill()
    ways = separate(world, follower, of=[leader])
    replace_disk(world, follower)
    await until_back(world, follower, as_seen_by=controller)
    world.network.restore(late)
    await asyncio.sleep(1.5)
    world.network.restore(ways)


async def eligible_replica_loses_its_disk(world: World) -> None:
    """Nothing is written meanwhile, and the leader dies before the new disk has got anything."""
    chosen = await place_beside_the_quorum(world, ORDERS[0])
    controller, leader = controller_of(world), leader_of(world)
    follower, other = (each for each in chosen if each is not leader)
    writing = {(each.name, leader.name) for each in world.clients}
    world.network.cut_off(writing)
    await asyncio.sleep(0.5)
    for left, each in ((2, other), (1, follower)):
        each.kill()
        await until_in_sync(world, ORDERS[0], left)
    ways = separate(world, follower, of=[leader])
    replace_disk(world, follower)
    await until_back(world, follower, as_seen_by=controller)
    leader.kill()
    await asyncio.sleep(WORK_S)
    world.network.restore(ways | writing)
    for machine in (other, leader):
        machine.boot()
        await machine.started()
        await asyncio.sleep(WORK_S)


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
    ("take_out", "accidents", "settings"),
    [
        pytest.param(commit_what_the_own_disk_has, leader_dies_without_peers, {}, id="R1"),
        pytest.param(commit_below_the_minimum, follower_of_two_replicas_dies, {}, id="R2"),
        pytest.param(keep_what_diverges, leader_comes_back_after_it_was_cut_off, {}, id="R4"),
        pytest.param(
            compact_at_once, follower_hears_nothing_of_compaction, SELDOM, id="R9 announcement"
        ),
        pytest.param(elect_anybody, replicas_go_one_after_the_other, FIVE, id="R5"),
        pytest.param(keep_new_disks_eligible, eligible_replica_loses_its_disk, FIVE, id="R6"),
        pytest.param(believe_earlier_lives, fetch_outlives_a_disk, FIVE, id="R7 fetches"),
        pytest.param(admit_earlier_lives, proposal_outlives_a_disk, FIVE, id="R7 proposals"),
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
        given = {"nodes": 3, **settings}
        return not play(seed, virtual_s=0, faults=(), accidents=accidents, **given).problems

    with monkeypatch.context() as patch:
        take_out(patch)
        unsound = next((seed for seed in SEEDS if not is_sound(seed)), None)

    assert unsound is not None
    assert is_sound(unsound)
