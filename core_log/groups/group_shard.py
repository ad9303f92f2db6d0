"""One partition of `__consumer_offsets`: its groups and their committed offsets."""

from asyncio import Future
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace

from headwater.core_log.foundation.errors import HeadwaterError
from headwater.core_log.foundation.units import LARGEST
from headwater.core_log.groups.group import Group
from headwater.core_log.groups.group_log import (
    DurableAppend,
    decode_group,
    decode_offset,
    encode_group,
    encode_group_key,
    encode_offset,
    encode_offset_key,
    is_commit_marker,
)
from headwater.core_log.groups.membership import Effects, GroupState, JoinAnswer, StoredGroup
from headwater.core_log.groups.offsets import CommittedOffset, GroupOffsets
from headwater.core_log.model.log import CoordinatorLog, ProducerStamp, StoredRecord, TopicPartition
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.group_records import OffsetCommitKey, decode_group_key
from headwater.core_log.records.batch_header import BatchHeader

StoredGroups = dict[str, StoredGroup]


class GroupShard:
    """A shard of groups. It reads its log once; later changes are stored first."""

    def __init__(
        self,
        log: CoordinatorLog,
        *,
        initial_delay_ms: int,
        size_max: int,
        unix_time_of_0: Callable[[], int],
    ) -> None:
        """`unix_time_of_0`: what to add to the times of groups for those that are stored."""
        self._unix_time_of_0 = unix_time_of_0
        self.log, self._journal = log, DurableAppend(log)
        self._initial_delay_ms, self._size_max = initial_delay_ms, size_max
        self.offsets = GroupOffsets()
        self.groups: dict[str, Group] = {}
        self.is_replaced = False
        """Another broker has the partition, or it was read again: nobody is answered from here."""

    def replay(self, now_ms: int) -> Iterator[None]:
        """Reads the log batch by batch, so that the caller may let others work in between."""
        stored: StoredGroups = {}
        for batch in self.log.read():
            for record in batch.records:
                if record.key is not None:
                    self._replay(batch.header, record, record.key, stored)
            yield
        for group_id, each in stored.items():
            since_ms = each.state_since_ms - self._unix_time_of_0()
            restored = replace(each, state_since_ms=since_ms)
            self._enter(Group.restore(group_id, restored, now_ms=now_ms))
        for group_id in sorted(self.offsets.groups() - stored.keys()):
            self.create(group_id)

    def _replay(
        self, header: BatchHeader, record: StoredRecord, data: bytes, stored: StoredGroups
    ) -> None:
        if header.is_control:
            self.offsets.end_transaction(header.producer_id, commit=is_commit_marker(data))
            return
        key = decode_group_key(data)
        if key is None:
            return
        if not isinstance(key, OffsetCommitKey):
            stored.pop(key.group, None)
            if record.value is not None:
                stored[key.group] = decode_group(record.value)
            return
        partition = TopicPartition(key.topic, key.partition)
        if record.value is None:
            self.offsets.delete(key.group, partition, log_offset=record.offset)
        elif header.is_transactional:
            offset = decode_offset(record.value)
            self.offsets.commit_pending(
                header.producer_id, key.group, partition, offset, log_offset=record.offset
            )
        else:
            offset = decode_offset(record.value)
            self.offsets.commit(key.group, partition, offset, log_offset=record.offset)

    def create(self, group_id: str) -> Group:
        return self._enter(Group(group_id))

    def _enter(self, group: Group) -> Group:
        group.size_max = self._size_max
        group.rebalance.initial_delay_ms = self._initial_delay_ms
        self.groups[group.group_id] = group
        return group

    def drop_if_unused(self, group: Group) -> None:
        """Removes a group that was never stored."""
        is_new = group.state is GroupState.EMPTY and group.generation == 0
        if is_new and not group.rebalance.expected and not self._has_offsets(group.group_id):
            self.groups.pop(group.group_id, None)

    async def carry_out(self, group: Group, effects: Effects, now_ms: int) -> None:
        """Stores first, then answers."""
        if effects.store is not None:
            try:
                await self._journal.settle(self._append_group(group, effects.store, now_ms))
            except HeadwaterError:
                refused = self.error_of_failure
                deliver(group.on_store_failed(effects.store, refused, now_ms=now_ms))
                effects.answers = [
                    (ticket, JoinAnswer(answer.member_id, refused))
                    if isinstance(answer, JoinAnswer) and answer.error is ErrorCode.NONE
                    else (ticket, answer)
                    for ticket, answer in effects.answers
                ]
        deliver(effects)

    def carry_out_unheard(self, group: Group, effects: Effects, now_ms: int) -> None:
        """Stores the effects of a deadline: no request waits for them, and they may be lost."""
        if effects.store is not None:
            with suppress(HeadwaterError):
                self._append_group(group, effects.store, now_ms)
        deliver(effects)

    @property
    def error_of_failure(self) -> ErrorCode:
        """The answer to a request whose records cannot be stored: the client asks again, or asks
        who coordinates now."""
        moved, broken = ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE
        return moved if self.is_replaced else broken

    def replace(self) -> None:
        """Answers everybody who waits that these groups are not coordinated here."""
        self.is_replaced = True
        for group in self.groups.values():
            deliver(group.on_unload())

    def _append_group(self, group: Group, stored: StoredGroup, now_ms: int) -> int:
        since_ms = stored.state_since_ms + self._unix_time_of_0()
        value = encode_group(replace(stored, state_since_ms=since_ms))
        record = (encode_group_key(group.group_id), value)
        return self._journal.append(
            [record], lambda _: deliver(group.on_stored(stored, now_ms=now_ms))
        )

    async def commit(
        self, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> None:
        def take_effect(base_offset: int) -> None:
            for index, (partition, offset) in enumerate(offsets.items()):
                self.offsets.commit(group_id, partition, offset, log_offset=base_offset + index)

        records = _offset_records(group_id, offsets)
        await self._journal.settle(self._journal.append(records, take_effect))

    def commit_in_transaction(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, CommittedOffset],
        producer: ProducerStamp,
    ) -> int:
        """Writes offsets that count from the transaction's end on; returns the log's end."""
        records = _offset_records(group_id, offsets)
        end_offset = self.log.append(records, producer=producer)
        for index, (partition, offset) in enumerate(offsets.items(), end_offset - len(records)):
            self.offsets.commit_pending(
                producer.producer_id, group_id, partition, offset, log_offset=index
            )
        return end_offset

    async def delete_offsets(self, group_id: str, partitions: Collection[TopicPartition]) -> None:
        if partitions:
            end_offset = self._append_deletion(group_id, partitions, with_group=False)
            await self._journal.settle(end_offset)

    async def delete_group(self, group: Group) -> None:
        partitions = self.offsets.partitions_of(group.group_id)
        end_offset = self._append_deletion(group.group_id, partitions, with_group=True)
        self._retire(group)
        await self._journal.settle(end_offset)

    def _retire(self, group: Group) -> None:
        del self.groups[group.group_id]
        deliver(group.on_unload())

    def _append_deletion(
        self, group_id: str, partitions: Collection[TopicPartition], *, with_group: bool
    ) -> int:
        partitions = sorted(partitions)

        def take_effect(base_offset: int) -> None:
            for index, partition in enumerate(partitions):
                self.offsets.delete(group_id, partition, log_offset=base_offset + index)

        records = [(encode_offset_key(group_id, partition), None) for partition in partitions]
        if with_group:
            records.append((encode_group_key(group_id), None))
        return self._journal.append(records, take_effect)

    def expire(self, now_ms: int, retention_ms: int) -> int:
        """Removes expired offsets, then groups without any; returns the end to `settle`."""
        end_offset = 0
        for group_id in sorted(self.offsets.groups() - self.groups.keys()):
            self.create(group_id)
        for group in list(self.groups.values()):
            is_idle = group.state is GroupState.EMPTY and group.rebalance.protocol_type is not None
            since_ms = group.rebalance.state_since_ms + self._unix_time_of_0()
            expired = [
                partition
                for partition in self.offsets.find_expired(
                    group.group_id,
                    now_ms=now_ms,
                    retention_ms=retention_ms,
                    unused_since_ms=since_ms if is_idle else None,
                )
                if not group.is_subscribed_to(partition.topic)
            ]
            left = self.offsets.partitions_of(group.group_id) - set(expired)
            is_over = not left and group.state is GroupState.EMPTY and not group.rebalance.expected
            if expired or is_over:
                end_offset = self._append_deletion(group.group_id, expired, with_group=is_over)
            if is_over:
                self._retire(group)
        return end_offset

    def forget_partitions(self, gone: Collection[TopicPartition]) -> int:
        """Removes offsets of a deleted topic at once, because they mean nothing for a new topic of
        that name; returns the end to `settle`."""
        end_offset = 0
        found = {
            group_id: self.offsets.partitions_of(group_id).intersection(gone)
            for group_id in sorted(self.offsets.groups())
        }
        for group_id, here in found.items():
            for partition in here:
                self.offsets.delete(group_id, partition, log_offset=LARGEST)
        for group_id, here in found.items():
            if here:
                end_offset = self._append_deletion(group_id, here, with_group=False)
        return end_offset

    async def settle(self, end_offset: int) -> None:
        """Lets everything below take effect once it is on disk."""
        with suppress(HeadwaterError):  # whoever reads the partition next finds it
            await self._journal.settle(end_offset)

    def _has_offsets(self, group_id: str) -> bool:
        return bool(self.offsets.partitions_of(group_id))


def deliver(effects: Effects) -> None:
    """Answers a ticket, which is a future; a caller that gave up has cancelled it."""
    for ticket, answer in effects.answers:
        assert isinstance(ticket, Future), "tickets of this broker are futures"
        if not ticket.done():
            ticket.set_result(answer)


def _offset_records(
    group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]
) -> list[tuple[bytes | None, bytes | None]]:
    return [
        (encode_offset_key(group_id, partition), encode_offset(offset))
        for partition, offset in offsets.items()
    ]
