"""The data that members of a consumer group exchange through JoinGroup and SyncGroup."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from headwater.core_log.protocol.fields import IGNORABLE, Int32, Since
from headwater.core_log.protocol.message import record, struct


@record(versions=(0, 3), reads_newer=True)
class ConsumerProtocolSubscription:
    topics: Sequence[str] = ()
    user_data: bytes | None = None
    owned_partitions: Annotated[Sequence[TopicPartition], Since(1), IGNORABLE] = ()
    generation_id: Annotated[Int32, Since(2), IGNORABLE] = -1
    rack_id: Annotated[str | None, Since(3), IGNORABLE] = None


@record(versions=(0, 3), reads_newer=True)
class ConsumerProtocolAssignment:
    assigned_partitions: Sequence[TopicPartition] = ()
    user_data: bytes | None = None


@struct
class TopicPartition:
    topic: str = ""
    partitions: Sequence[Int32] = ()
