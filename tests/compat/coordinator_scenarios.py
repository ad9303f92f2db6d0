"""Conversations with coordinators, to be had with Apache Kafka and with this broker alike."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from headwater.core_log.protocol.messages import join_group
from tests.compat.coordinator_session import SUBSCRIBED, Conversation

LATE_MS = 1_500


async def nobody_is_there(told: Conversation) -> None:
    await told.beat("nobody yet", "m", 1)
    await told.sync("nobody yet", "m", 1)
    await told.join("unknown", "m")
    await told.leave("nobody yet", ("m", None))
    await told.describe("nobody yet")


async def members_come_and_go(told: Conversation) -> None:
    a = (await told.member("a")).member_id
    await told.describe("completing")
    await told.commit("completing", 1, generation_id_or_member_epoch=1, member_id=a)
    await told.sync("wrong generation", a, 9)
    await told.sync("wrong protocol", a, 1, protocol_name="sticky")
    await told.sync("wrong kind", a, 1, protocol_type="connect")
    await told.sync("no protocol", a, 1, protocol_name=None)
    await told.sync("unknown", "m", 1)
    await told.sync("unknown, older", "m", 1, version=4)
    await told.join("again, the same", a)
    await told.sync("leader", a, 1, shares={a: b"all"})
    await told.sync("again", a, 1)
    await told.beat("stable", a, 1)
    await told.beat("wrong generation", a, 2)
    await told.beat("unknown", "m", 1)
    await told.describe("stable")
    await told.describe("stable, older", version=5)
    await told.join("other protocol", protocols=("sticky",))
    await told.join("other kind", kind="connect")
    await told.delete("with a member")
    b = (await told.join("b, first")).member_id
    joining = asyncio.ensure_future(told.ask(_join_request(told, b), 9))
    await asyncio.sleep(0.3)
    await told.beat("while others join", a, 1)
    await told.sync("while others join", a, 1)
    await told.commit("while others join", 2, generation_id_or_member_epoch=1, member_id=a)
    await told.describe("preparing")
    await told.join("a again", a)
    joined = await joining
    told.hear("b", joined.error_code, joined.generation_id, joined.leader == a)
    syncing = asyncio.ensure_future(told.sync("b", b, 2))
    await asyncio.sleep(0.1)
    await told.sync("a assigns", a, 2, shares={a: b"1", b: b"2"})
    await syncing
    told.heard[-2:] = sorted(told.heard[-2:])  # both are answered at once
    await told.join("follower, the same", b)
    await told.leave("a and one unknown", (a, None), ("m", None))
    await told.beat("a has left", b, 2)
    await told.leave("b", (b, None))
    await told.describe("empty")
    await told.beat("empty", b, 2)
    await told.sync("empty", b, 2)
    await told.delete("empty")
    await told.describe("deleted")
    await told.describe("deleted, older", version=5)
    await told.delete("deleted")


def _join_request(told: Conversation, member_id: str) -> join_group.JoinGroupRequest:
    protocol = join_group.JoinGroupRequestProtocol(name="range", metadata=SUBSCRIBED)
    return join_group.JoinGroupRequest(
        group_id=told.name,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[protocol],
    )


async def requests_make_no_sense(told: Conversation) -> None:
    await told.join("no name", group="")
    await told.join("no protocols", protocols=())
    await told.join("no kind", kind="")
    await told.join("session too short", session_ms=5_999)
    await told.join("session too long", session_ms=1_800_001)
    await told.sync("no name", "m", 1, group="")
    await told.beat("no name", "m", 1, group="")
    await told.commit("a text too long", 1, metadata="x" * 4097)
    await told.commit("a text just short enough", 1, metadata="x" * 4096)
    await told.commit("no such topic", 1, topic="nothing")


async def instances_return(told: Conversation) -> None:
    a = (await told.join("a", group_instance_id="i1")).member_id
    await told.sync("a", a, 1, shares={a: b"all"}, group_instance_id="i1")
    back = (await told.join("a is back", group_instance_id="i1")).member_id
    await told.join("a is back, older", version=8, group_instance_id="i1")
    await told.beat("the older self", a, 1, group_instance_id="i1")
    await told.beat("the older self, nameless", a, 1)
    await told.sync("the older self", back, 1, group_instance_id="i1")
    await told.join("the older self", a, group_instance_id="i1")
    await told.commit(
        "the older self", 1, member_id=a, generation_id_or_member_epoch=1, group_instance_id="i1"
    )
    await told.leave("unknown instance", ("", "i2"))
    await told.leave("member of another instance", (back, "i2"))
    await told.leave("by instance", ("", "i1"))
    await told.describe("empty")


async def offsets_are_committed(told: Conversation) -> None:
    await told.fetch("never was")
    await told.fetch("never was, older", version=1)
    await told.commit("generation of nobody", 1, generation_id_or_member_epoch=3, member_id="m")
    await told.commit(
        "generation of nobody, older", 1, version=8, generation_id_or_member_epoch=3, member_id="m"
    )
    await told.commit("outside", 5)
    await told.fetch("outside")
    await told.describe("simple")
    a = (await told.member("a")).member_id
    await told.sync("a", a, 1, shares={a: b"all"})
    await told.commit("outside, to members", 6)
    await told.commit("member", 7, generation_id_or_member_epoch=1, member_id=a)
    await told.commit("member of before", 8, generation_id_or_member_epoch=0, member_id=a)
    await told.commit("unknown member", 8, generation_id_or_member_epoch=1, member_id="m")
    await told.fetch("after")
    await told.fetch("after, older", version=5)
    await told.leave("a", (a, None))
    await told.commit("outside, to an empty group", 9)
    await told.fetch("at last")
    await told.fetch("of a topic that is not there", topic="nothing")
    await told.fetch("of a topic that is not there, older", topic="nothing", version=7)
    await told.delete("twice", told.name, told.name)
    await told.commit("without a name", 5, group="")
    await told.delete("without a name", "")
    await told.fetch("without a name", group="")
    await told.delete("without a name again", "")


def identity(answer: Any) -> dict[str, Any]:
    return {"producer_id": answer.producer_id, "producer_epoch": answer.producer_epoch}


def at_epoch(producer: dict[str, Any], epoch: int) -> dict[str, Any]:
    return producer | {"producer_epoch": epoch}


async def transactions_of_version_1(told: Conversation) -> None:
    await told.end("nobody yet", {"producer_id": 5, "producer_epoch": 0}, 3)
    await told.add_group("nobody yet", {"producer_id": 5, "producer_epoch": 0})
    me = identity(await told.init("first"))
    await told.end("nothing open, commit", me, 3)
    await told.end("nothing open, abort", me, 3, commit=False)
    await told.write("not announced", me, 1, 3)
    await told.add_group("announced", me)
    await told.add_group("announced twice", me)
    await told.write("announced", me, 2, 3)
    await told.fetch("undecided")
    await told.fetch("undecided, unstable", stable=False)
    await told.end("commit", me, 3)
    await told.end("commit twice", me, 3)
    await told.end("abort after commit", me, 3, commit=False)
    await told.fetch("committed")
    await told.add_group("second", me)
    await told.write("second", me, 3, 3)
    await told.end("abort", me, 3, commit=False)
    await told.end("abort twice", me, 3, commit=False)
    await told.end("commit after abort", me, 3)
    await told.fetch("aborted")
    await told.end("wrong id", me | {"producer_id": me["producer_id"] + 100_000}, 3)
    await told.end("epoch ahead", at_epoch(me, 7), 3)
    await told.add_group("third", me)
    following = identity(await told.init("next run", producer_id=-1, producer_epoch=-1))
    told.hear("same id", following["producer_id"] == me["producer_id"])
    await told.end("fenced", me, 3)
    await told.add_group("fenced", me)
    await told.write("fenced", me, 4, 3)


async def transactions_of_version_2(told: Conversation) -> None:
    me = identity(await told.init("first"))
    await told.end("nothing open, commit", me, 5)
    ended = await told.end("nothing open, abort", me, 5, commit=False)
    me = identity(ended)
    await told.end("abort once more", me, 5, commit=False)
    me = at_epoch(me, me["producer_epoch"] + 1)
    await told.end(
        "an epoch behind, abort", at_epoch(me, me["producer_epoch"] - 1), 5, commit=False
    )
    await told.end("two epochs behind", at_epoch(me, me["producer_epoch"] - 2), 5, commit=False)
    await told.write("joins by writing", me, 1, 5)
    await told.fetch("undecided")
    second = identity(await told.end("commit", me, 5))
    await told.end("commit twice", me, 5)
    await told.end("abort after commit", me, 5, commit=False)
    await told.end("nothing open, commit", second, 5)
    await told.write("of the last epoch", me, 2, 5)
    await told.fetch("committed")
    await told.write("second", second, 3, 5)
    await told.end("late, while the second is open", me, 5)
    await told.end("late abort, while the second is open", me, 5, commit=False)
    third = identity(await told.end("abort", second, 5, commit=False))
    await told.end("abort twice", second, 5, commit=False)
    await told.end("commit after abort", second, 5)
    await told.fetch("aborted")
    await told.end("epoch ahead", at_epoch(third, third["producer_epoch"] + 3), 5)
    await told.write("third", third, 4, 5)
    fourth = identity(await told.init("next run"))
    await told.end("fenced", third, 5)
    await told.end("fenced, abort", third, 5, commit=False)
    await told.end(
        "between the two, abort", at_epoch(third, third["producer_epoch"] + 1), 5, commit=False
    )
    await told.write("fenced", third, 5, 5)
    await told.write("fourth", fourth, 6, 5)
    await told.init("names itself while open", **fourth)
    await told.end("after that", fourth, 5)
    await told.end("after that, abort", fourth, 5, commit=False)
    await told.init("at last")


async def producers_start(told: Conversation) -> None:
    await told.init("no name", transactional_id="")
    await told.init("idempotent", transactional_id=None)
    await told.init("timeout too long", timeout_ms=900_001)
    await told.init("no time", timeout_ms=0)
    me = identity(await told.init("first"))
    again = identity(await told.init("names itself", **me))
    await told.init("names itself twice", **me)
    await told.init("names itself as it is", **again)
    await told.init("names an older self", **me)
    await told.init("somebody else", producer_id=me["producer_id"] + 100_000, producer_epoch=0)
    await told.init("only an id", producer_id=3)


async def transactions_take_too_long(told: Conversation) -> None:
    for version in (3, 5):
        me = identity(await told.init("impatient", timeout_ms=300))
        if version == 3:
            await told.add_group("announced", me)
        await told.write("in time", me, 1, version)
        await told.wait_ms(LATE_MS)
        await told.fetch("late")
        await told.write("late", me, 2, version)
        await told.end("late commit", me, version)
        await told.end("late abort", me, version, commit=False)
        await told.end("late abort, again", me, version, commit=False)
        await told.init("late, named", **me)


Story = Callable[[Conversation], Awaitable[None]]
STORIES: list[Story] = [
    nobody_is_there,
    members_come_and_go,
    requests_make_no_sense,
    instances_return,
    offsets_are_committed,
    transactions_of_version_1,
    transactions_of_version_2,
    producers_start,
    transactions_take_too_long,
]
