"""Old segments go when they are past time or size, never what a reader may still need."""

from dataclasses import replace

import pytest

from headwater.core_log.foundation.errors import OffsetOutOfRange
from headwater.core_log.storage.log_config import LogConfig
from headwater.core_log.storage.partition_log import PartitionLog
from tests.builders import DATA, append, open_log, sync, values_of
from tests.fakes import MemoryFiles

CONFIG = LogConfig(segment_bytes=250, retention_ms=-1)


def written(config: LogConfig, count: int = 10) -> tuple[MemoryFiles, PartitionLog]:
    """Two batches to a segment, one second apart."""
    files = MemoryFiles()
    _, log = open_log(files, config=config)
    for number in range(count):
        append(log, f"value {number}" + "x" * 40, timestamp_ms=number * 1000)
    log.sync()
    return files, log


def test_segments_go_when_their_newest_record_is_too_old() -> None:
    _, log = written(replace(CONFIG, retention_ms=5000))
    assert [segment.base_offset for segment in log.segments] == [0, 2, 4, 6, 8]

    log.apply_retention(8001, below=log.end_offset)

    assert log.start_offset == 4


def test_segments_go_while_the_rest_is_large_enough() -> None:
    _, log = written(CONFIG)
    segment = log.segments.first.size
    log.config = replace(CONFIG, retention_bytes=log.size - 2 * segment)

    log.apply_retention(0, below=log.end_offset)

    assert log.start_offset == 4


def test_a_segment_does_not_go_if_less_than_retention_bytes_would_be_left() -> None:
    _, log = written(CONFIG)
    log.config = replace(CONFIG, retention_bytes=log.size - 1)

    assert log.apply_retention(0, below=log.end_offset) is None


def test_nothing_goes_that_is_not_below_the_bound() -> None:
    _, log = written(replace(CONFIG, retention_ms=1))

    log.apply_retention(1_000_000, below=5)

    assert log.start_offset == 4


def test_the_newest_segment_goes_too_when_all_of_it_is_old() -> None:
    _, log = written(replace(CONFIG, retention_ms=1))

    log.apply_retention(1_000_000, below=log.end_offset)

    assert (log.start_offset, log.end_offset, log.size) == (10, 10, 0)
    assert append(log, "goes on") == 10


def test_a_compacted_topic_loses_nothing_to_retention() -> None:
    _, log = written(replace(CONFIG, retention_ms=1, cleanup_policy=frozenset({"compact"})))

    assert log.apply_retention(1_000_000, below=log.end_offset) is None


COMPACTED = LogConfig(cleanup_policy=frozenset({"compact"}), max_compaction_lag_ms=5000)


def test_a_segment_takes_no_records_for_longer_than_their_compaction_may_lag() -> None:
    _, log = written(COMPACTED)

    assert [segment.base_offset for segment in log.segments] == [0, 6]


@pytest.mark.parametrize("leads", [True, False])
def test_records_that_compaction_must_look_at_are_in_a_closed_segment(leads: bool) -> None:
    _, log = written(COMPACTED, count=3)

    log.apply_retention(5000, below=log.end_offset, leads=leads)
    before = len(log.segments)
    log.apply_retention(5001, below=log.end_offset, leads=leads)
    log.apply_retention(5002, below=log.end_offset, leads=leads)

    assert (before, len(log.segments), log.start_offset) == (1, 2, 0)


def test_files_are_out_of_the_way_at_once_and_removed_by_the_job() -> None:
    files, log = written(replace(CONFIG, retention_ms=5000))

    removal = log.apply_retention(8001, below=log.end_offset)

    names = files.names(DATA / "log" / "orders-0")
    assert "00000000000000000000.log" not in names
    assert "00000000000000000000.log.deleted" in names
    assert removal is not None
    removal.run()
    assert not [name for name in files.names(DATA / "log" / "orders-0") if "deleted" in name]


def test_deleted_records_are_gone_for_readers_and_after_a_restart() -> None:
    files = MemoryFiles()
    store, log = open_log(files, config=CONFIG)
    for number in range(10):
        append(log, f"value {number}" + "x" * 40)
    sync(log, store)

    assert log.delete_records_before(5) == 5

    with pytest.raises(OffsetOutOfRange):
        log.read(4, below=10, bytes_max=1000, at_least_one=True)
    log.apply_retention(0, below=10)
    assert [segment.base_offset for segment in log.segments] == [4, 6, 8]
    _, log = open_log(files.copy(), config=CONFIG)
    assert [offset for offset, _ in values_of(log)] == [5, 6, 7, 8, 9]


def test_deleting_beyond_the_end_deletes_everything_and_no_more() -> None:
    _, log = written(CONFIG)

    assert log.delete_records_before(99) == 10
    assert log.delete_records_before(3) == 10


def test_a_log_whose_records_were_all_deleted_goes_on_after_a_restart() -> None:
    files = MemoryFiles()
    store, log = open_log(files)
    append(log, "x", "y")
    sync(log, store)
    log.delete_records_before(2)

    _, log = open_log(files.copy())

    assert (log.start_offset, log.end_offset) == (2, 2)
    assert append(log, "z") == 2
