"""A power cut at any moment of a compaction takes no newest value and brings no old one back."""

from dataclasses import replace
from random import Random

import pytest

from headwater.core_log.records.batch_header import BatchHeader
from headwater.core_log.records.record_codec import PlainRecord, decode_batch, encode_batch
from headwater.core_log.storage.compaction import CompactionRequest, SegmentFacts, cleanable
from headwater.core_log.storage.compaction_worker import Compaction
from headwater.core_log.storage.files import Files
from headwater.core_log.storage.log_config import LogConfig
from headwater.core_log.storage.partition_log import PartitionLog
from headwater.core_log.storage.store import Store
from tests.builders import START_MS, open_log, sync
from tests.core_log.storage.compacted_partition import DIGESTS, Visible, fold
from tests.fakes import FaultyFiles, MemoryFiles, PowerCut

RETENTION_MS = 1000
CONFIG = LogConfig(
    cleanup_policy=frozenset({"compact"}),
    delete_retention_ms=RETENTION_MS,
    min_cleanable_dirty_ratio=0.0,
    segment_bytes=400,
)
Rows = dict[bytes, bytes | None]
ROUNDS: tuple[Rows, ...] = (
    {b"a": b"1", b"b": b"1"},
    {b"a": None, b"c": b"1"},
    {b"b": b"2"},
    {b"d": b"1", b"c": b"2"},
)


def append(log: PartitionLog, rows: Rows) -> None:
    records = [PlainRecord(key, value, timestamp_ms=START_MS) for key, value in rows.items()]
    data = encode_batch(records)
    log.append(memoryview(data), BatchHeader.read(data), leader_epoch=0, now_ms=START_MS)


def filled(files: Files) -> tuple[Store, PartitionLog]:
    """A log of several closed segments, all of it on disk."""
    store, log = open_log(files, config=CONFIG)
    for rows in ROUNDS:
        append(log, rows)
        log.roll()
        sync(log, store)
    return store, log


def compact(log: PartitionLog, files: Files, now_ms: int) -> None:
    """As a broker does it, but for the process."""
    closed = [each for each in log.segments if each is not log.segments.active]
    facts = [SegmentFacts(each.base_offset, each.size, START_MS, START_MS) for each in closed]
    found = cleanable(
        facts,
        log.config,
        active_offset=log.segments.active.base_offset,
        first_dirty_offset=log.first_dirty_offset,
        stable_offset=log.recovery_point,
        now_ms=now_ms,
    )
    if found is None:
        return
    request = CompactionRequest(
        directory=str(log.directory),
        segments=found.segments,
        first_dirty_offset=found.first_dirty_offset,
        end_offset=found.end_offset,
        now_ms=now_ms,
        delete_retention_ms=RETENTION_MS,
        segment_bytes=log.config.segment_bytes,
        index_bytes=1 << 20,
        index_interval_bytes=64,
    )
    result = Compaction(request, files, DIGESTS).run()
    log.note_cleaned(cleaned_to=result.cleaned_to, deletes_dropped_to=result.deletes_dropped_to)
    for swap in result.swaps:
        log.swap_in(swap.base_offset, swap.end_offset, size=swap.size).run()
    log.note_compacted(result.first_dirty_offset)


def read(log: PartitionLog) -> list[Visible]:
    return [
        Visible(record.offset, record.key, record.value, record.timestamp_ms)
        for batch in log.batches(log.start_offset)
        for record in decode_batch(batch)[1]
    ]


def history(files: FaultyFiles | MemoryFiles, *, passes: int) -> PartitionLog:
    """Compacts again and again while time and the log go on."""
    store, log = filled(files)
    for number in range(passes):
        compact(log, files, START_MS + number * RETENTION_MS)
        append(log, {b"e": b"%d" % number})
        log.roll()
        sync(log, store)
    return log


def check(log: PartitionLog, before: list[Visible]) -> None:
    table, stored = fold(before), read(log)
    assert set(stored) <= set(before)
    assert fold(stored) == table
    for offset in range(log.cleaned_to, log.end_offset):
        then = [record for record in before if record.offset < offset]
        assert fold(record for record in stored if record.offset < offset) == fold(then)
    for offset in range(log.deletes_dropped_to, log.end_offset):
        slept = fold(record for record in before if record.offset < offset)
        assert fold((r for r in stored if r.offset >= offset), slept) == table


def every_record() -> list[Visible]:
    log = history(MemoryFiles(), passes=0)
    rest = [Visible(log.end_offset + n, b"e", b"%d" % n, START_MS) for n in range(9)]
    return read(log) + rest


def changes_of_a_history() -> int:
    files = FaultyFiles(MemoryFiles())
    history(files, passes=3)
    return files.change_count


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_any_power_cut_leaves_the_table_and_its_marks_right(part: int) -> None:
    before = every_record()
    for moment in range(1 + part, changes_of_a_history() + 4, 4):
        disk = MemoryFiles()
        files = FaultyFiles(disk)
        files.error, files.fail_at = PowerCut(), moment
        try:
            history(files, passes=3)
        except PowerCut:
            disk = disk.after_power_cut(Random(moment))

        store, log = open_log(disk, config=CONFIG)
        survived = [record for record in before if record.offset < log.end_offset]
        check(log, survived)

        for number in range(3):
            later_ms = START_MS + (10 + number) * RETENTION_MS
            compact(log, disk, later_ms)
            check(log, survived)
            survived.append(Visible(log.end_offset, b"z", b"%d" % number, START_MS))
            append(log, {b"z": b"%d" % number})
            log.roll()
            sync(log, store)
        if len(survived) > 5:
            assert b"a" not in {record.key for record in read(log)}, "its tombstone has aged out"


def test_a_pass_that_was_announced_and_not_done_is_done_again() -> None:
    files = MemoryFiles()
    store, log = filled(files)
    log.note_cleaned(cleaned_to=log.end_offset, deletes_dropped_to=0)
    store.close(clean=False)

    _, log = open_log(files.after_kill(), config=replace(CONFIG))
    compact(log, files, START_MS)

    assert [record.key for record in read(log) if record.offset < log.first_dirty_offset] == [
        b"a",
        b"b",
        b"d",
        b"c",
    ]
