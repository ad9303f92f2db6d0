"""Decides what one transactional id needs after a restart."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from headwater.core_log.groups.transactions import (
    EPOCH_LAST,
    ProducerIdentity,
    StoredTransaction,
    TransactionState,
)
from headwater.core_log.model.log import TopicPartition


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
