"""Clients read what is committed from any replica, and leaders send them to one in their rack
(KIP-392)."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from headwater.core_log.broker import replica_fetcher
from headwater.core_log.embedded import InProcessChannel
from headwater.core_log.protocol.error_codes import ErrorCode
from tests.core_log.broker.replicated import Node, Replicated
from tests.core_log.broker.test_replicas import copy, until_on_disk

RACKS = {1: "a", 2: "b", 3: "b"}
FOR_EVER_MS = 60_000_000


@pytest.fixture
async def cluster() -> AsyncIterator[Replicated]:
    """Its links are cut: only the tests copy."""
    cluster = Replicated(is_linked=False, racks=RACKS)
    await cluster.create()
    yield cluster
    await cluster.close()


@pytest.fixture
async def linked(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Replicated]:
    """Its followers hear nothing of their leader but news."""
    for name in ("WAIT_MS", "IDLE_WAIT_MS"):
        monkeypatch.setattr(replica_fetcher, name, FOR_EVER_MS)
    cluster = Replicated(racks=RACKS)
    await cluster.create()
    yield cluster
    await cluster.close()


async def commit(cluster: Replicated, *values: str) -> None:
    leader, second, third = cluster.nodes.values()
    end_offset = leader.partition.log.end_offset + len(values)
    producing = asyncio.ensure_future(leader.produce(*values))
    await until_on_disk(leader, end_offset)
    for each in (second, third):
        copy(leader, each)
        await leader.fetch(end_offset, by=each, last_epoch=0)
    await producing


def wait_at(node: Node, *, leader_epoch: int) -> "asyncio.Future[Any]":
    """A reader with a connection of its own, since one that waits blocks it."""
    channel = InProcessChannel(node.server, (f"node-{node.node_id}", 9092))
    return asyncio.ensure_future(
        node.fetch(0, wait_ms=FOR_EVER_MS, leader_epoch=leader_epoch, channel=channel)
    )


async def test_a_follower_answers_up_to_the_mark_that_it_knows(cluster: Replicated) -> None:
    second = cluster.nodes[2]
    await commit(cluster, "x")

    before = await second.fetch(0)
    second.partition.role.on_high_watermark(1)  # type: ignore[union-attr]
    after = await second.fetch(0)

    assert (before.error_code, len(before.records), before.high_watermark) == (0, 0, 0)
    assert (after.error_code, after.high_watermark, after.last_stable_offset) == (0, 1, 1)
    assert len(after.records) > 0


async def test_versions_before_racks_read_from_leaders_only(cluster: Replicated) -> None:
    await commit(cluster, "x")

    answers = [await cluster.nodes[2].fetch(0, version=version) for version in (4, 10, 11)]

    assert [each.error_code for each in answers] == [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NONE,
    ]


async def test_an_offset_that_a_follower_does_not_have_is_out_of_its_range(
    cluster: Replicated,
) -> None:
    await commit(cluster, "x")

    answer = await cluster.nodes[2].fetch(2)

    assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_a_reader_in_the_rack_of_followers_is_sent_to_one_at_once(
    cluster: Replicated,
) -> None:
    leader = cluster.nodes[1]
    await commit(cluster, "x")

    sent = await leader.fetch(1, rack="b", wait_ms=FOR_EVER_MS)
    here = await leader.fetch(0, rack="a")
    lost = await leader.fetch(0, rack="b", leader_epoch=7)

    assert (sent.error_code, sent.preferred_read_replica, sent.high_watermark) == (0, 3, 1)
    assert len(sent.records) == 0
    assert (here.preferred_read_replica, len(here.records) > 0) == (-1, True)
    assert lost.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


async def test_a_reader_that_waits_at_a_follower_is_answered_once_a_record_is_committed(
    linked: Replicated,
) -> None:
    leader, second = linked.nodes[1], linked.nodes[2]
    reading = asyncio.ensure_future(second.fetch(0, wait_ms=FOR_EVER_MS))
    await asyncio.sleep(0)

    await leader.produce("x")

    answer = await reading
    assert (answer.error_code, answer.high_watermark) == (0, 1)
    assert len(answer.records) > 0
    assert not second.partition.has_readers


async def test_a_follower_that_leads_goes_on_with_its_readers(linked: Replicated) -> None:
    second = linked.nodes[2]
    told = wait_at(second, leader_epoch=0)
    untold = wait_at(second, leader_epoch=-1)
    await asyncio.sleep(0)

    linked.elect((2, 3))
    await linked.tell(2, 3, 1)
    await second.produce("x")

    assert (await told).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert len((await untold).records) > 0


async def test_a_reader_of_a_follower_that_stops_is_answered(cluster: Replicated) -> None:
    second = cluster.nodes[2]
    reading = asyncio.ensure_future(second.fetch(0, wait_ms=FOR_EVER_MS))
    await asyncio.sleep(0)

    second.broker.end_waits()

    assert (await reading).error_code == ErrorCode.NONE
