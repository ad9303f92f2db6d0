"""The records of `__consumer_offsets`: keys and values of committed offsets and of groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated
from uuid import UUID

from headwater.core_log.protocol.fields import IGNORABLE, Int32, Int64, Since, Tagged, Until
from headwater.core_log.protocol.message import decode_record, record, record_version, struct
from headwater.core_log.protocol.primitives import ZERO_UUID

OFFSET_COMMIT_KEY, GROUP_METADATA_KEY = 1, 2
"""The number before a key of this topic is called its version, but identifies its kind."""


@record(versions=(0, OFFSET_COMMIT_KEY))
class OffsetCommitKey:
    group: str = ""
    topic: str = ""
    partition: Int32 = 0


@record(versions=(0, 4), flexible_from=4)
class OffsetCommitValue:
    offset: Int64 = 0
    leader_epoch: Annotated[Int32, Since(3), IGNORABLE] = -1
    metadata: str = ""
    commit_timestamp: Int64 = 0
    expire_timestamp: Annotated[Int64, Since(1), Until(1), IGNORABLE] = -1
    topic_id: Annotated[UUID, Since(4), Tagged(0), IGNORABLE] = ZERO_UUID


@record(versions=(GROUP_METADATA_KEY, GROUP_METADATA_KEY))
class GroupMetadataKey:
    group: str = ""


@record(versions=(0, 4), flexible_from=4)
class GroupMetadataValue:
    protocol_type: str = ""
    generation: Int32 = 0
    protocol: str | None = ""
    leader: str | None = ""
    current_state_timestamp: Annotated[Int64, Since(2), IGNORABLE] = -1
    members: Sequence[MemberMetadata] = ()


@struct
class MemberMetadata:
    member_id: str = ""
    group_instance_id: Annotated[str | None, Since(3), IGNORABLE] = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout: Annotated[Int32, Since(1), IGNORABLE] = -1
    session_timeout: Int32 = 0
    subscription: bytes = b""
    assignment: bytes = b""


def decode_group_key(data: bytes | memoryview) -> OffsetCommitKey | GroupMetadataKey | None:
    """Returns the key; None for the kinds of the newer group protocols (KIP-848 and later)."""
    kind = record_version(data)
    if kind > GROUP_METADATA_KEY:
        return None
    if kind == GROUP_METADATA_KEY:
        return decode_record(GroupMetadataKey, data)
    return decode_record(OffsetCommitKey, data)
