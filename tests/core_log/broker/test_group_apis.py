"""Groups are answered as Kafka answers them, in the words of every version."""

from collections.abc import AsyncIterator, Sequence
from random import Random
from typing import Any
from uuid import UUID

import pytest

from headwater.core_log.broker.broker import Broker
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headwater.core_log.protocol.messages.delete_groups import DeleteGroupsRequest
from headwater.core_log.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from headwater.core_log.protocol.messages.describe_groups import DescribeGroupsRequest
from headwater.core_log.protocol.messages.find_coordinator import FindCoordinatorRequest
from headwater.core_log.protocol.messages.heartbeat import HeartbeatRequest
from headwater.core_log.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
)
from headwater.core_log.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from headwater.core_log.protocol.messages.list_groups import ListGroupsRequest
from headwater.core_log.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headwater.core_log.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from headwater.core_log.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from headwater.core_log.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from tests.core_log.broker.in_memory import ask, create, started
from tests.fakes import MemoryFiles

GROUP, SHARE = 0, 2
SUBSCRIBED_TO_ORDERS = b"\0\0\0\0\0\1\0\6orders\xff\xff\xff\xff"


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    """With a topic, and with the coordinators' own topics, as a client's first questions make."""
    broker = await started(MemoryFiles(), internal_partitions=2)
    topic = CreatableTopic(name="orders", num_partitions=2, replication_factor=1)
    await ask(broker, CreateTopicsRequest(topics=(topic,), timeout_ms=1000))
    await ask(broker, FindCoordinatorRequest(key_type=GROUP, coordinator_keys=("g",)))
    yield broker
    await broker.close()


def topic_id(broker: Broker) -> UUID:
    topic = broker.image.topic("orders")
    assert topic is not None
    return topic.topic_id


async def join(broker: Broker, version: int, **fields: Any) -> Any:
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000 if version else -1,
        protocol_type="consumer",
        protocols=(JoinGroupRequestProtocol(name="range", metadata=SUBSCRIBED_TO_ORDERS),),
        **fields,
    )
    return await ask(broker, request, version)


async def sync(broker: Broker, version: int, member_id: str, **fields: Any) -> Any:
    share = SyncGroupRequestAssignment(member_id=member_id, assignment=b"all")
    request = SyncGroupRequest(
        group_id="g", generation_id=1, member_id=member_id, assignments=(share,), **fields
    )
    return await ask(broker, request, version)


async def member(broker: Broker) -> str:
    """One member with an assignment."""
    joined = await join(broker, 3)
    await sync(broker, 5, joined.member_id, protocol_type="consumer", protocol_name="range")
    member_id: str = joined.member_id
    return member_id


async def commit(broker: Broker, version: int, offset: int, **fields: Any) -> Any:
    named: dict[str, Any] = {"name": "orders"}
    if version >= 10:
        named = {"topic_id": topic_id(broker)}
    partitions = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
        for index in (0, 7)
    ]
    topic = OffsetCommitRequestTopic(**named, partitions=tuple(partitions))
    return await ask(broker, OffsetCommitRequest(group_id="g", topics=(topic,), **fields), version)


async def test_a_topic_made_anew_has_no_offsets_of_the_former_one(broker: Broker) -> None:
    await commit(broker, 9, 5)

    await ask(broker, DeleteTopicsRequest(topics=[DeleteTopicState(name="orders")]))
    await create(broker, "orders")

    assert broker.groups.offsets_of("g") == {}


async def test_offsets_of_a_topic_whose_deletion_a_crash_cut_short_are_not_those_of_the_next() -> (
    None
):
    files = MemoryFiles()
    broker = await started(files, internal_partitions=1)
    await create(broker, "orders")
    await ask(broker, FindCoordinatorRequest(key_type=GROUP, coordinator_keys=("g",)))
    await commit(broker, 9, 5)
    await ask(broker, DeleteTopicsRequest(topics=[DeleteTopicState(name="orders")]))
    broker.abandon()

    broker = await started(files.after_power_cut(Random(0)), internal_partitions=1)
    await create(broker, "orders")

    assert broker.groups.offsets_of("g") == {}
    await broker.close()


async def test_an_offset_may_be_kept_for_ever(broker: Broker) -> None:
    answer = await commit(broker, 4, 5, retention_time_ms=2**63 - 1)

    assert codes(answer.topics[0].partitions)[0] is ErrorCode.NONE


def codes(partitions: Sequence[Any]) -> list[ErrorCode]:
    return [ErrorCode(each.error_code) for each in partitions]


@pytest.mark.parametrize("version", range(7))
async def test_a_coordinator_is_found_under_the_address_asked(broker: Broker, version: int) -> None:
    request = FindCoordinatorRequest(key_type=GROUP, key="g")
    if version >= 4:
        request = FindCoordinatorRequest(key_type=GROUP, coordinator_keys=("g", "h"))

    answer = await ask(broker, request, version)

    found = answer.coordinators if version >= 4 else [answer]
    assert [(each.error_code, each.host, each.port) for each in found] == (
        [(0, "127.0.0.1", 19092)] * len(found)
    )


async def test_a_coordinator_of_shares_is_not_to_be_had(broker: Broker) -> None:
    answer = await ask(broker, FindCoordinatorRequest(key_type=SHARE, coordinator_keys=("s:t:0",)))

    assert codes(answer.coordinators) == [ErrorCode.INVALID_REQUEST]


@pytest.mark.parametrize("version", range(10))
async def test_new_members_get_their_id_first_from_version_4_on(
    broker: Broker, version: int
) -> None:
    joined = await join(broker, version)

    expected = ErrorCode.MEMBER_ID_REQUIRED if version >= 4 else ErrorCode.NONE
    assert joined.error_code == expected
    assert joined.member_id.startswith("test-")
    if version >= 4:
        assert joined.protocol_name == ("" if version < 7 else None)
        joined = await join(broker, version, member_id=joined.member_id)
    assert (joined.generation_id, joined.protocol_name, joined.leader) == (
        1,
        "range",
        joined.member_id,
    )


@pytest.mark.parametrize("version", range(6))
async def test_a_share_is_asked_for_by_its_protocol_from_version_5_on(
    broker: Broker, version: int
) -> None:
    joined = await join(broker, 3)

    nameless = await sync(broker, version, joined.member_id)

    if version < 5:
        assert (nameless.error_code, nameless.assignment) == (ErrorCode.NONE, b"all")
    else:
        assert nameless.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("version", range(6))
async def test_a_member_leaves_in_every_version(broker: Broker, version: int) -> None:
    member_id = await member(broker)
    request = LeaveGroupRequest(group_id="g", member_id=member_id)
    if version >= 3:
        identities = (MemberIdentity(member_id=member_id), MemberIdentity(member_id="nobody"))
        request = LeaveGroupRequest(group_id="g", members=identities)

    first = await ask(broker, request, version)
    again = await ask(broker, request, version)

    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    if version >= 3:
        assert (codes(first.members), first.error_code) == ([ErrorCode.NONE, unknown], 0)
        assert codes(again.members) == [unknown, unknown]
    else:
        assert (first.error_code, again.error_code) == (ErrorCode.NONE, unknown)


async def test_a_heartbeat_knows_generation_and_member(broker: Broker) -> None:
    member_id = await member(broker)

    async def beat(group: str, generation: int, name: str) -> ErrorCode:
        request = HeartbeatRequest(group_id=group, generation_id=generation, member_id=name)
        return ErrorCode((await ask(broker, request)).error_code)

    assert await beat("g", 1, member_id) is ErrorCode.NONE
    assert await beat("g", 2, member_id) is ErrorCode.ILLEGAL_GENERATION
    assert await beat("g", 1, "nobody") is ErrorCode.UNKNOWN_MEMBER_ID
    assert await beat("h", 1, member_id) is ErrorCode.UNKNOWN_MEMBER_ID
    assert await beat("", 1, member_id) is ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize("version", range(2, 11))
async def test_offsets_are_committed_in_every_version(broker: Broker, version: int) -> None:
    answer = await commit(broker, version, 5)

    expected = [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert codes(answer.topics[0].partitions) == expected


@pytest.mark.parametrize("version", range(2, 11))
async def test_a_generation_of_no_group_is_refused_in_the_words_of_the_version(
    broker: Broker, version: int
) -> None:
    answer = await commit(broker, version, 5, generation_id_or_member_epoch=3, member_id="m")

    known = ErrorCode.GROUP_ID_NOT_FOUND if version >= 9 else ErrorCode.ILLEGAL_GENERATION
    assert codes(answer.topics[0].partitions)[0] is known


async def test_offsets_of_topics_that_do_not_exist_are_refused(broker: Broker) -> None:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    by_name = OffsetCommitRequestTopic(name="nothing", partitions=(partition,))
    by_id = OffsetCommitRequestTopic(topic_id=UUID(int=9), partitions=(partition,))

    older = await ask(broker, OffsetCommitRequest(group_id="g", topics=(by_name,)), 9)
    newer = await ask(broker, OffsetCommitRequest(group_id="g", topics=(by_id,)), 10)

    assert codes(older.topics[0].partitions) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert codes(newer.topics[0].partitions) == [ErrorCode.UNKNOWN_TOPIC_ID]


@pytest.mark.parametrize("version", range(1, 11))
async def test_offsets_are_fetched_in_every_version(broker: Broker, version: int) -> None:
    await commit(broker, 9, 5)
    named: dict[str, Any] = {"name": "orders"}
    if version >= 10:
        named = {"topic_id": topic_id(broker)}
    wanted = OffsetFetchRequestTopics(**named, partition_indexes=(0, 1))
    request = OffsetFetchRequest(
        groups=(OffsetFetchRequestGroup(group_id="g", topics=(wanted,)),),
    )
    if version < 8:
        one = OffsetFetchRequestTopic(name="orders", partition_indexes=(0, 1))
        request = OffsetFetchRequest(group_id="g", topics=(one,))

    answer = await ask(broker, request, version)

    group = answer if version < 8 else answer.groups[0]
    partitions = group.topics[0].partitions
    assert [each.committed_offset for each in partitions] == [5, -1]
    assert codes(partitions) == [ErrorCode.NONE, ErrorCode.NONE]


@pytest.mark.parametrize("version", range(2, 11))
async def test_all_offsets_of_a_group_are_fetched(broker: Broker, version: int) -> None:
    await commit(broker, 9, 5)
    request = OffsetFetchRequest(
        groups=(
            OffsetFetchRequestGroup(group_id="g", topics=None),
            OffsetFetchRequestGroup(group_id="unheard of", topics=None),
        )
    )
    if version < 8:
        request = OffsetFetchRequest(group_id="g", topics=None)

    answer = await ask(broker, request, version)

    group = answer if version < 8 else answer.groups[0]
    assert [each.partition_index for each in group.topics[0].partitions] == [0]
    if version >= 8:
        assert list(answer.groups[1].topics) == []
    if version >= 10:
        assert group.topics[0].topic_id == topic_id(broker)


@pytest.mark.parametrize("version", [1, 7, 8, 9])
async def test_a_topic_that_is_not_there_has_no_offset(broker: Broker, version: int) -> None:
    wanted = OffsetFetchRequestTopics(name="gone", partition_indexes=(0,))
    request = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="g", topics=(wanted,)),))
    if version < 8:
        one = OffsetFetchRequestTopic(name="gone", partition_indexes=(0,))
        request = OffsetFetchRequest(group_id="g", topics=(one,))

    answer = await ask(broker, request, version)

    group = answer if version < 8 else answer.groups[0]
    [partition] = group.topics[0].partitions
    assert (partition.committed_offset, partition.error_code) == (-1, ErrorCode.NONE)


async def test_an_offset_of_a_deleted_topic_is_not_its_successors(broker: Broker) -> None:
    await commit(broker, 10, 5)
    stale = OffsetFetchRequestTopics(topic_id=UUID(int=9), partition_indexes=(0,))
    groups = (OffsetFetchRequestGroup(group_id="g", topics=(stale,)),)

    answer = await ask(broker, OffsetFetchRequest(groups=groups), 10)

    assert codes(answer.groups[0].topics[0].partitions) == [ErrorCode.UNKNOWN_TOPIC_ID]


@pytest.mark.parametrize("version", [1, 2, 7])
async def test_a_broker_that_does_not_coordinate_says_so(version: int) -> None:
    broker = await started(MemoryFiles(), internal_partitions=2)
    one = OffsetFetchRequestTopic(name="orders", partition_indexes=(0,))

    answer = await ask(broker, OffsetFetchRequest(group_id="g", topics=(one,)), version)
    described = await ask(broker, DescribeGroupsRequest(groups=("g",)))
    await broker.close()

    if version == 1:
        assert codes(answer.topics[0].partitions) == [ErrorCode.NOT_COORDINATOR]
    else:
        assert answer.error_code == ErrorCode.NOT_COORDINATOR
    assert codes(described.groups) == [ErrorCode.NOT_COORDINATOR]


async def test_groups_are_listed_by_state_and_type(broker: Broker) -> None:
    await member(broker)

    async def listed(version: int, **filters: Any) -> list[tuple[str, str, str]]:
        answer = await ask(broker, ListGroupsRequest(**filters), version)
        return [(each.group_id, each.group_state, each.group_type) for each in answer.groups]

    assert await listed(0) == [("g", "", "")]
    assert await listed(5) == [("g", "Stable", "classic")]
    assert await listed(5, states_filter=("stable",)) == [("g", "Stable", "classic")]
    assert await listed(5, states_filter=("Empty",)) == []
    assert await listed(5, types_filter=("Classic",)) == [("g", "Stable", "classic")]
    assert await listed(5, types_filter=("consumer",)) == []


@pytest.mark.parametrize("version", range(7))
async def test_a_group_is_described_with_its_members(broker: Broker, version: int) -> None:
    member_id = await member(broker)

    answer = await ask(broker, DescribeGroupsRequest(groups=("g", "h")), version)

    stable, unknown = answer.groups
    assert (stable.group_state, stable.protocol_data) == ("Stable", "range")
    assert [
        (each.member_id, each.client_host, each.member_metadata, each.member_assignment)
        for each in stable.members
    ] == [(member_id, "/127.0.0.1", SUBSCRIBED_TO_ORDERS, b"all")]
    absent = ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE
    assert (unknown.group_state, unknown.error_code) == ("Dead", absent)


async def test_groups_are_deleted_when_nobody_is_in_them(broker: Broker) -> None:
    member_id = await member(broker)
    request = DeleteGroupsRequest(groups_names=("g", "h", "g"))

    with_member = await ask(broker, request)
    leaving = LeaveGroupRequest(group_id="g", members=(MemberIdentity(member_id=member_id),))
    await ask(broker, leaving)
    without = await ask(broker, request)

    unknown = ErrorCode.GROUP_ID_NOT_FOUND
    assert codes(with_member.results) == [ErrorCode.NON_EMPTY_GROUP, unknown]
    assert codes(without.results) == [ErrorCode.NONE, unknown]


async def test_offsets_of_a_group_without_a_name_are_described_and_deleted(broker: Broker) -> None:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
    topic = OffsetCommitRequestTopic(name="orders", partitions=(partition,))
    deletion = DeleteGroupsRequest(groups_names=("",))

    never = await ask(broker, deletion)
    await ask(broker, OffsetCommitRequest(group_id="", topics=(topic,)), 9)
    described = await ask(broker, DescribeGroupsRequest(groups=("",)))
    deleted = await ask(broker, deletion)
    wanted = OffsetFetchRequestGroup(group_id="", topics=None)
    left = await ask(broker, OffsetFetchRequest(groups=(wanted,)))

    assert codes(never.results) == [ErrorCode.GROUP_ID_NOT_FOUND]
    assert described.groups[0].group_state == "Empty"
    assert codes(deleted.results) == [ErrorCode.NONE]
    assert list(left.groups[0].topics) == []


async def test_offsets_are_deleted_where_nobody_reads(broker: Broker) -> None:
    await commit(broker, 9, 5)
    partitions = tuple(OffsetDeleteRequestPartition(partition_index=index) for index in (0, 7))
    topic = OffsetDeleteRequestTopic(name="orders", partitions=partitions)
    request = OffsetDeleteRequest(group_id="g", topics=(topic,))

    free = await ask(broker, request)
    await member(broker)
    read = await ask(broker, request)
    unknown = await ask(broker, OffsetDeleteRequest(group_id="h", topics=(topic,)))

    absent = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes(free.topics[0].partitions) == [ErrorCode.NONE, absent]
    in_use = [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, absent]
    assert codes(read.topics[0].partitions) == in_use
    assert unknown.error_code == ErrorCode.GROUP_ID_NOT_FOUND


async def test_groups_and_offsets_outlive_the_broker() -> None:
    files = MemoryFiles()
    broker = await started(files, internal_partitions=2)
    topic = CreatableTopic(name="orders", num_partitions=2, replication_factor=1)
    await ask(broker, CreateTopicsRequest(topics=(topic,), timeout_ms=1000))
    await ask(broker, FindCoordinatorRequest(key_type=GROUP, coordinator_keys=("g",)))
    member_id = await member(broker)
    await commit(broker, 9, 5, generation_id_or_member_epoch=1, member_id=member_id)
    await broker.close()

    broker = await started(files, internal_partitions=2)
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id=member_id)
    beat = await ask(broker, request)
    group = OffsetFetchRequestGroup(group_id="g", topics=None)
    fetched = await ask(broker, OffsetFetchRequest(groups=(group,)), 9)
    await broker.close()

    assert beat.error_code == ErrorCode.NONE
    assert fetched.groups[0].topics[0].partitions[0].committed_offset == 5
