"""Conversations with coordinators, to be had with Apache Kafka and with this broker alike."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from core_log.protocol.error_codes import ErrorCode
from core_log.protocol.messages import join_group, leave_group, offset_commit, offset_fetch
from core_log.protocol.messages import sync_group as sync_messages
from core_log.protocol.messages import txn_offset_commit as txn_messages
from core_log.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from core_log.protocol.messages.delete_groups import DeleteGroupsRequest
from core_log.protocol.messages.describe_groups import DescribeGroupsRequest
from core_log.protocol.messages.end_txn import EndTxnRequest
from core_log.protocol.messages.heartbeat import HeartbeatRequest
from core_log.protocol.messages.init_producer_id import InitProducerIdRequest
from core_log.protocol.messages.list_groups import ListGroupsRequest

SUBSCRIBED = b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"
PASSING = {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
TRIES = 200
LATE_MS = 1_500


class Ask(Protocol):
    """One request, encoded in a version, and its answer."""

    def __call__(self, request: Any, version: int) -> Awaitable[Any]: ...


@dataclass
class Conversation:
    """Says what is asked, and writes down what of the answer both must have in common."""

    ask: Ask
    name: str
    """Of the group and of the transactional id; not used before."""
    wait_ms: Callable[[int], Awaitable[None]]
    heard: list[tuple[object, ...]] = field(default_factory=list)

    def hear(self, what: str, *facts: object) -> None:
        self.heard.append((what, *facts))

    async def join(self, what: str, member_id: str = "", *, version: int = 9, **more: Any) -> Any:
        protocols = more.pop("protocols", ("range",))
        request = join_group.JoinGroupRequest(
            group_id=more.pop("group", self.name),
            session_timeout_ms=more.pop("session_ms", 30_000),
            rebalance_timeout_ms=60_000,
            member_id=member_id,
            protocol_type=more.pop("kind", "consumer"),
            protocols=[
                join_group.JoinGroupRequestProtocol(name=name, metadata=SUBSCRIBED)
                for name in protocols
            ],
            **more,
        )
        answer = await self.ask(request, version)
        is_leader = bool(answer.leader) and answer.leader == answer.member_id
        self.hear(
            f"join: {what}",
            ErrorCode(answer.error_code).name,
            answer.generation_id,
            answer.protocol_name,
            is_leader,
            len(answer.members),
            bool(answer.member_id),
            answer.skip_assignment,
        )
        return answer

    async def member(self, what: str, **more: Any) -> Any:
        """A newcomer, who is given its id first."""
        first = await self.join(f"{what}, first", **more)
        return await self.join(what, first.member_id, **more)

    async def sync(self, what: str, member_id: str, generation: int, **more: Any) -> Any:
        shares, version = more.pop("shares", {}), more.pop("version", 5)
        if version >= 5:
            more = {"protocol_type": "consumer", "protocol_name": "range"} | more
        request = sync_messages.SyncGroupRequest(
            group_id=more.pop("group", self.name),
            generation_id=generation,
            member_id=member_id,
            assignments=[
                sync_messages.SyncGroupRequestAssignment(member_id=each, assignment=share)
                for each, share in shares.items()
            ],
            **more,
        )
        answer = await self.ask(request, version)
        self.hear(
            f"sync: {what}",
            ErrorCode(answer.error_code).name,
            answer.protocol_type,
            answer.protocol_name,
            bytes(answer.assignment),
        )
        return answer

    async def beat(self, what: str, member_id: str, generation: int, **more: Any) -> None:
        request = HeartbeatRequest(
            group_id=more.pop("group", self.name),
            generation_id=generation,
            member_id=member_id,
            **more,
        )
        answer = await self.ask(request, 4)
        self.hear(f"heartbeat: {what}", ErrorCode(answer.error_code).name)

    async def leave(self, what: str, *leaving: tuple[str, str | None], group: str = "") -> None:
        members = [
            leave_group.MemberIdentity(member_id=member_id, group_instance_id=instance_id)
            for member_id, instance_id in leaving
        ]
        request = leave_group.LeaveGroupRequest(group_id=group or self.name, members=members)
        answer = await self.ask(request, 5)
        errors = [ErrorCode(each.error_code).name for each in answer.members]
        self.hear(f"leave: {what}", ErrorCode(answer.error_code).name, errors)

    async def commit(self, what: str, offset: int, *, version: int = 9, **more: Any) -> None:
        topic, metadata = more.pop("topic", "t"), more.pop("metadata", "m")
        partition = offset_commit.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=metadata
        )
        request = offset_commit.OffsetCommitRequest(
            group_id=more.pop("group", self.name),
            topics=[offset_commit.OffsetCommitRequestTopic(name=topic, partitions=[partition])],
            **more,
        )
        answer = await self.ask(request, version)
        code = answer.topics[0].partitions[0].error_code
        self.hear(f"commit: {what}", ErrorCode(code).name)

    async def fetch(self, what: str, *, version: int = 9, **more: Any) -> None:
        stable, group = more.pop("stable", True), more.pop("group", self.name)
        if version < 8:
            topics = [offset_fetch.OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
            answer = await self.ask(
                offset_fetch.OffsetFetchRequest(group_id=group, topics=topics), version
            )
            found, error = answer.topics, answer.error_code
        else:
            wanted = [offset_fetch.OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
            asked = offset_fetch.OffsetFetchRequestGroup(group_id=group, topics=wanted)
            answer = await self.ask(
                offset_fetch.OffsetFetchRequest(groups=[asked], require_stable=stable), version
            )
            found, error = answer.groups[0].topics, answer.groups[0].error_code
        facts = [
            (each.committed_offset, each.metadata, ErrorCode(each.error_code).name)
            for topic in found
            for each in topic.partitions
        ]
        self.hear(f"fetch: {what}", ErrorCode(error).name, facts)

    async def describe(self, what: str, *, version: int = 6) -> None:
        answer = await self.ask(DescribeGroupsRequest(groups=[self.name]), version)
        group = answer.groups[0]
        self.hear(
            f"describe: {what}",
            ErrorCode(group.error_code).name,
            group.group_state,
            group.protocol_type,
            group.protocol_data,
            sorted(
                (bytes(each.member_metadata), bytes(each.member_assignment))
                for each in group.members
            ),
        )
        listed = await self.ask(ListGroupsRequest(), 5)
        ours = [
            (each.protocol_type, each.group_state, each.group_type)
            for each in listed.groups
            if each.group_id == self.name
        ]
        self.hear(f"list: {what}", ours)

    async def delete(self, what: str) -> None:
        answer = await self.ask(DeleteGroupsRequest(groups_names=[self.name]), 2)
        self.hear(f"delete: {what}", ErrorCode(answer.results[0].error_code).name)

    async def init(self, what: str, **more: Any) -> Any:
        request = InitProducerIdRequest(
            transactional_id=more.pop("transactional_id", self.name),
            transaction_timeout_ms=more.pop("timeout_ms", 60_000),
            **more,
        )
        answer = await self.until_done(request, 4)
        code = ErrorCode(answer.error_code)
        self.hear(f"init: {what}", code.name, answer.producer_epoch)
        return answer

    async def add_group(self, what: str, producer: dict[str, Any]) -> None:
        request = AddOffsetsToTxnRequest(group_id=self.name, **self.naming(producer))
        answer = await self.until_done(request, 3)
        self.hear(f"add: {what}", ErrorCode(answer.error_code).name)

    async def write(self, what: str, producer: dict[str, Any], offset: int, version: int) -> None:
        partition = txn_messages.TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset
        )
        request = txn_messages.TxnOffsetCommitRequest(
            group_id=self.name,
            topics=[txn_messages.TxnOffsetCommitRequestTopic(name="t", partitions=[partition])],
            **self.naming(producer),
        )
        answer = await self.until_done(request, version)
        code = answer.topics[0].partitions[0].error_code
        self.hear(f"write: {what}", ErrorCode(code).name)

    async def end(self, what: str, producer: dict[str, Any], version: int, **how: Any) -> Any:
        request = EndTxnRequest(committed=how.get("commit", True), **self.naming(producer))
        answer = await self.until_done(request, version)
        epoch = answer.producer_epoch if version >= 5 else None
        self.hear(f"end: {what}", ErrorCode(answer.error_code).name, epoch)
        return answer

    def naming(self, producer: dict[str, Any]) -> dict[str, Any]:
        return {"transactional_id": self.name} | producer

    async def until_done(self, request: Any, version: int) -> Any:
        """What passes is asked again: how long it takes is nobody's promise."""
        for _ in range(TRIES):
            answer = await self.ask(request, version)
            if error_of(answer) not in PASSING:
                return answer
            await asyncio.sleep(0.01)
        raise AssertionError("what passes has passed by now")


def error_of(answer: Any) -> ErrorCode:
    if hasattr(answer, "error_code"):
        return ErrorCode(answer.error_code)
    return ErrorCode(answer.topics[0].partitions[0].error_code)


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
