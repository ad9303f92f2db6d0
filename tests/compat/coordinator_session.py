"""A conversation with a coordinator, asked over any wire, and what was heard in it."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages import (
    join_group,
    leave_group,
    offset_commit,
    offset_fetch,
)
from headwater.core_log.protocol.messages import sync_group as sync_messages
from headwater.core_log.protocol.messages import txn_offset_commit as txn_messages
from headwater.core_log.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from headwater.core_log.protocol.messages.delete_groups import DeleteGroupsRequest
from headwater.core_log.protocol.messages.describe_groups import DescribeGroupsRequest
from headwater.core_log.protocol.messages.end_txn import EndTxnRequest
from headwater.core_log.protocol.messages.heartbeat import HeartbeatRequest
from headwater.core_log.protocol.messages.init_producer_id import InitProducerIdRequest
from headwater.core_log.protocol.messages.list_groups import ListGroupsRequest

SUBSCRIBED = b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"
PASSING = {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
TRIES = 200


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
        topic = more.pop("topic", "t")
        if version < 8:
            topics = [offset_fetch.OffsetFetchRequestTopic(name=topic, partition_indexes=[0])]
            answer = await self.ask(
                offset_fetch.OffsetFetchRequest(group_id=group, topics=topics), version
            )
            found, error = answer.topics, answer.error_code
        else:
            wanted = [offset_fetch.OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
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

    async def delete(self, what: str, *names: str) -> None:
        answer = await self.ask(DeleteGroupsRequest(groups_names=names or [self.name]), 2)
        codes = [ErrorCode(each.error_code).name for each in answer.results]
        self.hear(f"delete: {what}", *codes)

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
