"""Kafka's records of groups and their offsets in `__consumer_offsets`."""

from collections import deque
from collections.abc import Callable, Sequence

from headwater.core_log.groups.membership import StoredGroup, StoredMember
from headwater.core_log.groups.offsets import NO_TOPIC_ID, CommittedOffset
from headwater.core_log.model.log import ProducerStamp, StateLog, TopicPartition
from headwater.core_log.protocol.message import decode_record, encode_record
from headwater.core_log.protocol.messages.control_records import ControlRecordKey, ControlRecordType
from headwater.core_log.protocol.messages.group_records import (
    GROUP_METADATA_KEY,
    OFFSET_COMMIT_KEY,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)

GROUP_VERSION = 3
OFFSET_VERSION, EXPIRING_OFFSET_VERSION, TOPIC_ID_VERSION = 3, 1, 4


def encode_group_key(group_id: str) -> bytes:
    return encode_record(GroupMetadataKey(group=group_id), GROUP_METADATA_KEY)


def encode_offset_key(group_id: str, partition: TopicPartition) -> bytes:
    key = OffsetCommitKey(group=group_id, topic=partition.topic, partition=partition.partition)
    return encode_record(key, OFFSET_COMMIT_KEY)


def encode_offset(committed: CommittedOffset) -> bytes:
    version = OFFSET_VERSION
    if committed.expires_ms >= 0:
        version = EXPIRING_OFFSET_VERSION
    elif committed.topic_id != NO_TOPIC_ID:
        version = TOPIC_ID_VERSION
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.committed_ms,
        expire_timestamp=committed.expires_ms,
        topic_id=committed.topic_id,
    )
    return encode_record(value, version)


def decode_offset(data: bytes) -> CommittedOffset:
    value = decode_record(OffsetCommitValue, data)
    return CommittedOffset(
        offset=value.offset,
        leader_epoch=value.leader_epoch,
        metadata=value.metadata,
        committed_ms=value.commit_timestamp,
        expires_ms=value.expire_timestamp,
        topic_id=value.topic_id,
    )


def encode_group(stored: StoredGroup) -> bytes:
    members = tuple(
        MemberMetadata(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout=member.rebalance_timeout_ms,
            session_timeout=member.session_timeout_ms,
            subscription=member.metadata,
            assignment=member.assignment,
        )
        for member in stored.members
    )
    value = GroupMetadataValue(
        protocol_type=stored.protocol_type,
        generation=stored.generation,
        protocol=stored.protocol_name,
        leader=stored.leader,
        current_state_timestamp=stored.state_since_ms,
        members=members,
    )
    return encode_record(value, GROUP_VERSION)


def decode_group(data: bytes) -> StoredGroup:
    value = decode_record(GroupMetadataValue, data)
    members = tuple(
        StoredMember(
            member_id=member.member_id,
            instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            # The oldest groups used the session timeout for a rebalance.
            rebalance_timeout_ms=member.session_timeout
            if member.rebalance_timeout < 0
            else member.rebalance_timeout,
            session_timeout_ms=member.session_timeout,
            metadata=bytes(member.subscription),
            assignment=bytes(member.assignment),
        )
        for member in value.members
    )
    return StoredGroup(
        protocol_type=value.protocol_type,
        generation=value.generation,
        protocol_name=value.protocol,
        leader=value.leader,
        state_since_ms=value.current_state_timestamp,
        members=members,
    )


def is_commit_marker(key: bytes) -> bool:
    return decode_record(ControlRecordKey, key).type == ControlRecordType.COMMIT


StateRecord = tuple[bytes | None, bytes | None]


class DurableAppend:
    """Appends and applies effects in log order, whichever request waits: nothing is visible before
    it is on disk, and everything on disk becomes visible."""

    def __init__(self, log: StateLog) -> None:
        self._log = log
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()

    def append(
        self,
        records: Sequence[StateRecord],
        effect: Callable[[int], None],
        *,
        producer: ProducerStamp | None = None,
    ) -> int:
        """Appends records and returns the entry to `settle`; the effect gets the offset of the
        first record."""
        end_offset = self._log.append(records, producer=producer)
        base_offset = end_offset - len(records)
        self._waiting.append((end_offset, lambda: effect(base_offset)))
        return end_offset

    async def settle(self, end_offset: int) -> None:
        await self._log.durable(end_offset)
        while self._waiting and self._waiting[0][0] <= end_offset:
            self._waiting.popleft()[1]()
