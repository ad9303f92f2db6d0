"""Kafka's records of transactional ids in `__transaction_state`, and the work that one asks for
after a restart."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.groups.transactions import (
    EPOCH_LAST,
    NO_EPOCH,
    ProducerIdentity,
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


class UnmarkedTransaction(NamedTuple):
    """A partition in which a producer's transaction has no marker yet."""

    partition: TopicPartition
    producer: ProducerIdentity


class MarkerBatch(NamedTuple):
    """One decision, and the partitions that still need its marker."""

    producer: ProducerIdentity
    commit: bool
    partitions: frozenset[TopicPartition]


@dataclass(slots=True)
class TransactionRecovery:
    """The result: markers to write first, then, once they are durable, the new state."""

    markers: list[MarkerBatch] = field(default_factory=list)
    state: StoredTransaction | None = None
    earlier: tuple[ProducerIdentity, bool] | None = None


def recover_transaction(
    stored: StoredTransaction,
    open_here: Sequence[UnmarkedTransaction],
    *,
    unseen: frozenset[TopicPartition] = frozenset(),
    was_clean: bool,
    fresh_producer_id: int,
    now_ms: int,
) -> TransactionRecovery:
    """Finishes decided transactions and aborts the others.

    An id's record is never appended while a marker of its previous decision may be lost, so its
    last record is enough. After an unclean stop there may also be a transaction without a record: a
    client of version 2 that starts the next transaction at once does not store its start, which
    saves a sync. Its epoch tells the two apart, and is raised so that the client cannot commit what
    was lost. That would fence a client of version 1: it keeps its epoch, and the record says that
    it must abort first.

    Partitions that could not be read are `unseen`; they still need a decision or an abort.
    """
    recovery = TransactionRecovery()
    if was_clean and stored.state is TransactionState.ONGOING:
        return recovery
    finished, undecided = stored, list(open_here)
    if stored.state.is_prepared:
        finished = stored.complete(now_ms)
        decided = [each for each in open_here if stored.decides(each.partition, each.producer)]
        undecided = [each for each in open_here if each not in decided]
        partitions = unseen.union(each.partition for each in decided)
        _mark(recovery, stored.identity, partitions, commit=stored.state.is_commit)
        recovery.state = finished
    may_have_lost = not was_clean and (
        stored.state is TransactionState.ONGOING
        or (stored.state.is_prepared and stored.bumps_epoch)
    )
    if undecided or may_have_lost:
        if stored.state.is_prepared:
            asked_by = ProducerIdentity(stored.producer_id, stored.last_epoch)
            recovery.earlier = (asked_by, stored.state.is_commit)
        raised = ProducerIdentity(finished.producer_id, finished.producer_epoch + 1)
        keeps_epoch = stored.state is TransactionState.ONGOING and not stored.bumps_epoch
        ender = stored.identity if keeps_epoch else raised
        for producer_id in sorted({each.producer.producer_id for each in undecided}):
            of_producer = [each for each in undecided if each.producer.producer_id == producer_id]
            marker = ender if producer_id == ender.producer_id else of_producer[0].producer
            partitions = frozenset(each.partition for each in of_producer)
            _mark(recovery, marker, partitions, commit=False)
        if stored.state is TransactionState.ONGOING:
            _mark(recovery, ender, unseen, commit=False)
        if keeps_epoch:
            recovery.state = _aborted_unheard(stored, now_ms)
        else:
            recovery.state = _abort(finished, raised, fresh_producer_id, now_ms)
    return recovery


def _mark(
    recovery: TransactionRecovery,
    producer: ProducerIdentity,
    partitions: frozenset[TopicPartition],
    *,
    commit: bool,
) -> None:
    if partitions:
        recovery.markers.append(MarkerBatch(producer, commit, partitions))


def _aborted_unheard(stored: StoredTransaction, now_ms: int) -> StoredTransaction:
    """Returns the state after an abort that the client does not know. The client keeps its epoch,
    so the record says until the client ends the transaction that nothing may be committed."""
    return replace(stored, partitions=frozenset(), started_ms=now_ms, updated_ms=now_ms)


def _abort(
    finished: StoredTransaction, raised: ProducerIdentity, fresh_producer_id: int, now_ms: int
) -> StoredTransaction:
    """Returns the state as after an abort by the client, so that a client that does abort may
    continue."""
    is_used_up = raised.epoch > EPOCH_LAST
    return replace(
        finished,
        state=TransactionState.COMPLETE_ABORT,
        producer_id=fresh_producer_id if is_used_up else raised.producer_id,
        producer_epoch=0 if is_used_up else raised.epoch,
        last_epoch=finished.producer_epoch,
        previous_producer_id=finished.producer_id,
        partitions=frozenset(),
        client_version=max(finished.client_version, 2),
        updated_ms=now_ms,
    )
