"""A member of a group over a broker of ours: it gets its share, keeps it over a restart, and stops
acting before the others go on without it."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from headwater.core_log.client.membership import Membership, MembershipTerms
from headwater.core_log.embedded import EmbeddedLog
from headwater.core_log.foundation.errors import DirectoryInUse
from headwater.core_log.foundation.settings import BrokerSettings
from headwater.core_log.protocol.messages.heartbeat import HeartbeatRequest
from headwater.core_log.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from headwater.core_log.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tests.core_log.client.scripted_cluster import NEVER, ScriptedCluster

SESSION_MS = 900


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[EmbeddedLog]:
    settings = BrokerSettings(
        data=tmp_path, listen="127.0.0.1:0", group_session_timeout_ms_min=1, internal_partitions=1
    )
    log = await EmbeddedLog.open(settings)
    yield log
    await log.close()


class Actor:
    """A member that says its name, and what became of it."""

    def __init__(self, log: EmbeddedLog, name: str, instance: str | None = None) -> None:
        self.name, self.lost = name, list[str]()
        self.leases = list[float]()
        terms = MembershipTerms("g", "headwater", "p", instance, SESSION_MS, 100)
        self.membership: Membership = log.membership(
            terms, count_off, on_lost=self.lost.append, on_heard=self.leases.append
        )

    async def join(self) -> str:
        return (await self.membership.join(self.name.encode())).decode()

    @asynccontextmanager
    async def alive(self) -> AsyncIterator[None]:
        beating = asyncio.create_task(self.membership.beat())
        try:
            yield
        finally:
            beating.cancel()
            with suppress(asyncio.CancelledError):
                await beating


def count_off(metadata: Mapping[str, bytes]) -> Mapping[str, bytes]:
    """Each gets its place among the names of all."""
    names = sorted(metadata.values())
    return {
        member: b"%s %d/%d" % (name, names.index(name) + 1, len(names))
        for member, name in metadata.items()
    }


async def test_members_get_their_shares_and_the_rest_goes_on_when_one_leaves(
    log: EmbeddedLog,
) -> None:
    a, b = Actor(log, "a"), Actor(log, "b")
    assert await a.join() == "a 1/1"

    async with a.alive(), b.alive():
        joining = asyncio.create_task(b.join())
        await a.membership.wants_join.wait()
        assert await a.join() == "a 1/2"
        assert await joining == "b 2/2"

        await b.membership.leave("done")
        await a.membership.wants_join.wait()
        assert await a.join() == "a 1/1"

    assert a.lost == b.lost == []


async def test_an_instance_that_returns_within_its_session_gets_what_it_had_at_once(
    log: EmbeddedLog,
) -> None:
    a, b = Actor(log, "a", "one"), Actor(log, "b", "two")
    async with a.alive():
        await a.join()
        async with b.alive():
            joining = asyncio.create_task(b.join())
            await a.membership.wants_join.wait()
            await a.join()
            await joining

        again = Actor(log, "b", "two")
        given = await again.join()

        assert given == "b 2/2"
        assert not a.membership.wants_join.is_set()


async def test_the_older_of_two_processes_with_one_identity_is_told_and_ends(
    log: EmbeddedLog,
) -> None:
    first, second = Actor(log, "a", "one"), Actor(log, "a", "one")
    await first.join()
    await second.join()

    async with first.alive():
        await first.membership.wants_join.wait()
        with pytest.raises(DirectoryInUse):
            await first.join()

    assert len(first.lost) == 1


@pytest.mark.slow
async def test_a_member_without_heartbeats_stops_before_the_group_goes_on_without_it(
    log: EmbeddedLog,
) -> None:
    a, b = Actor(log, "a"), Actor(log, "b")
    await a.join()  # and sends nothing from now on

    async with b.alive():
        joining = asyncio.create_task(b.join())
        await a.membership.wants_join.wait()
        assert not joining.done()
        assert await joining == "b 1/1"

        assert a.lost == ["heartbeats were not answered in time"]
        late = asyncio.create_task(a.join())
        await b.membership.wants_join.wait()
        await b.join()
        assert await late == "a 1/2"


@pytest.mark.slow
async def test_a_lease_goes_on_while_a_join_waits_for_another_member(log: EmbeddedLog) -> None:
    a, silent, b = Actor(log, "a"), Actor(log, "silent"), Actor(log, "b")
    async with a.alive():
        await a.join()
        joining = asyncio.create_task(silent.join())
        await a.membership.wants_join.wait()
        await a.join()
        await joining  # and sends nothing from now on

        async with b.alive():
            joining = asyncio.create_task(b.join())
            await a.membership.wants_join.wait()
            assert await a.join() == "a 1/2"
            await joining

    assert a.lost == []


async def test_the_lease_ends_although_the_broker_takes_heartbeats_and_answers_none() -> None:
    cluster = ScriptedCluster()
    cluster.on(
        JoinGroupRequest,
        lambda *_: JoinGroupResponse(generation_id=1, leader="x", member_id="m", protocol_name="p"),
    )
    cluster.on(SyncGroupRequest, lambda *_: SyncGroupResponse(assignment=b"all"))
    cluster.on(HeartbeatRequest, lambda *_: NEVER)
    lost = list[str]()
    log = cluster.log()
    terms = MembershipTerms("g", "headwater", "p", None, 150, 10)
    membership = log.membership(terms, count_off, on_lost=lost.append)

    assert await membership.join(b"") == b"all"
    beating = asyncio.create_task(membership.beat())
    await membership.wants_join.wait()

    assert lost == ["heartbeats were not answered in time"]
    beating.cancel()
    await log.close()
