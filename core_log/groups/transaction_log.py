"""Kafka's records of transactional ids in `__transaction_state`."""

from collections.abc import Iterable

from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.groups.transactions import (
    EPOCH_LAST,
    NO_EPOCH,
    StoredTransaction,
    TransactionState,
)
from headwater.core_log.model.log import TopicPartition, indexes_by_topic
from headwater.core_log.protocol.message import decode_record, encode_record
from headwater.core_log.protocol.messages.transaction_records import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)

KEY_VERSION, VALUE_VERSION = 0, 1


def encode_key(transactional_id: str) -> bytes:
    return encode_record(TransactionLogKey(transactional_id=transactional_id), KEY_VERSION)


def encode_value(stored: StoredTransaction) -> bytes:
    is_empty = stored.state is TransactionState.EMPTY
    value = TransactionLogValue(
        producer_id=stored.producer_id,
        previous_producer_id=stored.previous_producer_id,
        next_producer_id=stored.next_producer_id,
        producer_epoch=stored.producer_epoch,
        transaction_timeout_ms=stored.timeout_ms,
        transaction_status=stored.state,
        transaction_partitions=None if is_empty else _by_topic(stored.partitions),
        transaction_last_update_timestamp_ms=stored.updated_ms,
        transaction_start_timestamp_ms=stored.started_ms,
        client_transaction_version=stored.client_version,
    )
    return encode_record(value, VALUE_VERSION)


def decode_key(data: bytes) -> str:
    return decode_record(TransactionLogKey, data).transactional_id


def decode_value(data: bytes) -> StoredTransaction:
    value = decode_record(TransactionLogValue, data)
    try:
        state = TransactionState(value.transaction_status)
    except ValueError:
        raise DecodeError(
            "transaction has an unknown state", status=value.transaction_status
        ) from None
    stored = StoredTransaction(
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=state,
        partitions=frozenset(
            TopicPartition(each.topic, partition)
            for each in value.transaction_partitions or ()
            for partition in each.partition_ids
        ),
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        client_version=value.client_transaction_version,
        started_ms=value.transaction_start_timestamp_ms,
        updated_ms=value.transaction_last_update_timestamp_ms,
    )
    return stored.with_last_epoch(_last_epoch(stored))


def _by_topic(partitions: Iterable[TopicPartition]) -> tuple[PartitionsSchema, ...]:
    return tuple(
        PartitionsSchema(topic=topic, partition_ids=tuple(indexes))
        for topic, indexes in indexes_by_topic(sorted(partitions)).items()
    )


def _last_epoch(stored: StoredTransaction) -> int:
    """Returns the last epoch, which the record lacks; it is known if the end of a transaction
    raised the epoch."""
    is_ended = stored.state not in (TransactionState.EMPTY, TransactionState.ONGOING)
    if not is_ended or not stored.bumps_epoch:
        return NO_EPOCH
    is_rotated = stored.producer_epoch == 0 and stored.previous_producer_id != stored.producer_id
    return EPOCH_LAST if is_rotated else stored.producer_epoch - 1
