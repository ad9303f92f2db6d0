"""The consumer groups of this broker: storage, deadlines, and requests of the handlers."""

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from uuid import UUID

from headwater.core_log.foundation.clock import Clock
from headwater.core_log.foundation.errors import HeadwaterError, InvalidProducerEpoch
from headwater.core_log.groups.group import CONSUMER_PROTOCOL, Group
from headwater.core_log.groups.group_shard import GroupShard
from headwater.core_log.groups.membership import (
    NO_MEMBER,
    GroupState,
    JoinAnswer,
    Joining,
    SyncAnswer,
    Syncing,
)
from headwater.core_log.groups.offsets import CommittedOffset
from headwater.core_log.model.log import CoordinatorLog, ProducerStamp, TopicPartition
from headwater.core_log.protocol.error_codes import ErrorCode


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """Limits of groups, with Kafka's defaults if Kafka has them."""

    session_timeout_ms_min: int = 6_000
    session_timeout_ms_max: int = 1_800_000
    initial_delay_ms: int = 0
    """How long a new, empty group waits for more members before its first rebalance."""
    size_max: int = 1 << 31
    metadata_chars_max: int = 4_096
    """Longest metadata text that a client may store with an offset."""
    offset_retention_ms: int = 7 * 24 * 3_600_000
    """How long offsets are kept after the last use of their group."""
    expiry_interval_ms: int = 600_000


@dataclass(frozen=True, slots=True)
class OffsetCommitter:
    """The member of a generation that commits offsets; by default a client outside the group."""

    member_id: str = NO_MEMBER
    generation: int = -1
    instance_id: str | None = None


class GroupCoordinator:
    """Coordinates groups. A group's partition depends on the hash of its name; `load` takes over a
    partition's groups."""

    def __init__(
        self,
        *,
        partition_count: Callable[[], int],
        open_state_log: Callable[[int], CoordinatorLog],
        clock: Clock,
        random: Random,
        limits: GroupLimits | None = None,
        has_short_cuts: Callable[[], bool] = lambda: True,
    ) -> None:
        """`has_short_cuts`: see `TransactionPartitions`."""
        self._partition_count = partition_count
        self._open_state_log = open_state_log
        self._clock, self._random = clock, random
        self._has_short_cuts = has_short_cuts
        self._limits = limits or GroupLimits()
        self._shards: dict[int, GroupShard] = {}
        self._loading: set[int] = set()
        self.works = dict[asyncio.Future[None], None]()
        """Work that no request waits for; it ends with the coordinator."""
        self._expiry_due_ms = clock.monotonic_ms() + self._limits.expiry_interval_ms

    def load(self, index: int) -> None:
        for _ in self.load_in_steps(index):
            pass

    def begin_load(self, index: int) -> None:
        """Called when this broker is elected: requests are refused until the partition is read."""
        self.unload(index)
        self._loading.add(index)

    def load_in_steps(self, index: int) -> Iterator[None]:
        """Reads a partition's groups step by step, and serves them once this is exhausted."""
        shard = GroupShard(
            self._open_state_log(index),
            initial_delay_ms=self._limits.initial_delay_ms,
            size_max=self._limits.size_max,
            unix_time_of_0=lambda: self._clock.now_ms() - self._clock.monotonic_ms(),
        )
        yield from shard.replay(self._clock.monotonic_ms())
        self.unload(index)
        self._shards[index] = shard

    def unload(self, index: int) -> None:
        """Forgets these groups, which another broker coordinates now; waiting clients get an
        error."""
        self._loading.discard(index)
        shard = self._shards.pop(index, None)
        if shard is not None:
            shard.replace()

    def check(self, group_id: str) -> ErrorCode:
        """Checks whether this broker coordinates the group, and has read it."""
        index = self.partition_of(group_id)
        if index in self._shards:
            return ErrorCode.NONE
        is_loading = index in self._loading
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if is_loading else ErrorCode.NOT_COORDINATOR

    def is_read(self, index: int) -> bool:
        """Whether the groups of this partition are coordinated here."""
        return index in self._shards

    @property
    def is_loading(self) -> bool:
        """Whether some of the groups of this broker are not read yet."""
        return bool(self._loading)

    def partition_of(self, group_id: str) -> int:
        return partition_of(group_id, self._partition_count())

    async def join(self, group_id: str, joining: Joining) -> JoinAnswer:
        error = self._check_name(group_id)
        limits, timeout_ms = self._limits, joining.session_timeout_ms
        if error is ErrorCode.NONE and not (
            limits.session_timeout_ms_min <= timeout_ms <= limits.session_timeout_ms_max
        ):
            error = ErrorCode.INVALID_SESSION_TIMEOUT
        if error is not ErrorCode.NONE:
            return JoinAnswer(joining.member_id, error)
        shard, now_ms = self._shard(group_id), self._clock.monotonic_ms()
        group = self.find(group_id)
        if group is None:
            if joining.member_id != NO_MEMBER:
                return JoinAnswer(joining.member_id, ErrorCode.UNKNOWN_MEMBER_ID)
            group = shard.create(group_id)
        ticket = asyncio.get_running_loop().create_future()
        member_id = self._new_member_id(joining)
        effects = group.join(joining, ticket, now_ms=now_ms, new_member_id=member_id)
        shard.drop_if_unused(group)
        await shard.carry_out(group, effects, now_ms)
        answer: JoinAnswer = await ticket
        return answer

    async def sync(self, group_id: str, syncing: Syncing) -> SyncAnswer:
        group, error = self._member_group(group_id)
        if group is None:
            # Java's consumer fails at an answer that a group is being read; it can join again.
            is_loading = error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return SyncAnswer(ErrorCode.REBALANCE_IN_PROGRESS if is_loading else error)
        now_ms = self._clock.monotonic_ms()
        ticket = asyncio.get_running_loop().create_future()
        effects = group.sync(syncing, ticket, now_ms=now_ms)
        await self._shard(group_id).carry_out(group, effects, now_ms)
        answer: SyncAnswer = await ticket
        return answer

    def heartbeat(
        self, group_id: str, member_id: str, generation: int, *, instance_id: str | None = None
    ) -> ErrorCode:
        group, error = self._member_group(group_id)
        if group is None:
            # As in Kafka: a group that is being read gives its members their whole session.
            is_loading = error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return ErrorCode.NONE if is_loading else error
        return group.heartbeat(
            member_id, generation, instance_id=instance_id, now_ms=self._clock.monotonic_ms()
        )

    async def leave(
        self, group_id: str, leaving: Sequence[tuple[str, str | None]]
    ) -> tuple[ErrorCode, list[ErrorCode]]:
        """Returns an error of the whole request, and one for each (member id, instance id)."""
        error = self._check_name(group_id)
        if error is not ErrorCode.NONE:
            return error, []
        group = self.find(group_id)
        if group is None:
            return ErrorCode.NONE, [ErrorCode.UNKNOWN_MEMBER_ID] * len(leaving)
        now_ms = self._clock.monotonic_ms()
        errors, effects = group.leave(leaving, now_ms=now_ms)
        await self._shard(group_id).carry_out(group, effects, now_ms)
        return ErrorCode.NONE, errors

    async def commit_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, CommittedOffset],
        *,
        by: OffsetCommitter,
        producer: ProducerStamp | None = None,
    ) -> dict[TopicPartition, ErrorCode]:
        """Commits offsets. In a producer's transaction they count, and are durable, from its commit
        on."""
        if not offsets:
            return {}
        error = self._check_committer(group_id, by, is_transactional=producer is not None)
        if error is not ErrorCode.NONE:
            return dict.fromkeys(offsets, error)
        shard, limit = self._shard(group_id), self._limits.metadata_chars_max
        fitting = {at: each for at, each in offsets.items() if len(each.metadata) <= limit}
        try:
            if fitting and producer is not None:
                end_offset = shard.commit_in_transaction(group_id, fitting, producer)
                if not self._has_short_cuts():
                    await shard.log.durable(end_offset)
            elif fitting:
                await shard.commit(group_id, fitting)
        except InvalidProducerEpoch:
            return dict.fromkeys(offsets, ErrorCode.INVALID_PRODUCER_EPOCH)
        except HeadwaterError:
            return dict.fromkeys(offsets, shard.error_of_failure)
        too_large = ErrorCode.OFFSET_METADATA_TOO_LARGE
        return {at: ErrorCode.NONE if at in fitting else too_large for at in offsets}

    async def confirm(self, group_id: str) -> ErrorCode:
        """Returns NONE once it is sure that no other broker had taken over the group before: an
        answer with its offsets waits for it."""
        shard = self._shards.get(self.partition_of(group_id))
        try:
            if shard is not None and not self._has_short_cuts():
                await shard.log.confirm_leadership()
        except HeadwaterError:
            return shard.error_of_failure if shard else ErrorCode.NOT_COORDINATOR
        return self.check(group_id)

    def offsets_of(self, group_id: str) -> Mapping[TopicPartition, CommittedOffset]:
        return self._shard(group_id).offsets.of(group_id)

    def is_unstable(self, group_id: str, partition: TopicPartition) -> bool:
        """Whether an open transaction has an uncommitted offset of it."""
        return self._shard(group_id).offsets.is_pending(group_id, partition)

    async def delete_offsets(
        self, group_id: str, partitions: Collection[TopicPartition]
    ) -> tuple[ErrorCode, dict[TopicPartition, ErrorCode]]:
        error = self._check_name(group_id)
        if error is not ErrorCode.NONE:
            return error, {}
        group = self.find(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND, {}
        is_consumer = group.rebalance.protocol_type == CONSUMER_PROTOCOL
        if group.state is not GroupState.EMPTY and not is_consumer:
            return ErrorCode.NON_EMPTY_GROUP, {}
        shard = self._shard(group_id)
        in_use = {each for each in partitions if group.is_subscribed_to(each.topic)}
        known = shard.offsets.partitions_of(group_id)
        try:
            await shard.delete_offsets(group_id, (set(partitions) - in_use) & known)
        except HeadwaterError:
            return shard.error_of_failure, {}
        subscribed = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        return ErrorCode.NONE, {
            each: subscribed if each in in_use else ErrorCode.NONE for each in partitions
        }

    async def delete_group(self, group_id: str) -> ErrorCode:
        """Deletes a group without members; one without a name has offsets, and can be deleted."""
        error = self.check(group_id)
        if error is not ErrorCode.NONE:
            return error
        group = self.find(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if group.state is not GroupState.EMPTY:
            return ErrorCode.NON_EMPTY_GROUP
        shard = self._shard(group_id)
        try:
            await shard.delete_group(group)
        except HeadwaterError:
            return shard.error_of_failure
        return ErrorCode.NONE

    def groups(self) -> Iterator[Group]:
        for shard in self._shards.values():
            yield from shard.groups.values()

    def find(self, group_id: str) -> Group | None:
        """Returns the group; None also if another broker would have it."""
        shard = self._shards.get(self.partition_of(group_id))
        return None if shard is None else shard.groups.get(group_id)

    def on_transaction_end(self, index: int, producer_id: int, *, commit: bool) -> None:
        """Called after a marker was written to this partition of `__consumer_offsets`."""
        shard = self._shards.get(index)
        if shard is not None:
            shard.offsets.end_transaction(producer_id, commit=commit)

    def on_partitions_deleted(self, partitions: Collection[TopicPartition]) -> None:
        for shard in self._shards.values():
            with suppress(HeadwaterError):  # whoever reads them next forgets them
                self._settle(shard, shard.forget_partitions(partitions))

    def forget_deleted(self, index: int, exists: Callable[[TopicPartition], bool]) -> None:
        """Called once this partition is read, and may be written: its offsets of topics that were
        deleted meanwhile, or in vain, mean nothing for later topics of their names."""
        shard = self._shards.get(index)
        if shard is not None:
            known = {
                at for group in shard.offsets.groups() for at in shard.offsets.partitions_of(group)
            }
            with suppress(HeadwaterError):
                self._settle(shard, shard.forget_partitions({at for at in known if not exists(at)}))

    def _settle(self, shard: GroupShard, end_offset: int) -> None:
        """Waits for what no request waits for."""
        if end_offset:
            work = asyncio.ensure_future(shard.settle(end_offset))
            self.works[work] = None
            work.add_done_callback(self.works.pop)

    def tick(self, now_ms: int) -> None:
        """Handles deadlines by a time that is never set back: a silent member would stay."""
        for shard in self._shards.values():
            for group in list(shard.groups.values()):
                deadline_ms = group.next_deadline_ms()
                if deadline_ms is not None and deadline_ms <= now_ms:
                    shard.carry_out_unheard(group, group.on_tick(now_ms), now_ms)
            if now_ms >= self._expiry_due_ms:
                with suppress(HeadwaterError):  # the next round tries again
                    kept_ms = self._limits.offset_retention_ms
                    self._settle(shard, shard.expire(self._clock.now_ms(), kept_ms))
        if now_ms >= self._expiry_due_ms:
            self._expiry_due_ms = now_ms + self._limits.expiry_interval_ms

    def next_deadline_ms(self) -> int:
        deadlines = (group.next_deadline_ms() for group in self.groups())
        return min((each for each in deadlines if each is not None), default=self._expiry_due_ms)

    def _check_committer(
        self, group_id: str, by: OffsetCommitter, *, is_transactional: bool
    ) -> ErrorCode:
        error = self.check(group_id)
        if error is not ErrorCode.NONE:
            return error
        group = self.find(group_id)
        if group is None:
            if by.generation >= 0:
                return (
                    ErrorCode.ILLEGAL_GENERATION
                    if is_transactional
                    else ErrorCode.GROUP_ID_NOT_FOUND
                )
            group = self._shard(group_id).create(group_id)
        error = group.check_offset_commit(
            by.member_id, by.instance_id, by.generation, is_transactional=is_transactional
        )
        if error is ErrorCode.NONE and not is_transactional:
            group.on_offset_commit(by.member_id, now_ms=self._clock.monotonic_ms())
        return error

    def _check_name(self, group_id: str) -> ErrorCode:
        return self.check(group_id) if group_id else ErrorCode.INVALID_GROUP_ID

    def _member_group(self, group_id: str) -> tuple[Group | None, ErrorCode]:
        """Returns an existing group; members cannot name others."""
        error = self._check_name(group_id)
        if error is not ErrorCode.NONE:
            return None, error
        return self.find(group_id), ErrorCode.UNKNOWN_MEMBER_ID

    def _shard(self, group_id: str) -> GroupShard:
        return self._shards[self.partition_of(group_id)]

    def _new_member_id(self, joining: Joining) -> str:
        unique = UUID(int=self._random.getrandbits(128), version=4)
        return f"{joining.instance_id or joining.client_id}-{unique}"


INT_MAX = 0x7FFFFFFF


@lru_cache(1_024)
def partition_of(name: str, partition_count: int) -> int:
    """Returns Java's `String.hashCode`, made positive, modulo the partition count."""
    hash_code = 0
    units = name.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        hash_code = (hash_code * 31 + (high << 8 | low)) & 0xFFFFFFFF
    signed = hash_code - (1 << 32) if hash_code > INT_MAX else hash_code
    return (0 if signed == -INT_MAX - 1 else abs(signed)) % partition_count
