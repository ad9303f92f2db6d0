"""A look-up by time finds the record that a reader of everything would have found."""

from hypothesis import example, given
from hypothesis import strategies as st

from headwater.core_log.records.batch_header import BatchHeader
from headwater.core_log.records.record_codec import PlainRecord, encode_batch
from headwater.core_log.storage.batch_filter import empty_batch
from headwater.core_log.storage.log_config import LogConfig
from headwater.core_log.storage.partition_log import PartitionLog
from tests.builders import append, batch, open_log
from tests.fakes import MemoryFiles

CONFIG = LogConfig(segment_bytes=500, index_interval_bytes=100)
batches = st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=4), max_size=12)


def log_of(batches: list[list[int]], compression: int) -> PartitionLog:
    _, log = open_log(MemoryFiles(), config=CONFIG)
    for times in batches:
        records = [PlainRecord(None, b"value", timestamp_ms=time) for time in times]
        data = encode_batch(records, compression=compression)
        log.append(memoryview(data), BatchHeader.read(data), leader_epoch=3, now_ms=0)
    return log


@given(
    batches=batches,
    timestamp_ms=st.integers(0, 51),
    start=st.integers(0, 10),
    hidden=st.integers(0, 6),
    compression=st.sampled_from([0, 1]),
)
def test_the_first_record_at_or_after_a_time_is_found(
    batches: list[list[int]], timestamp_ms: int, start: int, hidden: int, compression: int
) -> None:
    log = log_of(batches, compression)
    log.delete_records_before(start)
    below = max(log.end_offset - hidden, 0)

    found = log.offset_for_timestamp(timestamp_ms, below=below)

    times = list(enumerate(time for batch in batches for time in batch))[log.start_offset : below]
    expected = next((each for each in times if each[1] >= timestamp_ms), None)
    assert (found and found[:2]) == expected
    assert found is None or found.leader_epoch == 3


@given(batches=batches, start=st.integers(0, 10), hidden=st.integers(0, 6))
@example(batches=[[50, 1]], start=1, hidden=0)
@example(batches=[[1, 50]], start=0, hidden=1)
def test_the_newest_record_is_the_first_with_the_largest_time(
    batches: list[list[int]], start: int, hidden: int
) -> None:
    log = log_of(batches, 0)
    log.delete_records_before(start)
    below = max(log.end_offset - hidden, 0)

    found = log.max_timestamp(below=below)

    times = list(enumerate(time for batch in batches for time in batch))[log.start_offset : below]
    newest = max((time for _, time in times), default=None)
    assert (found and found[:2]) == next((each for each in times if each[1] == newest), None)


def test_a_log_without_times_has_no_newest_record() -> None:
    _, log = open_log(MemoryFiles())
    append(log, "x", timestamp_ms=-1)

    assert log.max_timestamp() is None
    assert log.offset_for_timestamp(0, below=1) is None


def test_a_record_that_compaction_has_removed_is_not_the_newest() -> None:
    _, log = open_log(MemoryFiles())
    _, emptied = empty_batch(BatchHeader.read(batch("newest", timestamp_ms=9, base_offset=1)))
    log.append_as_follower(memoryview(batch("kept", timestamp_ms=5, leader_epoch=0)))
    log.append_as_follower(memoryview(emptied))

    assert log.max_timestamp() == (0, 5, 0)
    assert log.offset_for_timestamp(6, below=2) is None
