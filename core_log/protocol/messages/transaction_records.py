"""The records of `__transaction_state`: one key and value per transactional id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from headwater.core_log.protocol.fields import Int8, Int16, Int32, Int64, Since, Tagged
from headwater.core_log.protocol.message import record, struct


@record(versions=(0, 0))
class TransactionLogKey:
    transactional_id: str = ""


@record(versions=(0, 1), flexible_from=1)
class TransactionLogValue:
    producer_id: Int64 = 0
    previous_producer_id: Annotated[Int64, Since(1), Tagged(0)] = -1
    next_producer_id: Annotated[Int64, Since(1), Tagged(1)] = -1
    producer_epoch: Int16 = 0
    next_producer_epoch: Annotated[Int16, Since(1), Tagged(3)] = -1
    transaction_timeout_ms: Int32 = 0
    transaction_status: Int8 = 0
    transaction_partitions: Sequence[PartitionsSchema] | None = ()
    transaction_last_update_timestamp_ms: Int64 = 0
    transaction_start_timestamp_ms: Int64 = 0
    client_transaction_version: Annotated[Int16, Since(1), Tagged(2)] = 0


@struct
class PartitionsSchema:
    topic: str = ""
    partition_ids: Sequence[Int32] = ()
