"""What a group was told outlives the broker, and it is told nothing before it is on disk."""

import asyncio

import pytest

from headwater.core_log.groups.group_coordinator import GroupLimits, OffsetCommitter
from headwater.core_log.groups.membership import (
    GroupState,
    JoinAnswer,
    Joining,
    JoinProtocol,
    SyncAnswer,
    Syncing,
)
from headwater.core_log.groups.offsets import CommittedOffset
from headwater.core_log.model.log import ProducerStamp, TopicPartition
from headwater.core_log.protocol.error_codes import ErrorCode
from tests.core_log.groups.controlled_log import Groups

SUBSCRIBED_TO_T = b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"
T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
ANYBODY = OffsetCommitter()
STAMP = ProducerStamp(7, 0)


def joining(member_id: str = "", instance_id: str | None = None) -> Joining:
    return Joining(
        member_id=member_id,
        instance_id=instance_id,
        client_id="c",
        client_host="/127.0.0.1",
        protocol_type="consumer",
        protocols=(JoinProtocol("range", SUBSCRIBED_TO_T),),
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
    )


async def join(groups: Groups, instance_id: str | None = None) -> JoinAnswer:
    first = await groups.coordinator.join("g", joining(instance_id=instance_id))
    if first.error is not ErrorCode.MEMBER_ID_REQUIRED:
        return first
    return await groups.coordinator.join("g", joining(first.member_id, instance_id))


async def sync(groups: Groups, joined: JoinAnswer, **shares: bytes) -> SyncAnswer:
    return await groups.coordinator.sync(
        "g",
        Syncing(joined.member_id, joined.generation, assignments={joined.member_id: b"all"}),
    )


def at(offset: int) -> CommittedOffset:
    return CommittedOffset(offset, leader_epoch=3, metadata="m", committed_ms=1_000_000)


def offsets(groups: Groups) -> dict[TopicPartition, int]:
    return {at: each.offset for at, each in groups.coordinator.offsets_of("g").items()}


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_an_assignment_is_told_once_it_is_on_disk() -> None:
    groups = Groups()
    joined = await join(groups)

    groups.log.hold()
    syncing = asyncio.ensure_future(sync(groups, joined))
    await turns()
    early = syncing.done()
    groups.log.release()

    assert not early
    assert (await syncing).assignment == b"all"


async def test_an_assignment_that_cannot_be_stored_is_refused() -> None:
    groups = Groups()
    joined = await join(groups)

    groups.log.fail()
    answer = await sync(groups, joined)

    assert answer.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    heartbeat = groups.coordinator.heartbeat("g", joined.member_id, joined.generation)
    assert heartbeat is ErrorCode.REBALANCE_IN_PROGRESS


async def test_a_leader_that_gives_up_waiting_does_not_hold_up_the_others() -> None:
    groups = Groups()
    joined = await join(groups)
    groups.log.hold()
    syncing = asyncio.ensure_future(sync(groups, joined))
    await turns()

    syncing.cancel()
    await turns()
    groups.log.release()
    await groups.coordinator.commit_offsets("other", {T0: at(1)}, by=ANYBODY)

    assert (await sync(groups, joined)).assignment == b"all"


async def test_members_and_assignments_survive_a_restart() -> None:
    groups = Groups()
    joined = await join(groups, "i1")
    await sync(groups, joined)

    groups.restart()

    assert groups.coordinator.heartbeat("g", joined.member_id, 1) is ErrorCode.NONE
    assert (await sync(groups, joined)).assignment == b"all"
    group = groups.coordinator.find("g")
    assert group is not None and group.is_subscribed_to("t") and not group.is_subscribed_to("u")
    fenced = groups.coordinator.heartbeat("g", "somebody", 1, instance_id="i1")
    assert fenced is ErrorCode.FENCED_INSTANCE_ID


async def test_a_static_member_that_returned_keeps_its_share_over_a_restart() -> None:
    groups = Groups()
    await sync(groups, await join(groups, "i1"))
    returned = await join(groups, "i1")

    groups.restart()

    assert returned.skip_assignment
    heartbeat = groups.coordinator.heartbeat("g", returned.member_id, 1, instance_id="i1")
    assert heartbeat is ErrorCode.NONE


async def test_a_commit_counts_once_it_is_on_disk() -> None:
    groups = Groups()
    groups.log.hold()

    committing = asyncio.ensure_future(
        groups.coordinator.commit_offsets("g", {T0: at(5)}, by=ANYBODY)
    )
    await turns()
    early = offsets(groups)
    groups.log.release()

    assert await committing == {T0: ErrorCode.NONE}
    assert (early, offsets(groups)) == ({}, {T0: 5})


async def test_committed_offsets_survive_a_restart_whole() -> None:
    groups = Groups()
    await groups.coordinator.commit_offsets("g", {T0: at(5), T1: at(6)}, by=ANYBODY)
    await groups.coordinator.commit_offsets("g", {T0: at(7)}, by=ANYBODY)
    before = dict(groups.coordinator.offsets_of("g"))

    groups.restart()

    assert groups.coordinator.offsets_of("g") == before == {T0: at(7), T1: at(6)}


async def test_offsets_of_a_transaction_count_from_its_commit_on() -> None:
    groups = Groups()
    await groups.coordinator.commit_offsets("g", {T0: at(1), T1: at(1)}, by=ANYBODY)

    await groups.coordinator.commit_offsets("g", {T0: at(5)}, by=ANYBODY, producer=STAMP)
    open_here = (offsets(groups), groups.coordinator.is_unstable("g", T0))
    groups.end_transaction(*STAMP, commit=True)

    assert open_here == ({T0: 1, T1: 1}, True)
    assert offsets(groups) == {T0: 5, T1: 1}
    assert not groups.coordinator.is_unstable("g", T0)
    groups.restart()
    assert offsets(groups) == {T0: 5, T1: 1}


@pytest.mark.parametrize("restarts", [False, True])
async def test_offsets_of_an_aborted_transaction_never_count(restarts: bool) -> None:
    groups = Groups()
    await groups.coordinator.commit_offsets("g", {T0: at(5)}, by=ANYBODY, producer=STAMP)
    if restarts:
        groups.restart()
    was_open = groups.coordinator.is_unstable("g", T0)

    groups.end_transaction(*STAMP, commit=False)

    assert was_open
    assert offsets(groups) == {}
    assert not groups.coordinator.is_unstable("g", T0)


async def test_the_later_of_two_commits_in_the_log_counts() -> None:
    groups = Groups()
    await groups.coordinator.commit_offsets("g", {T0: at(5)}, by=ANYBODY, producer=STAMP)
    await groups.coordinator.commit_offsets("g", {T0: at(9)}, by=ANYBODY)

    groups.end_transaction(*STAMP, commit=True)

    assert offsets(groups) == {T0: 9}
    groups.restart()
    assert offsets(groups) == {T0: 9}


async def test_members_of_another_generation_commit_nothing() -> None:
    groups = Groups()
    joined = await join(groups)
    await sync(groups, joined)
    zombie = OffsetCommitter(joined.member_id, joined.generation - 1)

    refused = await groups.coordinator.commit_offsets("g", {T0: at(5)}, by=zombie)
    outside = await groups.coordinator.commit_offsets("g", {T0: at(5)}, by=ANYBODY)
    unknown = await groups.coordinator.commit_offsets("h", {T0: at(5)}, by=zombie)
    member = OffsetCommitter(joined.member_id, joined.generation)
    granted = await groups.coordinator.commit_offsets("g", {T0: at(6)}, by=member)

    assert refused == {T0: ErrorCode.ILLEGAL_GENERATION}
    assert outside == {T0: ErrorCode.UNKNOWN_MEMBER_ID}
    assert unknown == {T0: ErrorCode.GROUP_ID_NOT_FOUND}
    assert granted == {T0: ErrorCode.NONE}
    assert offsets(groups) == {T0: 6}


async def test_a_text_that_is_too_long_refuses_only_its_partition() -> None:
    groups = Groups(GroupLimits(metadata_chars_max=3))
    long = at(5)._replace(metadata="long")

    errors = await groups.coordinator.commit_offsets("g", {T0: long, T1: at(6)}, by=ANYBODY)

    assert errors == {T0: ErrorCode.OFFSET_METADATA_TOO_LARGE, T1: ErrorCode.NONE}
    assert offsets(groups) == {T1: 6}


async def test_a_group_with_members_is_not_deleted_and_an_empty_one_wholly() -> None:
    groups = Groups()
    joined = await join(groups)
    await sync(groups, joined)
    member = OffsetCommitter(joined.member_id, joined.generation)
    await groups.coordinator.commit_offsets("g", {T0: at(5)}, by=member)

    with_members = await groups.coordinator.delete_group("g")
    await groups.coordinator.leave("g", [(joined.member_id, None)])
    without = await groups.coordinator.delete_group("g")

    assert with_members is ErrorCode.NON_EMPTY_GROUP
    assert without is ErrorCode.NONE
    assert await groups.coordinator.delete_group("g") is ErrorCode.GROUP_ID_NOT_FOUND
    groups.restart()
    assert groups.coordinator.find("g") is None
    assert offsets(groups) == {}


async def test_offsets_of_a_topic_that_is_read_are_not_deleted() -> None:
    groups = Groups()
    await groups.coordinator.commit_offsets("g", {T0: at(5), U0: at(5)}, by=ANYBODY)
    await sync(groups, await join(groups))

    error, errors = await groups.coordinator.delete_offsets("g", [T0, U0])

    assert error is ErrorCode.NONE
    assert errors == {T0: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, U0: ErrorCode.NONE}
    groups.restart()
    assert offsets(groups) == {T0: 5}


async def test_deleting_offsets_that_nobody_committed_writes_nothing() -> None:
    groups = Groups()
    await groups.coordinator.commit_offsets("g", {T0: at(5)}, by=ANYBODY)
    end_offset = len(groups.stored.batches)

    error, errors = await groups.coordinator.delete_offsets("g", [U0])

    assert (error, errors) == (ErrorCode.NONE, {U0: ErrorCode.NONE})
    assert len(groups.stored.batches) == end_offset


async def test_offsets_nobody_comes_back_for_expire_with_their_group() -> None:
    groups = Groups(GroupLimits(offset_retention_ms=1_000_000, expiry_interval_ms=1_000))
    await groups.coordinator.commit_offsets("g", {T0: at(5)}, by=ANYBODY)

    groups.later(999_000)
    kept = offsets(groups)
    groups.later(2_000)
    await turns()

    assert kept == {T0: 5}
    assert offsets(groups) == {}
    assert groups.coordinator.find("g") is None


async def test_offsets_of_members_at_work_do_not_expire() -> None:
    groups = Groups(GroupLimits(offset_retention_ms=10_000, expiry_interval_ms=1_000))
    joined = await join(groups)
    await sync(groups, joined)
    member = OffsetCommitter(joined.member_id, joined.generation)
    await groups.coordinator.commit_offsets("g", {T0: at(5), U0: at(5)}, by=member)

    for _ in range(5):
        groups.later(5_000)
        groups.coordinator.heartbeat("g", joined.member_id, joined.generation)
        await turns()

    assert offsets(groups) == {T0: 5}


async def test_a_deleted_topic_takes_its_offsets_along() -> None:
    groups = Groups()
    await groups.coordinator.commit_offsets("g", {T0: at(5), U0: at(6)}, by=ANYBODY)

    groups.coordinator.on_partitions_deleted([T0, T1])

    assert offsets(groups) == {U0: 6}
    await turns()
    groups.restart()
    assert offsets(groups) == {U0: 6}


async def test_members_that_wait_are_told_when_their_group_moves_away() -> None:
    groups = Groups()
    await sync(groups, await join(groups))
    waiting = asyncio.ensure_future(join(groups))
    await turns()

    groups.coordinator.unload(0)

    assert (await waiting).error is ErrorCode.NOT_COORDINATOR
    assert groups.coordinator.check("g") is ErrorCode.NOT_COORDINATOR
    assert (await join(groups)).error is ErrorCode.NOT_COORDINATOR
    assert groups.coordinator.heartbeat("g", "m", 1) is ErrorCode.NOT_COORDINATOR
    refused = await groups.coordinator.commit_offsets("g", {T0: at(1)}, by=ANYBODY)
    assert refused == {T0: ErrorCode.NOT_COORDINATOR}


@pytest.mark.parametrize("set_back_ms", [0, 3_600_000])
async def test_a_member_that_falls_silent_is_put_out_by_time_alone(set_back_ms: int) -> None:
    groups = Groups()
    joined = await join(groups)
    await sync(groups, joined)
    groups.world.set_back_ms = set_back_ms

    due_ms = groups.coordinator.next_deadline_ms()
    assert due_ms - groups.world.monotonic_ms() == 10_000
    groups.later(10_000)

    group = groups.coordinator.find("g")
    assert group is not None and group.state is GroupState.EMPTY


async def test_a_refused_join_leaves_no_group_behind() -> None:
    groups = Groups()
    nothing = Joining("", None, "c", "/127.0.0.1", "consumer", (), 10_000, 60_000)

    answer = await groups.coordinator.join("g", nothing)

    assert answer.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert list(groups.coordinator.groups()) == []


@pytest.mark.parametrize("session_ms", [5_999, 1_800_001])
async def test_a_session_has_limits(session_ms: int) -> None:
    groups = Groups()
    asked = Joining("", None, "c", "/h", "consumer", (JoinProtocol("r", b""),), session_ms, 60_000)

    answer = await groups.coordinator.join("g", asked)

    assert answer.error is ErrorCode.INVALID_SESSION_TIMEOUT


async def test_a_group_has_a_name() -> None:
    groups = Groups()

    assert (await groups.coordinator.join("", joining())).error is ErrorCode.INVALID_GROUP_ID
    assert (await groups.coordinator.leave("", []))[0] is ErrorCode.INVALID_GROUP_ID
    assert groups.coordinator.heartbeat("", "m", 1) is ErrorCode.INVALID_GROUP_ID
    assert (await groups.coordinator.delete_offsets("", []))[0] is ErrorCode.INVALID_GROUP_ID
