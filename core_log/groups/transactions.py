"""One transactional id as a state machine: no clock, no log, and no markers are written here."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple

from headwater.core_log.model.log import TopicPartition
from headwater.core_log.protocol.error_codes import ErrorCode

NO_PRODUCER_ID = -1
NO_EPOCH = -1
EPOCH_MAX = 32_767
EPOCH_LAST = EPOCH_MAX - 1
"""The last epoch for clients; one more is reserved, so that this client can be fenced, too."""

VERSION_1, VERSION_2 = 1, 2
"""Kafka's transaction.version of a client. In version 2 (KIP-890) each end of a transaction raises
the epoch, and partitions are added by writing to them."""


class TransactionState(IntEnum):
    """States of a transaction, with Kafka's stored numbers."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def title(self) -> str:
        """Returns the name that Kafka's tools show."""
        return self.name.title().replace("_", "")

    @property
    def is_prepared(self) -> bool:
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_complete(self) -> bool:
        return self in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)

    @property
    def is_commit(self) -> bool:
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)


class ProducerIdentity(NamedTuple):
    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class StoredTransaction:
    """The whole state of a transactional id, as one record of `__transaction_state` stores it."""

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    """The client's next producer id, if the epochs run out at the end of a transaction."""
    client_version: int = 0
    started_ms: int = -1
    updated_ms: int = -1
    last_epoch: int = NO_EPOCH
    """The previous epoch, whose owner may still ask for a lost answer. Not in the record."""

    @property
    def identity(self) -> ProducerIdentity:
        return ProducerIdentity(self.producer_id, self.producer_epoch)

    @property
    def is_exhausted(self) -> bool:
        return self.producer_epoch >= EPOCH_LAST

    @property
    def needs_fresh_id(self) -> bool:
        """Whether the next step may use up the epochs; a new run that fences the last one takes
        two."""
        return self.producer_epoch >= EPOCH_LAST - 1

    @property
    def bumps_epoch(self) -> bool:
        return self.client_version >= VERSION_2

    @property
    def is_aborted_unheard(self) -> bool:
        """Whether recovery has aborted it and its client of version 1, which keeps the epoch, does
        not know it yet. It is stored as open without partitions, which no client can produce."""
        return self.state is TransactionState.ONGOING and not self.partitions

    def with_last_epoch(self, epoch: int) -> "StoredTransaction":
        return replace(self, last_epoch=epoch)

    def decides(self, partition: TopicPartition, producer: ProducerIdentity) -> bool:
        """Whether this decision is about that producer's open transaction there."""
        if not self.state.is_prepared or partition not in self.partitions:
            return False
        if producer.producer_id != self.producer_id:
            return False
        return not self.bumps_epoch or producer.epoch < self.producer_epoch

    def complete(self, now_ms: int) -> "StoredTransaction":
        """Returns the state after the markers are written."""
        assert self.state.is_prepared, "only a decided transaction can be complete"
        is_rotated = self.next_producer_id != NO_PRODUCER_ID
        return replace(
            self,
            state=TransactionState.COMPLETE_COMMIT
            if self.state.is_commit
            else TransactionState.COMPLETE_ABORT,
            producer_id=self.next_producer_id if is_rotated else self.producer_id,
            producer_epoch=0 if is_rotated else self.producer_epoch,
            previous_producer_id=self.producer_id,
            next_producer_id=NO_PRODUCER_ID,
            partitions=frozenset(),
            updated_ms=now_ms,
        )


TransitionResult = StoredTransaction | ErrorCode
"""The next state, to be stored; or the error, with NONE if there is nothing left to do."""


@dataclass(slots=True)
class TransactionMetadata:
    """Answers every request by a verdict; the caller stores the new state and then calls
    `enter`."""

    current: StoredTransaction
    pending: StoredTransaction | None = None
    """The state that is being stored. Until it is durable, no other change is allowed."""
    earlier: tuple[ProducerIdentity, bool] | None = None
    """A decision from before recovery raised the epoch: its producer, and whether to commit."""
    is_lost: bool = False
    """A transaction that the client may still want to commit was aborted, since a crash lost a part
    of it."""
    is_doomed: bool = False
    """A disk failure may have lost a part of the open transaction. Its client must abort it and
    keeps its epoch: a new epoch would fence a client of version 1."""

    @property
    def must_abort(self) -> bool:
        return self.is_doomed or self.current.is_aborted_unheard

    def enter(self, state: StoredTransaction) -> None:
        self.current, self.pending = state, None
        self.earlier, self.is_lost = None, False

    def enter_recovered(
        self, state: StoredTransaction, earlier: tuple[ProducerIdentity, bool] | None
    ) -> None:
        self.enter(state)
        self.earlier = earlier
        self.is_lost = state.state is TransactionState.COMPLETE_ABORT

    def check_init(self, expected: ProducerIdentity | None) -> ErrorCode:
        """Checks whether a producer may (re)start; one that sends its id must be the current one
        (KIP-360)."""
        if self.pending is not None:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        if expected is not None and not self._knows(expected):
            return ErrorCode.PRODUCER_FENCED
        if self.current.state.is_prepared:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        return ErrorCode.NONE

    def init(
        self,
        *,
        expected: ProducerIdentity | None,
        timeout_ms: int,
        fresh_producer_id: int,
        now_ms: int,
    ) -> TransitionResult:
        """Returns the next epoch, or a new producer id if the epochs are used up."""
        error = self.check_init(expected)
        if error is not ErrorCode.NONE:
            return error
        current = self.current
        assert current.state is not TransactionState.ONGOING, "an open transaction is ended first"
        empty = StoredTransaction(
            producer_id=current.producer_id,
            producer_epoch=current.producer_epoch,
            timeout_ms=timeout_ms,
            previous_producer_id=current.producer_id,
            updated_ms=now_ms,
        )
        is_own_epoch = expected is None or expected.epoch == current.producer_epoch
        is_retry = expected is not None and expected.epoch == current.last_epoch
        if current.is_exhausted and (is_own_epoch or is_retry):
            last = NO_EPOCH if expected is None else current.producer_epoch
            return replace(empty, producer_id=fresh_producer_id, producer_epoch=0, last_epoch=last)
        if expected is None:
            return replace(empty, producer_epoch=current.producer_epoch + 1)
        if is_own_epoch or current.producer_epoch == NO_EPOCH:
            last = current.producer_epoch
            return replace(empty, producer_epoch=last + 1, last_epoch=last)
        if is_retry:
            return replace(empty, last_epoch=current.last_epoch)
        return ErrorCode.PRODUCER_FENCED

    def fence(self, *, fresh_producer_id: int, now_ms: int) -> StoredTransaction:
        """Aborts an open transaction whose producer is late or about to be replaced.

        The epoch is raised as if the producer had asked for it, so that it may still ask.
        """
        assert self.current.state is TransactionState.ONGOING, "only an open transaction is fenced"
        return self._end(
            commit=False, version=VERSION_2, fresh_producer_id=fresh_producer_id, now_ms=now_ms
        )

    def verify(
        self, producer: ProducerIdentity, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Checks whether the producer has announced these partitions."""
        error = self._check_producer(producer)
        added = self.current.partitions
        if self.current.state is not TransactionState.ONGOING or self.must_abort:
            added = frozenset()
        absent = ErrorCode.TRANSACTION_ABORTABLE if error is ErrorCode.NONE else error
        is_valid = error is ErrorCode.NONE
        return {p: ErrorCode.NONE if is_valid and p in added else absent for p in partitions}

    def add(
        self,
        producer: ProducerIdentity,
        partitions: Iterable[TopicPartition],
        *,
        version: int,
        now_ms: int,
    ) -> TransitionResult:
        """Adds partitions; the first ones start the transaction."""
        error = self._check_producer(producer)
        if error is not ErrorCode.NONE:
            return error
        current, is_open = self.current, self.current.state is TransactionState.ONGOING
        wanted = frozenset(partitions)
        if self.must_abort:
            return ErrorCode.TRANSACTION_ABORTABLE
        if not wanted or (is_open and wanted <= current.partitions):
            return ErrorCode.NONE
        return replace(
            current,
            state=TransactionState.ONGOING,
            partitions=current.partitions | wanted if is_open else wanted,
            previous_producer_id=current.producer_id,
            client_version=version,
            started_ms=current.started_ms if is_open else now_ms,
            updated_ms=now_ms,
        )

    def end(
        self,
        producer: ProducerIdentity,
        *,
        commit: bool,
        version: int,
        fresh_producer_id: int,
        now_ms: int,
    ) -> TransitionResult:
        """Commits or aborts, as the client asks; a retry gets the former decision."""
        if version >= VERSION_2:
            error = self._check_end(producer, commit=commit)
        else:
            error = self._check_end_version_1(producer, commit=commit)
        if error is not None:
            return error
        if commit and self.must_abort:
            return ErrorCode.TRANSACTION_ABORTABLE
        return self._end(
            commit=commit, version=version, fresh_producer_id=fresh_producer_id, now_ms=now_ms
        )

    def is_overdue(self, now_ms: int) -> bool:
        is_open = self.current.state is TransactionState.ONGOING
        return is_open and now_ms >= self.current.started_ms + self.current.timeout_ms

    def _end(
        self, *, commit: bool, version: int, fresh_producer_id: int, now_ms: int
    ) -> StoredTransaction:
        current, bumps = self.current, version >= VERSION_2
        is_open = current.state is TransactionState.ONGOING
        is_used_up = bumps and current.is_exhausted
        return replace(
            current,
            state=TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT,
            producer_epoch=current.producer_epoch + 1 if bumps else current.producer_epoch,
            last_epoch=current.producer_epoch if bumps else current.last_epoch,
            previous_producer_id=current.producer_id,
            next_producer_id=fresh_producer_id if is_used_up else NO_PRODUCER_ID,
            client_version=version,
            started_ms=current.started_ms if is_open else now_ms,
            updated_ms=now_ms,
        )

    def _check_producer(self, producer: ProducerIdentity) -> ErrorCode:
        if producer.producer_id != self.current.producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if producer.epoch != self.current.producer_epoch:
            return ErrorCode.PRODUCER_FENCED
        if self.pending is not None or self.current.state.is_prepared:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        return ErrorCode.NONE

    def _check_end(self, producer: ProducerIdentity, *, commit: bool) -> ErrorCode | None:
        """Returns None if the transaction may be ended.

        A request of the current epoch is about the present transaction; one epoch back it is about
        the one before. Each end raises the epoch, so that a late request finds only its own.
        """
        if self.earlier == (producer, commit):
            return ErrorCode.NONE
        current, state = self.current, self.current.state
        is_next = current.bumps_epoch and producer.epoch + 1 == current.producer_epoch
        is_rotated = (
            current.bumps_epoch
            and producer == (current.previous_producer_id, EPOCH_LAST)
            and current.producer_epoch == 0
        )
        if producer.producer_id != current.producer_id and not is_rotated:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if state.is_prepared:
            if not is_next:
                return ErrorCode.PRODUCER_FENCED
            is_same = commit == state.is_commit
            return ErrorCode.CONCURRENT_TRANSACTIONS if is_same else ErrorCode.INVALID_TXN_STATE
        if (is_next or is_rotated) and state.is_complete:
            is_same = commit == state.is_commit
            if commit and self.is_lost:
                return ErrorCode.TRANSACTION_ABORTABLE
            return ErrorCode.NONE if is_same else ErrorCode.INVALID_TXN_STATE
        if producer != current.identity:
            return ErrorCode.PRODUCER_FENCED
        if self.pending is not None:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        if commit and state is not TransactionState.ONGOING:
            return ErrorCode.INVALID_TXN_STATE
        return None

    def _check_end_version_1(self, producer: ProducerIdentity, *, commit: bool) -> ErrorCode | None:
        """Returns None if the transaction may be ended. The epoch stays the same, so only the state
        decides."""
        current, state = self.current, self.current.state
        if producer.producer_id != current.producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if producer.epoch != current.producer_epoch:
            return ErrorCode.PRODUCER_FENCED
        if self.pending is not None:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        if state is TransactionState.ONGOING:
            return None
        if state is TransactionState.EMPTY or commit != state.is_commit:
            return ErrorCode.INVALID_TXN_STATE
        return ErrorCode.CONCURRENT_TRANSACTIONS if state.is_prepared else ErrorCode.NONE

    def _knows(self, expected: ProducerIdentity) -> bool:
        current = self.current
        is_late = expected.epoch >= EPOCH_LAST
        return (
            current.producer_epoch == NO_EPOCH
            or expected.producer_id == current.producer_id
            or (expected.producer_id == current.previous_producer_id and is_late)
        )
