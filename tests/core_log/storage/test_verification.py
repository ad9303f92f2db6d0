"""Whatever is damaged in a partition's files is found, with its place and its offsets."""

from pathlib import Path

import pytest

from headwater.core_log.model.log import TopicPartition
from headwater.core_log.records.record_codec import PlainRecord, encode_batch, encode_marker
from headwater.core_log.storage.checkpoints import CLEANED_TO, RECOVERY_POINTS, OffsetCheckpoint
from headwater.core_log.storage.files import OsFiles
from headwater.core_log.storage.index import OFFSET_ENTRY, TIME_ENTRY
from headwater.core_log.storage.verification import (
    LogFinding,
    Promise,
    VerificationStats,
    promise_of,
    verify_partition,
)

RECORDS = 10
FIRST_TIME_MS = 1_700_000_000_000
BATCHES = 8
NEVER_COMPACTED = Promise(cleaned_to=0)


def batch_at(offset: int) -> bytes:
    times = range(FIRST_TIME_MS + offset, FIRST_TIME_MS + offset + RECORDS)
    records = [PlainRecord(b"key", b"value", timestamp_ms=time_ms) for time_ms in times]
    return bytes(encode_batch(records, base_offset=offset))


class Partition:
    """Two segments of four batches each, with an index entry for every batch."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.batches = [batch_at(number * RECORDS) for number in range(BATCHES)]
        for first in (0, BATCHES // 2):
            self.write(first, self.batches[first : first + BATCHES // 2])

    def write(self, first: int, batches: list[bytes]) -> None:
        position, offsets, times = 0, b"", b""
        for number, batch in enumerate(batches):
            last = number * RECORDS + RECORDS - 1
            offsets += OFFSET_ENTRY.pack(last, position)
            times += TIME_ENTRY.pack(FIRST_TIME_MS + first * RECORDS + last, last)
            position += len(batch)
        self.path(first, "log").write_bytes(b"".join(batches))
        self.path(first, "index").write_bytes(offsets)
        self.path(first, "timeindex").write_bytes(times)

    def path(self, first: int, suffix: str) -> Path:
        return self.directory / f"{first * RECORDS:020d}.{suffix}"

    def change(self, path: Path, position: int, content: bytes) -> None:
        data = bytearray(path.read_bytes())
        data[position : position + len(content)] = content
        path.write_bytes(data)

    def findings(self, promise: Promise = NEVER_COMPACTED) -> list[LogFinding]:
        return list(verify_partition(OsFiles(), self.directory, promise, VerificationStats()))


@pytest.fixture
def partition(tmp_path: Path) -> Partition:
    return Partition(tmp_path)


def test_a_sound_partition_is_read_whole_and_nothing_is_found(partition: Partition) -> None:
    tally = VerificationStats()

    findings = list(verify_partition(OsFiles(), partition.directory, Promise(0, 0), tally))

    assert findings == []
    assert (tally.segments, tally.batches) == (2, BATCHES)
    assert (tally.start_offset, tally.end_offset) == (0, BATCHES * RECORDS)


def test_a_flipped_bit_costs_its_own_batch_and_no_other(partition: Partition) -> None:
    log, size = partition.path(0, "log"), len(partition.batches[0])
    partition.change(log, size + 70, b"\xff")

    (finding,) = partition.findings()

    assert finding == LogFinding(str(log), "batch fails its checksum", size, 10, 20)


def test_damage_below_the_recovery_point_is_damage_even_at_the_very_end(
    partition: Partition,
) -> None:
    log = partition.path(4, "log")
    log.write_bytes(log.read_bytes()[:-5])

    (finding,) = partition.findings(Promise(recovery_point=80, cleaned_to=0))

    assert finding.is_damage
    assert (finding.first_offset, finding.next_offset) == (70, None)


def test_a_torn_end_above_the_recovery_point_is_what_a_crash_leaves(partition: Partition) -> None:
    log = partition.path(4, "log")
    log.write_bytes(log.read_bytes()[:-5])

    (finding,) = partition.findings(Promise(recovery_point=70, cleaned_to=0))

    assert not finding.is_damage
    assert finding.problem.startswith("unfinished end")


def test_zeros_at_the_end_are_room_that_was_never_written(partition: Partition) -> None:
    log = partition.path(4, "log")
    log.write_bytes(log.read_bytes() + bytes(5000))

    assert partition.findings() == []


def test_a_torn_end_of_a_segment_that_is_not_the_last_is_damage(partition: Partition) -> None:
    log = partition.path(0, "log")
    log.write_bytes(log.read_bytes()[:-5])

    findings = partition.findings()

    assert {finding.is_damage for finding in findings} == {True}
    assert {finding.first_offset for finding in findings} == {30}


def test_missing_offsets_are_a_loss_where_compaction_has_not_been(partition: Partition) -> None:
    partition.path(0, "index").unlink()
    partition.path(0, "timeindex").unlink()
    partition.path(0, "log").write_bytes(partition.batches[0] + b"".join(partition.batches[2:4]))

    lost = partition.findings(Promise(cleaned_to=10))
    compacted = partition.findings(Promise(cleaned_to=11))
    unknown = partition.findings(Promise(cleaned_to=None))

    assert [(finding.problem, finding.first_offset, finding.next_offset) for finding in lost] == [
        ("offsets are missing", 10, 20)
    ]
    assert compacted == []
    assert [finding.is_damage for finding in unknown] == [False]


def test_an_offset_index_that_points_elsewhere_is_found(partition: Partition) -> None:
    index = partition.path(0, "index")
    partition.change(index, OFFSET_ENTRY.size, OFFSET_ENTRY.pack(18, len(partition.batches[0])))

    (finding,) = partition.findings()

    assert (finding.file, finding.first_offset) == (str(index), 18)


def test_an_index_that_points_beyond_the_log_is_found(partition: Partition) -> None:
    index = partition.path(4, "index")
    index.write_bytes(index.read_bytes() + OFFSET_ENTRY.pack(49, 1 << 20))

    (finding,) = partition.findings()

    assert finding.problem == "offset index points beyond the last batch"


def test_a_time_index_that_hides_records_is_found(partition: Partition) -> None:
    times = partition.path(0, "timeindex")
    partition.change(times, TIME_ENTRY.size, TIME_ENTRY.pack(FIRST_TIME_MS + 12, 19))

    (finding,) = partition.findings()

    assert finding.problem == "time index hides a batch with a later time"


def test_a_transaction_index_must_find_its_marker(partition: Partition) -> None:
    marker = encode_marker(
        commit=False,
        producer_id=7,
        producer_epoch=0,
        coordinator_epoch=0,
        timestamp_ms=FIRST_TIME_MS + 80,
        base_offset=80,
    )
    log, index = partition.path(4, "log"), partition.path(4, "txnindex")
    log.write_bytes(log.read_bytes() + marker)
    entry_of = {id_: f"{0:04x}{id_:016x}{40:016x}{80:016x}{40:016x}" for id_ in (7, 8)}

    index.write_bytes(bytes.fromhex(entry_of[7]))
    right = partition.findings()
    index.write_bytes(bytes.fromhex(entry_of[8]))
    (wrong,) = partition.findings()

    assert right == []
    assert wrong.problem == "transaction index names a marker that is not there"


def test_files_left_behind_by_a_crash_or_a_recovery_are_mentioned(partition: Partition) -> None:
    log = partition.path(4, "log")
    log.with_name(f"{log.name}.cut-1700000000000").write_bytes(b"batches")
    log.with_name(f"{0:020d}-{40:020d}.swap").write_bytes(b"batches")

    findings = partition.findings()

    assert [finding.is_damage for finding in findings] == [False, False]
    assert "interrupted compaction" in findings[0].problem
    assert "set aside by an earlier start" in findings[1].problem


def test_a_look_at_the_files_cannot_change_them(partition: Partition) -> None:
    files = OsFiles(may_write=False)

    assert (
        list(verify_partition(files, partition.directory, NEVER_COMPACTED, VerificationStats()))
        == []
    )
    with pytest.raises(OSError, match="Bad file descriptor"):
        files.open(partition.path(0, "log")).write(0, b"x")


def test_promises_are_read_from_the_checkpoints_of_the_log(tmp_path: Path) -> None:
    files, orders = OsFiles(), TopicPartition("orders", 0)

    assert promise_of(files, tmp_path, orders) == Promise(0, None)
    OffsetCheckpoint(files, tmp_path / RECOVERY_POINTS).set("orders", 0, 70)
    assert promise_of(files, tmp_path, orders) == Promise(70, 0)
    OffsetCheckpoint(files, tmp_path / CLEANED_TO).set("orders", 0, 30)
    assert promise_of(files, tmp_path, orders) == Promise(70, 30)
