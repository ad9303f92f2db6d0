"""AlterPartition (key 56), versions 2 to 3: a partition's leader proposes another in-sync set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated
from uuid import UUID

from headwater.core_log.protocol.fields import IGNORABLE, Int8, Int16, Int32, Int64, Since, Until
from headwater.core_log.protocol.message import Request, request, response, struct
from headwater.core_log.protocol.primitives import ZERO_UUID


@request(api_key=56, versions=(2, 3), flexible_from=0)
class AlterPartitionRequest(Request["AlterPartitionResponse"]):
    broker_id: Int32 = 0
    broker_epoch: Int64 = -1
    topics: Sequence[AlterPartitionTopic] = ()


@struct
class AlterPartitionTopic:
    topic_id: Annotated[UUID, IGNORABLE] = ZERO_UUID
    partitions: Sequence[AlteredPartition] = ()


@struct
class AlteredPartition:
    partition_index: Int32 = 0
    leader_epoch: Int32 = 0
    new_isr: Annotated[Sequence[Int32], Until(2)] = ()
    new_isr_with_epochs: Annotated[Sequence[InSyncBroker], Since(3)] = ()
    leader_recovery_state: Int8 = 0
    partition_epoch: Int32 = 0


@struct
class InSyncBroker:
    broker_id: Int32 = 0
    broker_epoch: Int64 = -1


@response(versions=(2, 3), flexible_from=0)
class AlterPartitionResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    topics: Sequence[AlterPartitionTopicResponse] = ()


@struct
class AlterPartitionTopicResponse:
    topic_id: Annotated[UUID, IGNORABLE] = ZERO_UUID
    partitions: Sequence[AlteredPartitionResponse] = ()


@struct
class AlteredPartitionResponse:
    partition_index: Int32 = 0
    error_code: Int16 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0
    isr: Sequence[Int32] = ()
    leader_recovery_state: Annotated[Int8, IGNORABLE] = 0
    partition_epoch: Int32 = 0
