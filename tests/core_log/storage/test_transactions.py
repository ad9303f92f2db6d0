"""A transaction is undecided until its marker, and its aborted records are always known as such."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core_log.foundation.errors import Fenced, InvalidProducerEpoch, OutOfOrderSequence
from headwater.core_log.records.batch_header import BatchHeader, stamp_append_time
from headwater.core_log.records.record_codec import decode_batch, decode_marker
from headwater.core_log.storage.index import AbortedTransaction
from headwater.core_log.storage.log_config import LogConfig
from headwater.core_log.storage.partition_log import PartitionLog
from tests.builders import START_MS, Sequenced, append, batch, open_log, sync, values_in
from tests.fakes import MemoryFiles

SMALL = LogConfig(segment_bytes=500)


def fresh_log() -> PartitionLog:
    return open_log(MemoryFiles())[1]


def write(log: PartitionLog, producer_id: int, sequence: int = 0, epoch: int = 0) -> int:
    stamp = Sequenced(producer_id, epoch, sequence, is_transactional=True)
    return append(log, f"by {producer_id}", producer=stamp)


def end(
    log: PartitionLog, producer_id: int, *, commit: bool, epoch: int = 0, coordinator_epoch: int = 0
) -> int:
    return log.append_marker(
        producer_id,
        epoch,
        commit=commit,
        coordinator_epoch=coordinator_epoch,
        leader_epoch=0,
        now_ms=START_MS,
    )


def test_the_oldest_open_transaction_is_where_the_undecided_begins() -> None:
    log = fresh_log()
    assert log.producers.first_unstable_offset() is None
    append(log, "plain")
    write(log, 1)
    write(log, 2)

    assert log.producers.first_unstable_offset() == 1
    end(log, 1, commit=True)
    assert log.producers.first_unstable_offset() == 2
    end(log, 2, commit=False)
    assert log.producers.first_unstable_offset() is None


def test_a_marker_is_a_control_batch_that_kafka_understands() -> None:
    log = fresh_log()
    write(log, 1)
    end(log, 1, commit=True, coordinator_epoch=5)

    found = log.read(1, below=2, bytes_max=1000, at_least_one=True)

    assert found is not None
    header, records = decode_batch(found.read())
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.base_sequence, header.record_count) == (1, -1, 1)
    assert decode_marker(records[0]) == (True, 5)
    assert records[0].key == b"\0\0\0\1"
    assert records[0].value == b"\0\0\0\0\0\5"


def test_an_aborted_transaction_is_told_to_whoever_reads_any_part_of_it() -> None:
    log = fresh_log()
    append(log, "before")
    write(log, 1)
    append(log, "between")
    end(log, 1, commit=False)
    append(log, "after")

    aborted = [AbortedTransaction(1, first_offset=1, last_offset=3, last_stable_offset=4)]
    assert log.find_aborted(0, 5) == aborted
    assert log.find_aborted(2, 3) == aborted
    assert log.find_aborted(3, 4) == aborted
    assert log.find_aborted(0, 1) == []
    assert log.find_aborted(4, 5) == []


def test_a_marker_without_a_transaction_changes_nothing_for_readers() -> None:
    log = fresh_log()
    end(log, 1, commit=False)

    assert log.find_aborted(0, 1) == []
    assert log.producers.first_unstable_offset() is None


def test_a_marker_of_a_higher_epoch_fences_what_came_before_it() -> None:
    log = fresh_log()
    write(log, 1, epoch=4)
    end(log, 1, commit=True, epoch=5)

    with pytest.raises(InvalidProducerEpoch):
        write(log, 1, sequence=1, epoch=4)
    with pytest.raises(OutOfOrderSequence):
        write(log, 1, sequence=1, epoch=5)
    assert write(log, 1, sequence=0, epoch=5) == 2


def test_a_marker_of_an_older_epoch_is_refused() -> None:
    log = fresh_log()
    write(log, 1, epoch=4)

    with pytest.raises(InvalidProducerEpoch):
        end(log, 1, commit=True, epoch=3)


def test_a_marker_of_an_older_coordinator_is_refused() -> None:
    log = fresh_log()
    write(log, 1)
    end(log, 1, commit=True, coordinator_epoch=5)
    write(log, 1, sequence=1)

    with pytest.raises(Fenced):
        end(log, 1, commit=True, coordinator_epoch=4)


def test_open_transactions_are_listed_oldest_first() -> None:
    log = fresh_log()
    write(log, 9, epoch=2)
    write(log, 3)

    found = [(each.producer_id, each.producer_epoch) for each in log.producers.open_transactions()]

    assert found == [(9, 2), (3, 0)]
    assert log.producers.has_open_transaction(9, 2)
    assert not log.producers.has_open_transaction(9, 1)
    assert not log.producers.has_open_transaction(8, 0)


def test_a_marker_counts_as_durable_once_everything_below_it_is() -> None:
    log = fresh_log()
    write(log, 1)
    log.sync()
    marker = end(log, 1, commit=True)

    assert log.durable_offset == marker
    log.note_marker_durable()

    assert (log.durable_offset, log.recovery_point) == (marker + 1, marker)


def test_a_marker_behind_unsynced_records_waits_for_them() -> None:
    log = fresh_log()
    write(log, 1)
    job = log.sync_job()
    append(log, "unsynced")
    end(log, 1, commit=True)
    log.note_marker_durable()
    assert log.durable_offset == 0

    job.run()
    log.finish_sync(job)
    assert log.durable_offset == 1
    log.sync()
    assert log.durable_offset == log.end_offset == 3


def test_markers_become_durable_one_behind_the_other() -> None:
    log = fresh_log()
    write(log, 1)
    write(log, 2)
    job = log.sync_job()
    for producer_id in (1, 2):
        end(log, producer_id, commit=True)
        log.note_marker_durable()
    append(log, "unsynced")

    job.run()
    log.finish_sync(job)

    assert (log.durable_offset, log.recovery_point) == (4, 2)


def test_recovery_may_lose_a_marker_that_was_never_synced_without_complaint() -> None:
    files = MemoryFiles()
    store, log = open_log(files)
    write(log, 1)
    sync(log, store)
    size = log.size
    end(log, 1, commit=True)
    log.note_marker_durable()
    store.write_recovery_points([log])
    path = log.segments.active.path
    crashed = files.copy()
    crashed.open(path).truncate(size)

    _, log = open_log(crashed)

    assert [each.producer_id for each in log.producers.open_transactions()] == [1]
    assert end(log, 1, commit=True) == 1


actions = st.lists(
    st.tuples(st.sampled_from(["write", "commit", "abort"]), st.integers(1, 3)), max_size=25
)


@given(actions=actions, is_clean=st.booleans(), synced=st.integers(0, 25))
def test_readers_of_committed_records_see_the_same_before_and_after_a_restart(
    actions: list[tuple[str, int]], is_clean: bool, synced: int
) -> None:
    files = MemoryFiles()
    store, log = open_log(files, config=SMALL)
    sequences = {1: 0, 2: 0, 3: 0}
    pending: dict[int, list[int]] = {1: [], 2: [], 3: []}
    committed: set[int] = set()
    for number, (action, producer_id) in enumerate(actions):
        if action == "write":
            pending[producer_id].append(write(log, producer_id, sequences[producer_id]))
            sequences[producer_id] += 1
        else:
            end(log, producer_id, commit=action == "commit")
            if action == "commit":
                committed.update(pending[producer_id])
            pending[producer_id] = []
        if number == synced:
            sync(log, store)

    open_from = min((offset for each in pending.values() for offset in each), default=None)
    expected = sorted(each for each in committed if open_from is None or each < open_from)
    assert log.producers.first_unstable_offset() == open_from
    assert committed_offsets(log) == expected
    before = log.find_aborted(0, log.end_offset)
    store.close(clean=is_clean)

    _, log = open_log(files.copy(), config=SMALL)

    assert log.producers.first_unstable_offset() == open_from
    assert committed_offsets(log) == expected
    assert log.find_aborted(0, log.end_offset) == before
    for producer_id, sequence in sequences.items():
        write(log, producer_id, sequence)


def committed_offsets(log: PartitionLog) -> list[int]:
    """As a consumer filters: below the stable offset, without what the aborted list names."""
    unstable = log.producers.first_unstable_offset()
    stable = log.end_offset if unstable is None else unstable
    aborted = log.find_aborted(0, stable)
    seen, offset = [], 0
    while (
        found := log.read(offset, below=stable, bytes_max=1 << 20, at_least_one=True)
    ) is not None:
        for each, value in values_in(found.read(), at_least=offset):
            assert value is not None
            writer = int(value.split()[-1])
            if not any(
                entry.producer_id == writer and entry.first_offset <= each < entry.last_offset
                for entry in aborted
            ):
                seen.append(each)
        offset = found.next_offset
    return seen


@given(position=st.integers(0, 200), bit=st.integers(0, 7), is_clean=st.booleans())
def test_an_aborted_index_that_contradicts_itself_is_made_anew(
    position: int, bit: int, is_clean: bool
) -> None:
    files = MemoryFiles()
    store, log = open_log(files, config=SMALL)
    for sequence in range(6):
        write(log, 1, sequence)
        append(log, "x" * 60)
        end(log, 1, commit=sequence % 2 == 0)
    sync(log, store)
    before = log.find_aborted(0, log.end_offset)
    store.close(clean=is_clean)
    path = min(path for path in files.files if path.suffix == ".txnindex")
    row = position // 34 * 34 % files.size(path)
    files.open(path).flip_bit(row + position % 2, bit)  # the version: nothing else is certain

    _, log = open_log(files, config=SMALL)

    assert log.find_aborted(0, log.end_offset) == before


def test_a_time_stamped_by_the_broker_is_every_records_time() -> None:
    _, log = open_log(MemoryFiles())
    data = batch("a", "b", timestamp_ms=5)
    stamp_append_time(data, 1000)
    header = BatchHeader.read(data)
    log.append(memoryview(data), header, leader_epoch=0, now_ms=1000)

    assert log.offset_for_timestamp(6, below=2) == (0, 1000, 0)
