"""Throttled replicas are copied at a rate, and nobody waits for one that is in sync."""

from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest

from headwater.core_log.broker import quotas
from headwater.core_log.broker.quotas import ReplicationQuota
from headwater.core_log.model.replica_placement import (
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
)
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.replication.decisions import ConfigChange, ConfigOperation
from tests.core_log.broker.replicated import TOPIC, Node, Replicated
from tests.core_log.broker.test_replica_fetcher import bytes_of, until

RECORDS, RECORD_BYTES = 200, 1_000
RATE = 20_000
"""Bytes per second of the clock, which only the tests move."""


class Side(NamedTuple):
    """One of the two that can be throttled: who sends, or who fetches."""

    node: int
    rate: str
    replicas: str


LEADER, FOLLOWER = Side(1, LEADER_RATE, LEADER_REPLICAS), Side(3, FOLLOWER_RATE, FOLLOWER_REPLICAS)
SIDES = pytest.mark.parametrize("side", [LEADER, FOLLOWER], ids=["leader", "follower"])


@pytest.fixture
def rooms(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What throttled replicas were told each time: how many bytes they may copy now."""
    told, room = list[int](), ReplicationQuota.room

    def note(quota: ReplicationQuota) -> int:
        told.append(room(quota))
        return told[-1]

    monkeypatch.setattr(ReplicationQuota, "room", note)
    return told


@pytest.fixture
async def cluster(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Replicated]:
    """Who is held back looks again soon, while the clock that counts stands still."""
    monkeypatch.setattr(quotas, "HELD_MS_MIN", 1)
    monkeypatch.setattr(quotas, "HELD_MS_MAX", 1)
    cluster = Replicated()
    yield cluster
    await cluster.close()


async def throttle(cluster: Replicated, side: Side, rate: int | None, replicas: str = "*") -> None:
    """Says it to all nodes; a rate of None removes it."""
    operation = ConfigOperation.DELETE if rate is None else ConfigOperation.SET
    value = None if rate is None else str(rate)
    of_broker = [ConfigChange(side.rate, operation, value)]
    assert cluster.commit(cluster.controller.broker_configs.alter(side.node, of_broker)) is None
    of_topic = [ConfigChange(side.replicas, ConfigOperation.SET, replicas)]
    assert cluster.commit(cluster.controller.alter_config(TOPIC, of_topic)) is None
    await cluster.tell(*cluster.nodes)


async def leave_behind(cluster: Replicated) -> tuple[Node, Node]:
    """Returns the leader, and the third node, which lacks all records and is not in sync."""
    await cluster.create()
    leader, _, third = cluster.nodes.values()
    third.links.cut(1)
    cluster.elect((1, 2))
    await cluster.tell(*cluster.nodes)
    for number in range(RECORDS):
        await leader.produce(f"{number:0{RECORD_BYTES}}", acks=1)
    await leader.produce("committed by both")
    return leader, third


def copied(node: Node) -> int:
    return len(bytes_of(node))


async def until_held(cluster: Replicated, rooms: list[int]) -> None:
    """Returns once the third node gets no more, or needs no more."""
    rooms.clear()
    await until(lambda: rooms[-3:] == [0, 0, 0] or 3 in cluster.state.in_sync)


@pytest.mark.slow
@SIDES
async def test_a_replica_is_copied_at_the_rate_until_it_is_in_sync(
    cluster: Replicated, rooms: list[int], side: Side
) -> None:
    leader, third = await leave_behind(cluster)
    batch_bytes = copied(leader) // RECORDS + 1
    await throttle(cluster, side, RATE, f"0:{side.node}")
    third.links.mend()
    steps = list[int]()

    while 3 not in cluster.state.in_sync:
        await until_held(cluster, rooms)
        steps.append(copied(third))
        assert steps[-1] <= max(1, len(steps) - 1) * RATE + batch_bytes, steps
        cluster.clock.advance(1_000)

    assert bytes_of(third) == bytes_of(leader)
    assert len(steps) >= copied(leader) // RATE


@pytest.mark.slow
@SIDES
async def test_a_writer_does_not_wait_for_a_throttled_replica(
    cluster: Replicated, rooms: list[int], side: Side
) -> None:
    """Those in sync are throttled, too, and their use counts."""
    leader, third = await leave_behind(cluster)
    for node in (1, 2, 3):
        await throttle(cluster, side._replace(node=node), RATE)
    third.links.mend()
    await until_held(cluster, rooms)
    behind = copied(third)

    for number in range(RECORDS):
        answer = await leader.produce(f"{number:0{RECORD_BYTES}}")
        assert answer.error_code == ErrorCode.NONE

    assert copied(cluster.nodes[2]) == copied(leader) > 2 * behind
    assert copied(third) == behind, "all of the rate is used, and the clock stands still"


@SIDES
async def test_a_replica_that_is_held_back_goes_on_without_a_rate(
    cluster: Replicated, rooms: list[int], side: Side
) -> None:
    leader, third = await leave_behind(cluster)
    await throttle(cluster, side, RATE)
    third.links.mend()
    await until_held(cluster, rooms)
    assert copied(third) < copied(leader)

    await throttle(cluster, side, None)

    await until(lambda: 3 in cluster.state.in_sync)
    assert bytes_of(third) == bytes_of(leader)


@SIDES
async def test_other_replicas_are_not_held_back(cluster: Replicated, side: Side) -> None:
    """The list names other partitions and brokers, and the rate is nothing at all."""
    leader, third = await leave_behind(cluster)
    await throttle(cluster, side, 0, f"1:{side.node},0:2")

    third.links.mend()

    await until(lambda: 3 in cluster.state.in_sync)
    assert bytes_of(third) == bytes_of(leader)


@pytest.mark.slow
@SIDES
async def test_a_rate_of_nothing_stops_the_copy(
    cluster: Replicated, rooms: list[int], side: Side
) -> None:
    leader, third = await leave_behind(cluster)
    await throttle(cluster, side, 0)
    third.links.mend()

    await until_held(cluster, rooms)
    cluster.clock.advance(60_000)
    await until_held(cluster, rooms)

    assert copied(third) == 0
    assert (await leader.produce("as before")).error_code == ErrorCode.NONE


@pytest.mark.slow
@SIDES
async def test_a_replica_that_its_leader_has_proposed_as_in_sync_is_not_held_back(
    cluster: Replicated, side: Side
) -> None:
    """What is committed waits for it from then on, also if the decision comes late."""
    leader, third = await leave_behind(cluster)
    cluster.loses_requests = 1_000
    third.links.mend()
    await until(lambda: leader.partition.waits_for(3))
    assert 3 not in cluster.state.in_sync
    await throttle(cluster, side, 0)

    for number in range(3):
        answer = await leader.produce(f"committed by three, {number}")
        assert answer.error_code == ErrorCode.NONE

    assert bytes_of(third) == bytes_of(leader)


async def test_a_follower_in_sync_is_not_held_back_before_it_has_heard_its_new_leader(
    cluster: Replicated,
) -> None:
    await cluster.create()
    first, second, third = cluster.nodes.values()
    await first.produce("of the first leader")
    await throttle(cluster, FOLLOWER, 0)
    for node in (second, third):
        node.links.cut(1)

    cluster.elect((2, 3))
    await cluster.tell(2, 3)
    answer = await second.produce("of the second")

    assert answer.error_code == ErrorCode.NONE
    assert bytes_of(third) == bytes_of(second)
