"""A compacted segment takes the place of its originals wholly or not at all."""

from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core_log.foundation.errors import StorageFailed
from headwater.core_log.records.record_codec import PlainRecord, encode_batch
from headwater.core_log.storage.files import Files
from headwater.core_log.storage.log_config import LogConfig
from headwater.core_log.storage.partition_log import PartitionLog
from headwater.core_log.storage.segment import LOG
from headwater.core_log.storage.store import Store
from headwater.core_log.storage.swap import CleanedSegment, cleaned_path
from tests.builders import TOPIC_ID, append, open_log, open_store, sync, values_of
from tests.fakes import FaultyFiles, MemoryFiles, PowerCut

CONFIG = LogConfig(segment_bytes=250, cleanup_policy=frozenset({"compact"}))
VALUES = [(offset, f"value {offset}".encode() + b"x" * 40) for offset in range(10)]
COMPACTED = [VALUES[1], *VALUES[4:]]


def written(files: Files) -> tuple[Store, PartitionLog]:
    """Five segments of two batches each."""
    store, log = open_log(files, config=CONFIG)
    for _, value in VALUES:
        append(log, value)
    sync(log, store)
    assert [segment.base_offset for segment in log.segments] == [0, 2, 4, 6, 8]
    return store, log


def write_cleaned(files: Files, log: PartitionLog) -> int:
    """What compaction makes of the first two segments: only offset 1 is left. Its size."""
    record = PlainRecord(b"0", VALUES[1][1], timestamp_ms=5, offset=1)
    data = encode_batch([record], base_offset=1, leader_epoch=0)
    file = files.open(cleaned_path(log.directory, 0, LOG), create=True)
    file.write(0, data)
    file.sync()
    return len(data)


def compact(files: Files, log: PartitionLog) -> None:
    size = write_cleaned(files, log)
    log.note_cleaned(cleaned_to=4, deletes_dropped_to=2)
    log.swap_in(0, 4, size=size).run()


def test_readers_see_what_compaction_left() -> None:
    files = MemoryFiles()
    _, log = written(files)

    compact(files, log)

    assert values_of(log) == COMPACTED
    assert [segment.base_offset for segment in log.segments] == [0, 4, 6, 8]
    assert (log.cleaned_to, log.deletes_dropped_to) == (4, 2)
    found = log.read(2, below=10, bytes_max=1 << 20, at_least_one=True)
    assert found is not None
    assert found.next_offset == 6


def test_a_reader_under_way_keeps_the_originals() -> None:
    files = MemoryFiles()
    _, log = written(files)
    held = log.read(0, below=10, bytes_max=1 << 20, at_least_one=True)
    assert held is not None
    before = held.read()

    compact(files, log)

    assert held.read() == before


def test_a_cleaned_segment_that_a_second_worker_began_is_not_taken_for_the_whole() -> None:
    files = MemoryFiles()
    _, log = written(files)
    size = write_cleaned(files, log)
    log.note_cleaned(cleaned_to=4, deletes_dropped_to=2)
    CleanedSegment(files, log.directory, 0, index_interval=4096)

    with pytest.raises(StorageFailed, match="differs from the written one"):
        log.swap_in(0, 4, size=size)

    assert values_of(log) == VALUES


def test_a_segment_that_could_not_be_looked_at_for_a_moment_is_still_read_whole() -> None:
    files = FaultyFiles(MemoryFiles())
    _, log = written(files)
    compact(files, log)

    files.fault = refuse_segments
    with pytest.raises(OSError, match="does not answer"):
        _ = log.segments.first.newest_ms
    files.heal()

    assert values_of(log) == COMPACTED


def refuse_segments(operation: str, path: Path) -> None:
    if operation == "read" and path.suffix == LOG:
        raise OSError("the disk does not answer")


def test_records_deleted_by_retention_meanwhile_do_not_come_back() -> None:
    files = MemoryFiles()
    store, log = written(files)
    size = write_cleaned(files, log)
    log.delete_records_before(2)
    log.apply_retention(0, below=10)

    log.swap_in(0, 4, size=size).run()

    assert values_of(log) == VALUES[2:]
    assert not [name for name in files.names(log.directory) if name.endswith(".cleaned")]
    store.close()


def compaction_changes() -> int:
    files = FaultyFiles(MemoryFiles())
    _, log = written(files)
    files.change_count = 0
    compact(files, log)
    return files.change_count


@given(
    change=st.integers(1, compaction_changes()), seed=st.integers(0, 1 << 32), kills=st.booleans()
)
def test_a_crash_leaves_the_originals_or_the_result(change: int, seed: int, kills: bool) -> None:
    disk = MemoryFiles()
    files = FaultyFiles(disk)
    _, log = written(files)
    files.change_count, files.fail_at, files.error = 0, change, PowerCut()
    with pytest.raises(PowerCut):
        compact(files, log)

    survived = disk.after_kill() if kills else disk.after_power_cut(Random(seed))
    store = open_store(survived)
    log = store.open_partition("orders", 0, topic_id=TOPIC_ID, config=CONFIG)

    found = values_of(log)
    assert found in (VALUES, COMPACTED)
    if found == COMPACTED:
        assert (log.cleaned_to, log.deletes_dropped_to) == (4, 2)
    assert not [name for name in survived.names(log.directory) if name.count(".") > 1]
