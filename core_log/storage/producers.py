"""The last batches of each producer: refuses gaps and repeats, and knows open transactions."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from headwater.core_log.foundation.errors import (
    BatchRejected,
    Fenced,
    InvalidProducerEpoch,
    InvalidTransactionState,
    OutOfOrderSequence,
)
from headwater.core_log.records.batch_header import CONTROL, TRANSACTIONAL, BatchHeader
from headwater.core_log.storage.index import NO_TIMESTAMP, AbortedTransaction

REMEMBERED_BATCHES = 5
"""The number of batches that a client may have in flight, so that a retry of any is recognised."""

EXPIRATION_MS = 86_400_000
"""Kafka's default of `producer.id.expiration.ms`."""

SEQUENCE_MASK = 0x7FFFFFFF
NO_SEQUENCE = -1
NO_OFFSET = -1


class DuplicateBatch(BatchRejected):
    """The batch is a retry and already in the log; the answer is its offset."""

    def __init__(self, base_offset: int, last_offset: int, timestamp_ms: int) -> None:
        super().__init__("batch is already in the log", base_offset=base_offset)
        self.base_offset, self.last_offset = base_offset, last_offset
        self.timestamp_ms = timestamp_ms


class DuplicateSequence(DuplicateBatch):
    """The batch was appended before `last_offset`, too long ago to know its offset."""

    def __init__(self, last_offset: int) -> None:
        super().__init__(NO_OFFSET, last_offset, NO_TIMESTAMP)


class SequencedBatch(NamedTuple):
    """A batch with its producer's sequences and its offsets in the log."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp_ms: int


@dataclass(slots=True)
class Producer:
    """The state of one producer id in one partition."""

    epoch: int
    batches: list[SequencedBatch] = field(default_factory=list)
    """Batches of this epoch, oldest first; none after a marker raised the epoch."""
    next_sequence: int = 0
    unbroken_from: int = NO_SEQUENCE
    """Every sequence of this epoch from here on is known to be in the log."""
    coordinator_epoch: int = -1
    transaction_from: int = NO_OFFSET
    timestamp_ms: int = -1
    marker_offset: int = field(default=NO_OFFSET, compare=False)
    """The newest marker since this log was opened."""

    def begin_epoch(self, epoch: int) -> None:
        self.epoch, self.next_sequence, self.unbroken_from = epoch, 0, NO_SEQUENCE
        self.batches.clear()

    def note_batch(self, header: BatchHeader, base_offset: int) -> None:
        first, delta = header.base_sequence, header.last_offset_delta
        if self.unbroken_from == NO_SEQUENCE or first != self.next_sequence:
            self.unbroken_from = first
        last = (first + delta) & SEQUENCE_MASK
        self.next_sequence = (last + 1) & SEQUENCE_MASK
        self.batches.append(
            SequencedBatch(first, last, base_offset, base_offset + delta, header.max_timestamp)
        )
        if len(self.batches) > REMEMBERED_BATCHES:
            del self.batches[0]

    def complete(self, other: "Producer") -> None:
        """Takes over older batches from the same state with more of them."""
        is_same = (self.epoch, self.next_sequence) == (other.epoch, other.next_sequence)
        if is_same and len(other.batches) > len(self.batches):
            self.batches, self.unbroken_from = other.batches, other.unbroken_from


class OpenTransaction(NamedTuple):
    """A transaction that has batches here and no marker yet."""

    producer_id: int
    producer_epoch: int
    first_offset: int
    timestamp_ms: int


class ProducerStates:
    """Sequences, epochs and open transactions of one partition. Pure: it holds no file."""

    def __init__(self) -> None:
        self._producers: dict[int, Producer] = {}
        self._open: dict[int, int] = {}
        self._first_open: int | None = None
        self._is_of_snapshot = False
        self.read_again: Callable[[], ProducerStates] = ProducerStates
        """Reads the same states from the log, with more of their batches than a snapshot has."""

    def __len__(self) -> int:
        return len(self._producers)

    def __iter__(self) -> Iterator[tuple[int, Producer]]:
        return iter(self._producers.items())

    def get(self, producer_id: int) -> Producer | None:
        return self._producers.get(producer_id)

    def restore(self, producers: Iterable[tuple[int, Producer]]) -> None:
        """Replaces the state by that of a snapshot."""
        self._producers = dict(producers)
        self._is_of_snapshot = len(self._producers) > 0
        running = [
            (producer.transaction_from, producer_id)
            for producer_id, producer in self._producers.items()
            if producer.transaction_from >= 0
        ]
        self._open = {producer_id: offset for offset, producer_id in sorted(running)}
        self._first_open = next(iter(self._open.values()), None)

    def check(self, header: BatchHeader) -> None:
        """Raises unless the batch may be appended now. Markers are checked by `check_marker`.

        Kafka's rules: the first batch of an unknown producer may have any sequence, since its
        earlier batches may have been deleted; a new epoch begins at 0.
        """
        producer = self._producers.get(header.producer_id)
        if producer is None:
            return
        epoch, sequence = header.producer_epoch, header.base_sequence
        if epoch != producer.epoch or sequence != producer.next_sequence:
            self._check_unusual(header, producer)
        if producer.transaction_from >= 0 and not header.attributes & TRANSACTIONAL:
            raise InvalidTransactionState(
                "producer writes outside its open transaction", producer_id=header.producer_id
            )

    def _check_unusual(self, header: BatchHeader, producer: Producer) -> None:
        """Checks all batches but the next one of the same epoch."""
        epoch, sequence, expected = header.producer_epoch, header.base_sequence, 0
        if epoch < producer.epoch:
            raise InvalidProducerEpoch(
                "producer epoch is older than the newest",
                producer_id=header.producer_id,
                epoch=epoch,
                known=producer.epoch,
            )
        if sequence == NO_SEQUENCE:  # a coordinator's own batch, in a producer's transaction
            return
        if epoch == producer.epoch:
            self._refuse_repetition(header, producer)
            expected = producer.next_sequence
        if sequence != expected:
            raise OutOfOrderSequence(
                "sequence does not follow the producer's last",
                producer_id=header.producer_id,
                sequence=sequence,
                expected=expected,
            )

    def _refuse_repetition(self, header: BatchHeader, producer: Producer) -> None:
        first, last = header.base_sequence, header.last_sequence
        for batch in producer.batches:
            if batch.first_sequence == first and batch.last_sequence == last:
                raise DuplicateBatch(batch.base_offset, batch.last_offset, batch.timestamp_ms)
        begin = producer.unbroken_from
        if begin == NO_SEQUENCE:
            return
        known = (producer.next_sequence - begin) & SEQUENCE_MASK
        if (first - begin) & SEQUENCE_MASK <= (last - begin) & SEQUENCE_MASK < known:
            raise DuplicateSequence(producer.batches[0].base_offset - 1)
        if self._is_of_snapshot and first != producer.next_sequence:
            self._complete()
            self._refuse_repetition(header, producer)

    def _complete(self) -> None:
        """A snapshot has the last batch of each producer only, but a client may repeat each that it
        had in flight."""
        self._is_of_snapshot = False
        for producer_id, older in self.read_again():
            if (known := self._producers.get(producer_id)) is not None:
                known.complete(older)

    def note(self, header: BatchHeader, base_offset: int, timestamp_ms: int) -> None:
        """Stores a data batch that is in the log; recovery and followers skip `check`."""
        producer = self._producers.get(header.producer_id)
        if producer is None:
            producer = self._producers[header.producer_id] = Producer(header.producer_epoch)
        elif producer.epoch != header.producer_epoch:
            producer.begin_epoch(header.producer_epoch)
        if header.base_sequence != NO_SEQUENCE:
            producer.note_batch(header, base_offset)
        producer.timestamp_ms = timestamp_ms
        if header.attributes & TRANSACTIONAL and producer.transaction_from < 0:
            producer.transaction_from = base_offset
            self._open[header.producer_id] = base_offset
            if self._first_open is None:
                self._first_open = base_offset

    def check_marker(self, producer_id: int, epoch: int, coordinator_epoch: int) -> None:
        """Raises unless a marker of that epoch, from that coordinator, may be appended now."""
        producer = self._producers.get(producer_id)
        if producer is None:
            return
        if epoch < producer.epoch:
            raise InvalidProducerEpoch(
                "producer epoch is older than the newest",
                producer_id=producer_id,
                epoch=epoch,
                known=producer.epoch,
            )
        if coordinator_epoch < producer.coordinator_epoch:
            raise Fenced(
                "a newer transaction coordinator has written here",
                coordinator_epoch=coordinator_epoch,
                known=producer.coordinator_epoch,
            )

    def note_marker(
        self,
        producer_id: int,
        epoch: int,
        *,
        commit: bool,
        coordinator_epoch: int,
        offset: int,
        timestamp_ms: int,
    ) -> AbortedTransaction | None:
        """Ends the producer's transaction; returns the entry for the aborted index, if any.

        A marker of a higher epoch (transaction.version 2) fences all older ones.
        """
        producer = self._producers.get(producer_id)
        if producer is None:
            producer = self._producers[producer_id] = Producer(epoch)
        elif producer.epoch != epoch:
            producer.begin_epoch(epoch)
        first_offset = producer.transaction_from
        producer.transaction_from = NO_OFFSET
        producer.coordinator_epoch, producer.timestamp_ms = coordinator_epoch, timestamp_ms
        producer.marker_offset = offset
        if first_offset < 0:
            return None
        del self._open[producer_id]
        self._first_open = next(iter(self._open.values()), None)
        if commit:
            return None
        stable = offset + 1 if self._first_open is None else self._first_open
        return AbortedTransaction(producer_id, first_offset, offset, stable)

    def first_unstable_offset(self) -> int | None:
        """Returns the start of the oldest undecided transaction."""
        return self._first_open

    def open_transactions(self) -> list[OpenTransaction]:
        """Returns the open transactions, oldest first."""
        return [
            OpenTransaction(producer_id, producer.epoch, offset, producer.timestamp_ms)
            for producer_id, offset in self._open.items()
            for producer in (self._producers[producer_id],)
        ]

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether the producer's open transaction has batches here."""
        producer = self._producers.get(producer_id)
        return producer is not None and producer.transaction_from >= 0 and producer.epoch == epoch

    def expire(self, now_ms: int, *, after_ms: int = EXPIRATION_MS) -> int:
        """Removes producers that were silent for that long and have no open transaction; returns
        their number."""
        silent = [
            producer_id
            for producer_id, producer in self._producers.items()
            if producer.transaction_from < 0 and producer.timestamp_ms < now_ms - after_ms
        ]
        for producer_id in silent:
            del self._producers[producer_id]
        return len(silent)


def is_data(header: BatchHeader) -> bool:
    """Whether a batch counts for its producer's sequence."""
    return header.producer_id >= 0 and not header.attributes & CONTROL
