"""Another live broker votes in the place of one that is away too long, on virtual time."""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Iterator
from random import Random
from typing import Any

import pytest

from headwater.core_log.broker.broker import Broker
from headwater.core_log.replication.decisions import NO_ID
from headwater.core_log.replication.liveness import SESSION_MS
from headwater.core_log.replication.voters import VOTERS
from tests.simulation.machine import PORT, Machine
from tests.simulation.network import Network
from tests.simulation.virtual_time import LoopClock, simulate

pytestmark = [pytest.mark.simulation, pytest.mark.slow]
LIMIT_S, FINISHED_S, LOOK_S = 8.0, 4.0, 0.05
"""What a controller has begun is finished well before it could have begun by itself."""
NEVER_S = 60.0
SESSION_S = SESSION_MS / 1_000


@pytest.fixture(autouse=True)
def nothing_is_logged() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


class Brokers:
    """Machines by node id, without clients. The first three vote."""

    def __init__(self, count: int, limit: object) -> None:
        loop, random = asyncio.get_running_loop(), Random(count)
        self.network = Network(random)
        addresses = [(f"node-{each}", PORT) for each in range(1, count + 1)]
        self.machines = {
            node_id: Machine(
                self.network,
                LoopClock(loop),
                random,
                settings={"internal_partitions": 2, "replace_voters_after_ms": limit},
                node_id=node_id,
                join=addresses if node_id > 1 else (),
            )
            for node_id in range(1, count + 1)
        }

    async def start(self) -> None:
        for node_id, machine in self.machines.items():
            machine.boot()
            await machine.started()
            await self.until(lambda: self.controller is not None)
            if node_id == VOTERS:
                await self.until(lambda: self.votes == {1, 2, 3})
        await self.until(lambda: self.are_alive(self.machines))

    @property
    def up(self) -> list[Broker]:
        return [each.broker for each in self.machines.values() if each.broker is not None]

    @property
    def controller(self) -> Broker | None:
        return next((each for each in self.up if each.is_controller), None)

    @property
    def votes(self) -> set[int]:
        """The newest voters that anybody has a record of, committed or not."""
        histories = [each.quorum.quorum.voters for each in self.up]
        newest = max(histories, key=lambda each: each.latest_offset)
        return {each.node_id for each in newest.latest}

    def are_alive(self, nodes: Collection[int]) -> bool:
        controller = self.controller
        return controller is not None and all(map(controller.image.is_alive, nodes))

    def are_up_to_date(self, nodes: Collection[int]) -> bool:
        """Whether they are alive with what they have on their disks now, and have everything."""
        controller = self.controller
        if controller is None or not self.are_alive(nodes):
            return False
        brokers, driver = controller.image.brokers, controller.quorum
        directories = {each: self.machines[each].directory_id for each in nodes}
        reached = {each.node_id: at for each, at in driver.quorum.progress.items()}
        reached[controller.node_id] = driver.high_watermark
        return all(
            brokers[each].directory_id in (NO_ID, directories[each])  # a founder's is not told
            and reached.get(each, 0) >= driver.high_watermark
            for each in nodes
        )

    async def until(self, is_so: Callable[[], bool], *, look_s: float = LOOK_S) -> float:
        """Returns how long it has taken; fails if it takes for ever."""
        began_s = now_s()
        while not is_so():
            assert now_s() - began_s < NEVER_S, "it comes to that"
            await asyncio.sleep(look_s)
        return now_s() - began_s

    async def until_votes(self, *nodes: int, look_s: float = LOOK_S) -> float:
        return await self.until(lambda: self.votes == {*nodes}, look_s=look_s)

    async def follower(self) -> int:
        """A voter that does not lead the quorum."""
        await self.until(lambda: self.controller is not None)
        assert self.controller is not None
        return next(each for each in (3, 2) if each != self.controller.node_id)

    async def replace_one(self) -> int:
        """Kills a voter, and returns it once the fourth node votes in its place, too: both do."""
        gone = await self.follower()
        self.machines[gone].kill()
        await self.until_votes(1, 2, 3, 4, look_s=0.001)
        return gone

    async def look_on(self, seconds: float) -> set[frozenset[int]]:
        """Returns the sets of voters that there were."""
        seen, end_s = set[frozenset[int]](), now_s() + seconds
        while now_s() < end_s:
            seen.add(frozenset(self.votes))
            await asyncio.sleep(LOOK_S)
        return seen


def now_s() -> float:
    return asyncio.get_running_loop().time()


def others(*nodes: int) -> set[int]:
    return {1, 2, 3, 4} - {*nodes}


Story = Callable[[Brokers], Coroutine[Any, Any, None]]


def play(story: Story, *, count: int = 4, limit: object = round(LIMIT_S * 1_000)) -> None:
    async def work() -> None:
        brokers = Brokers(count, limit)
        await brokers.start()
        await story(brokers)

    simulate(Random(1), work)


def test_the_fourth_broker_votes_in_the_place_of_a_voter_that_is_away() -> None:
    async def story(brokers: Brokers) -> None:
        gone = await brokers.follower()
        brokers.machines[gone].kill()
        taken_s = await brokers.until_votes(*others(gone))
        assert LIMIT_S <= taken_s < LIMIT_S + FINISHED_S

        next_gone = next(each for each in (3, 2, 1) if each != gone)
        brokers.machines[next_gone].kill()
        await brokers.until(lambda: brokers.are_alive(others(gone, next_gone)))

        brokers.machines[gone].boot()  # before its vote is of use again
        await brokers.until(lambda: brokers.are_up_to_date(others(next_gone)))
        await brokers.until_votes(*others(next_gone))

    play(story)


def test_a_controller_that_is_away_is_replaced_by_its_successor() -> None:
    async def story(brokers: Brokers) -> None:
        assert brokers.controller is not None
        gone = brokers.controller.node_id
        brokers.machines[gone].kill()

        taken_s = await brokers.until_votes(*others(gone))

        assert LIMIT_S <= taken_s < LIMIT_S + FINISHED_S

    play(story)


@pytest.mark.parametrize("is_disk_lost", [False, True], ids=["with its disk", "without"])
def test_a_replaced_voter_that_comes_back_only_follows(is_disk_lost: bool) -> None:
    async def story(brokers: Brokers) -> None:
        gone = await brokers.replace_one()
        await brokers.until_votes(*others(gone))
        machine = brokers.machines[gone]
        if is_disk_lost:
            machine.lose_disk(join=[each.address for each in brokers.machines.values()])
        machine.boot()
        await brokers.until(lambda: brokers.are_up_to_date(brokers.machines))

        assert await brokers.look_on(2 * LIMIT_S) == {frozenset(others(gone))}

    play(story)


@pytest.mark.parametrize(
    ("count", "limit"), [(4, "never"), (3, round(LIMIT_S * 1_000))], ids=["never", "nobody else"]
)
def test_a_voter_that_is_not_replaced_keeps_its_vote(count: int, limit: object) -> None:
    async def story(brokers: Brokers) -> None:
        gone = await brokers.follower()
        brokers.machines[gone].kill()

        assert await brokers.look_on(3 * LIMIT_S) == {frozenset({1, 2, 3})}

        brokers.machines[gone].boot()
        await brokers.until(lambda: brokers.are_up_to_date(brokers.machines))
        assert brokers.votes == {1, 2, 3}

    play(story, count=count, limit=limit)


def test_a_short_absence_takes_no_vote() -> None:
    async def story(brokers: Brokers) -> None:
        for _ in range(3):
            gone = await brokers.follower()
            brokers.machines[gone].kill()
            seen = await brokers.look_on(LIMIT_S - 1.0)
            brokers.machines[gone].boot()
            await brokers.until(lambda: brokers.are_up_to_date(brokers.machines))
            assert seen == {frozenset({1, 2, 3})}

    play(story)


def test_a_voter_that_follows_is_not_away_because_its_broker_is_fenced() -> None:
    """Its disk takes records of the metadata, and its heartbeats are lost."""

    async def story(brokers: Brokers) -> None:
        gone = await brokers.follower()
        assert brokers.controller is not None
        brokers.controller.active_controller.heartbeat = ignore(  # type: ignore[method-assign]
            brokers.controller.active_controller.heartbeat, gone
        )
        await brokers.until(lambda: not brokers.are_alive([gone]))

        assert await brokers.look_on(2 * LIMIT_S) == {frozenset({1, 2, 3})}

    play(story)


def ignore(handle: Any, node_id: int) -> Any:
    """Heartbeats of one broker get lost."""

    async def heartbeat(request: Any, peer: Any) -> Any:
        if request.broker_id == node_id:
            await asyncio.sleep(3_600)
        return await handle(request, peer)

    return heartbeat


def test_a_pause_of_everybody_is_nobodys_absence() -> None:
    async def story(brokers: Brokers) -> None:
        processes = [each.process for each in brokers.machines.values() if each.process]
        for each in processes:
            each.pause()
        await asyncio.sleep(10 * LIMIT_S)
        for each in processes:
            each.resume()

        assert await brokers.look_on(LIMIT_S) == {frozenset({1, 2, 3})}

    play(story)


def test_a_voter_that_comes_back_while_it_is_replaced_is_an_observer() -> None:
    async def story(brokers: Brokers) -> None:
        gone = await brokers.replace_one()
        brokers.machines[gone].boot()

        await brokers.until_votes(*others(gone))
        await brokers.until(lambda: brokers.are_up_to_date(brokers.machines))
        assert await brokers.look_on(LIMIT_S) == {frozenset(others(gone))}

    play(story)


@pytest.mark.parametrize("is_back", [False, True], ids=["itself", "another one"])
def test_the_next_controller_ends_what_the_first_began(is_back: bool) -> None:
    """Three of four voters are needed: the controller comes back, or the voter that it replaced."""

    async def story(brokers: Brokers) -> None:
        gone = await brokers.replace_one()
        assert brokers.controller is not None
        first = brokers.controller.node_id
        brokers.machines[first].kill()
        await asyncio.sleep(SESSION_S)
        brokers.machines[gone if is_back else first].boot()

        assert await brokers.until_votes(*others(gone)) < FINISHED_S

    play(story)


def test_a_voter_that_comes_back_as_its_successor_dies_keeps_its_vote() -> None:
    async def story(brokers: Brokers) -> None:
        gone = await brokers.replace_one()
        brokers.machines[4].kill()  # nobody can commit that it votes
        await asyncio.sleep(SESSION_S)
        brokers.machines[gone].boot()

        assert await brokers.until_votes(1, 2, 3) < FINISHED_S
        brokers.machines[4].boot()
        await brokers.until(lambda: brokers.are_up_to_date(brokers.machines))
        assert await brokers.look_on(LIMIT_S) == {frozenset({1, 2, 3})}

    play(story)


def test_five_voters_are_replaced_one_after_the_other() -> None:
    async def story(brokers: Brokers) -> None:
        for node_id in (4, 5):
            await give_vote(brokers, node_id)
        assert brokers.votes == {1, 2, 3, 4, 5}
        assert brokers.controller is not None
        gone = [each for each in (5, 4, 3) if each != brokers.controller.node_id][:2]
        for node_id in gone:
            brokers.machines[node_id].kill()

        sizes = {len(each) for each in await brokers.look_on(LIMIT_S + FINISHED_S)}

        assert brokers.votes == {1, 2, 3, 4, 5, 6, 7} - {*gone}
        assert sizes == {5, 6}

    play(story, count=7)


async def give_vote(brokers: Brokers, node_id: int) -> None:
    """As AddRaftVoter does."""
    await brokers.until(lambda: brokers.are_up_to_date([node_id]))
    assert brokers.controller is not None
    machine = brokers.machines[node_id]
    assert machine.broker is not None
    key, wanted = machine.broker.quorum.replica, {*brokers.votes, node_id}
    while brokers.votes != wanted:
        await brokers.controller.active_controller.change_voters(lambda each: each | {key})
        await asyncio.sleep(LOOK_S)
