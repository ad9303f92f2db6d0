"""A producer's batches are in the log once and in its own order, whatever it sends again."""

from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headwater.core_log.foundation.errors import (
    InvalidProducerEpoch,
    InvalidTransactionState,
    OutOfOrderSequence,
)
from headwater.core_log.records.batch_header import BatchHeader
from headwater.core_log.storage.partition_log import PartitionLog
from headwater.core_log.storage.producers import DuplicateBatch, DuplicateSequence, ProducerStates
from headwater.core_log.storage.store import Store
from tests.builders import Sequenced, append, open_log, sync, values_of
from tests.fakes import MemoryFiles

LAST = 0x7FFFFFFF


def fresh_log() -> PartitionLog:
    return open_log(MemoryFiles())[1]


def test_the_first_batch_of_an_unknown_producer_may_have_any_sequence() -> None:
    assert append(fresh_log(), "x", producer=Sequenced(7, 3, 100)) == 0


def test_a_gap_in_the_sequence_is_refused() -> None:
    log = fresh_log()
    append(log, "x", "y", producer=Sequenced(7, 0, 0))

    with pytest.raises(OutOfOrderSequence) as caught:
        append(log, "z", producer=Sequenced(7, 0, 3))

    assert (caught.value.facts["sequence"], caught.value.facts["expected"]) == (3, 2)
    assert log.end_offset == 2


def test_a_retry_of_one_of_the_last_five_is_answered_with_where_it_is() -> None:
    log = fresh_log()
    for sequence in range(0, 14, 2):
        append(log, "x", "y", producer=Sequenced(7, 0, sequence))

    for sequence in range(4, 14, 2):
        with pytest.raises(DuplicateBatch) as caught:
            append(log, "x", "y", producer=Sequenced(7, 0, sequence))
        assert (caught.value.base_offset, caught.value.last_offset) == (sequence, sequence + 1)
    assert log.end_offset == 14


@pytest.mark.parametrize("times", [1, 2])
def test_a_retry_of_one_of_the_last_five_is_answered_after_clean_stops_too(times: int) -> None:
    files = MemoryFiles()
    store, log = open_log(files)
    for sequence in range(0, 14, 2):
        append(log, "x", "y", producer=Sequenced(7, 0, sequence))
    for _ in range(times):
        store.close()
        store, log = open_log(files)

    for sequence in range(4, 14, 2):
        with pytest.raises(DuplicateBatch) as caught:
            append(log, "x", "y", producer=Sequenced(7, 0, sequence))
        assert (caught.value.base_offset, caught.value.last_offset) == (sequence, sequence + 1)
    with pytest.raises(OutOfOrderSequence):
        append(log, "x", producer=Sequenced(7, 0, 15))
    assert log.end_offset == 14


def test_an_older_retry_is_known_to_be_one_though_not_where_it_is() -> None:
    log = fresh_log()
    for sequence in range(7):
        append(log, "x", producer=Sequenced(7, 0, sequence))

    with pytest.raises(DuplicateSequence) as caught:
        append(log, "x", producer=Sequenced(7, 0, 1))
    assert (caught.value.base_offset, caught.value.last_offset) == (-1, 1)


def test_a_sequence_from_before_what_is_known_is_out_of_order() -> None:
    log = fresh_log()
    append(log, "x", producer=Sequenced(7, 0, 10))

    with pytest.raises(OutOfOrderSequence):
        append(log, "x", producer=Sequenced(7, 0, 9))


def test_a_new_epoch_begins_at_zero() -> None:
    log = fresh_log()
    append(log, "x", producer=Sequenced(7, 0, 0))

    with pytest.raises(OutOfOrderSequence):
        append(log, "x", producer=Sequenced(7, 1, 1))
    assert append(log, "x", producer=Sequenced(7, 1, 0)) == 1


def test_an_older_epoch_is_fenced() -> None:
    log = fresh_log()
    append(log, "x", producer=Sequenced(7, 1, 0))

    with pytest.raises(InvalidProducerEpoch):
        append(log, "x", producer=Sequenced(7, 0, 1))


def test_sequences_wrap_to_zero() -> None:
    log = fresh_log()
    append(log, "x", "y", producer=Sequenced(7, 0, LAST - 1))
    append(log, "x", "y", producer=Sequenced(7, 0, 0))

    with pytest.raises(DuplicateBatch):
        append(log, "x", "y", producer=Sequenced(7, 0, LAST - 1))
    assert append(log, "x", "y", "z", producer=Sequenced(7, 0, 2)) == 4


def test_one_batch_may_span_the_wrap() -> None:
    log = fresh_log()
    append(log, "x", "y", "z", producer=Sequenced(7, 0, LAST - 1))

    assert append(log, "x", producer=Sequenced(7, 0, 1)) == 3


def test_a_plain_batch_inside_the_producers_open_transaction_is_refused() -> None:
    log = fresh_log()
    append(log, "x", producer=Sequenced(7, 0, 0, is_transactional=True))

    with pytest.raises(InvalidTransactionState):
        append(log, "x", producer=Sequenced(7, 0, 1))


def test_a_coordinators_batch_has_no_sequence_and_joins_the_transaction() -> None:
    log = fresh_log()
    for _ in range(2):
        append(log, "offsets", producer=Sequenced(7, 0, -1, is_transactional=True))

    assert log.producers.first_unstable_offset() == 0
    assert log.producers.has_open_transaction(7, 0)


def test_silent_producers_are_forgotten_but_not_in_a_transaction() -> None:
    log = fresh_log()
    append(log, "x", producer=Sequenced(1, 0, 0), now_ms=1000)
    append(log, "x", producer=Sequenced(2, 0, 0, is_transactional=True), now_ms=1000)
    append(log, "x", producer=Sequenced(3, 0, 0), now_ms=2000)

    forgotten = log.producers.expire(2500, after_ms=1000)

    assert forgotten == 1
    assert [producer_id for producer_id, _ in log.producers] == [2, 3]


def test_a_producer_without_state_writes_no_state() -> None:
    log = fresh_log()
    append(log, "x")

    assert len(log.producers) == 0


def test_checking_changes_nothing() -> None:
    states = ProducerStates()
    header = BatchHeader(0, 100, 0, 2, 0, 0, 0, 0, 0, 7, 0, 0, 1)

    states.check(header)

    assert len(states) == 0


@dataclass
class Model:
    """A producer as a reader of Kafka's rules would write it down."""

    epoch: int = 0
    sent: list[tuple[int, int, int]] = field(default_factory=list)
    """First sequence, record count and offset of this epoch's batches."""

    @property
    def next_sequence(self) -> int:
        return self.sent[-1][0] + self.sent[-1][1] if self.sent else 0


class IdempotentProducers(RuleBasedStateMachine):
    """Producers that lose responses, send again, skip, restart; and a broker that restarts."""

    @initialize()
    def start(self) -> None:
        self.files = MemoryFiles()
        self.store: Store
        self.store, self.log = open_log(self.files)
        self.models = {1: Model(), 2: Model()}
        self.records = 0
        self.restarted_at: dict[int, int] = {}

    @rule(producer=st.sampled_from([1, 2]), count=st.integers(1, 3))
    def send(self, producer: int, count: int) -> None:
        model = self.models[producer]
        values = [b"%d" % (self.records + place) for place in range(count)]
        stamp = Sequenced(producer, model.epoch, model.next_sequence)
        offset = append(self.log, *values, producer=stamp)
        assert offset == self.records
        model.sent.append((stamp.sequence, count, offset))
        self.records += count

    @rule(producer=st.sampled_from([1, 2]), back=st.integers(1, 8))
    def send_again(self, producer: int, back: int) -> None:
        model = self.models[producer]
        if back > len(model.sent):
            return
        sequence, count, offset = model.sent[-back]
        with pytest.raises((DuplicateBatch, DuplicateSequence, OutOfOrderSequence)) as caught:
            append(
                self.log, *["again"] * count, producer=Sequenced(producer, model.epoch, sequence)
            )
        remembered = len(model.sent) - self.restarted_at.get(producer, 0)
        if back <= min(5, max(remembered, 1)):
            assert isinstance(caught.value, DuplicateBatch)
            assert caught.value.base_offset == offset

    @rule(producer=st.sampled_from([1, 2]), gap=st.integers(1, 5))
    def skip(self, producer: int, gap: int) -> None:
        model = self.models[producer]
        if not model.sent:
            return
        stamp = Sequenced(producer, model.epoch, model.next_sequence + gap)
        with pytest.raises(OutOfOrderSequence):
            append(self.log, "skipped", producer=stamp)

    @rule(producer=st.sampled_from([1, 2]))
    @precondition(lambda self: self.records)
    def begin_epoch(self, producer: int) -> None:
        model = self.models[producer]
        if model.sent:
            model.epoch, model.sent = model.epoch + 1, []
            self.restarted_at.pop(producer, None)
            self.send(producer, 1)

    @rule(producer=st.sampled_from([1, 2]))
    def use_an_old_epoch(self, producer: int) -> None:
        model = self.models[producer]
        if model.epoch and model.sent:
            with pytest.raises(InvalidProducerEpoch):
                append(self.log, "old", producer=Sequenced(producer, model.epoch - 1, 0))

    @rule(is_clean=st.booleans())
    def restart(self, is_clean: bool) -> None:
        sync(self.log, self.store)
        self.store.close(clean=is_clean)
        self.store, self.log = open_log(self.files.copy())
        self.files = self.store.files  # type: ignore[assignment]
        if is_clean:  # Kafka's snapshot holds each producer's last batch only
            self.restarted_at = {
                producer: len(model.sent) - 1 for producer, model in self.models.items()
            }

    @invariant()
    def every_record_is_there_once(self) -> None:
        if hasattr(self, "log"):
            expected = [(offset, b"%d" % offset) for offset in range(self.records)]
            assert values_of(self.log) == expected


TestIdempotentProducers = IdempotentProducers.TestCase
TestIdempotentProducers.settings = settings(max_examples=40, stateful_step_count=30)
