"""After a crash exactly the whole batches are kept; what was promised is never cut."""

import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core_log.foundation.errors import CorruptLog
from headwater.core_log.storage.log_config import LogConfig
from headwater.core_log.storage.partition_log import PartitionLog
from tests.builders import DATA, append, batch, open_log, sync, values_of
from tests.fakes import MemoryFiles

LOG = DATA / "log" / "orders-0" / "00000000000000000000.log"
POINTS = DATA / "log" / "recovery-point-offset-checkpoint"


class Written:
    """Batches of one to three records, the first of them below the recovery point."""

    def __init__(
        self, promised: int = 2, unsynced: int = 4, config: LogConfig | None = None
    ) -> None:
        self.files, self.config = MemoryFiles(), config or LogConfig()
        store, log = open_log(self.files, config=self.config)
        self.ends: list[tuple[int, int]] = [(0, 0)]
        for number in range(promised):
            self._append(log, number)
        sync(log, store)
        self.promised_offset, self.promised_size = log.end_offset, log.size
        for number in range(promised, promised + unsynced):
            self._append(log, number)
        self.values = values_of(log)
        self.content = self.files.read(LOG)

    def _append(self, log: PartitionLog, number: int) -> None:
        append(log, *[f"batch {number} record {place}" for place in range(1 + number % 3)])
        self.ends.append((log.size, log.end_offset))

    def crashed(self, content: bytes | None = None) -> MemoryFiles:
        """What a killed process leaves, with another content of the log file."""
        files = self.files.copy()
        if content is not None:
            files.open(LOG).content = bytearray(content)
        return files

    def open(self, files: MemoryFiles) -> PartitionLog:
        return open_log(files, config=self.config)[1]

    def kept(self, end_offset: int) -> list[tuple[int, bytes | None]]:
        return [each for each in self.values if each[0] < end_offset]


WRITTEN = Written()


@given(survived=st.integers(WRITTEN.promised_size, len(WRITTEN.content)))
def test_a_torn_tail_is_cut_at_the_last_whole_batch(survived: int) -> None:
    log = WRITTEN.open(WRITTEN.crashed(WRITTEN.content[:survived]))

    size, end_offset = max(end for end in WRITTEN.ends if end[0] <= survived)
    assert (log.size, log.end_offset, log.durable_offset) == (size, end_offset, end_offset)
    assert values_of(log) == WRITTEN.kept(end_offset)


@given(survived=st.integers(0, WRITTEN.promised_size - 1))
def test_a_log_that_ends_before_its_recovery_point_is_an_error(survived: int) -> None:
    files = WRITTEN.crashed(WRITTEN.content[:survived])

    with pytest.raises(CorruptLog) as caught:
        WRITTEN.open(files)

    assert caught.value.facts["file"] == str(LOG)
    assert caught.value.facts["recovery_point"] == WRITTEN.promised_offset
    assert files.size(LOG) == survived


@given(position=st.integers(WRITTEN.promised_size, len(WRITTEN.content) - 1), bit=st.integers(0, 7))
def test_damage_above_the_recovery_point_cuts_there_and_keeps_what_followed(
    position: int, bit: int
) -> None:
    files = WRITTEN.crashed()
    files.open(LOG).flip_bit(position, bit)

    log = WRITTEN.open(files)

    size, end_offset = max(end for end in WRITTEN.ends if end[0] <= position)
    epoch_field = position - size in range(12, 16)  # outside the checksum, by Kafka's format
    if epoch_field:
        return
    assert (log.size, log.end_offset) == (size, end_offset)
    assert values_of(log) == WRITTEN.kept(end_offset)
    is_last = end_offset == WRITTEN.ends[-2][1]
    kept = [path for path in files.files if ".cut-" in path.name]
    assert is_last or kept
    if kept:
        assert len(files.read(kept[0])) == len(WRITTEN.content) - size


def test_a_truncation_is_reported_with_both_ranges(caplog: pytest.LogCaptureFixture) -> None:
    files = WRITTEN.crashed()
    size, end_offset = WRITTEN.ends[3]
    files.open(LOG).flip_bit(size + 70)

    with caplog.at_level(logging.WARNING):
        WRITTEN.open(files)

    (message,) = caplog.messages
    following = WRITTEN.ends[4][1]
    for fact in (
        f"position={size}",
        f"next_offset={end_offset}",
        f"found_from={following}",
        f"found_to={WRITTEN.ends[-1][1]}",
        ".cut-",
    ):
        assert fact in message


@given(position=st.integers(0, 60), bit=st.integers(0, 7))
def test_a_damaged_head_below_the_recovery_point_is_an_error_or_harmless_but_never_cut(
    position: int, bit: int
) -> None:
    files = WRITTEN.crashed()
    files.open(LOG).flip_bit(position, bit)
    before = files.read(LOG)

    try:
        WRITTEN.open(files)
    except CorruptLog as error:
        assert error.facts["file"] == str(LOG)
        assert "position" in error.facts

    assert files.read(LOG)[: WRITTEN.promised_size] == before[: WRITTEN.promised_size]


def test_damage_below_the_recovery_point_is_found_when_the_batch_is_read_back() -> None:
    written = Written(promised=40, config=LogConfig(index_interval_bytes=200))
    files = written.crashed()
    size, end_offset = written.ends[5]
    files.open(LOG).flip_bit(size + 70)
    log = written.open(files)

    with pytest.raises(CorruptLog, match="fails its checksum") as caught:
        list(log.batches(0))

    assert caught.value.facts == {"file": str(LOG), "position": size, "offset": end_offset}


@given(zeros=st.integers(1, 5000), whole=st.integers(2, len(WRITTEN.ends) - 1))
def test_zeros_behind_the_last_batch_are_a_clean_end(zeros: int, whole: int) -> None:
    size, end_offset = WRITTEN.ends[whole]
    files = WRITTEN.crashed(WRITTEN.content[:size] + bytes(zeros))

    log = WRITTEN.open(files)

    assert (log.size, log.end_offset) == (size, end_offset)
    assert files.size(LOG) == size
    assert not [path for path in files.files if ".cut-" in path.name]


def test_a_torn_end_without_a_recovery_point_is_cut_and_damage_inside_is_an_error() -> None:
    torn, damaged = WRITTEN.crashed(WRITTEN.content[:-3]), WRITTEN.crashed()
    damaged.open(LOG).flip_bit(70)
    for files in (torn, damaged):
        files.remove(POINTS)

    assert WRITTEN.open(torn).end_offset == WRITTEN.ends[-2][1]
    with pytest.raises(CorruptLog, match="recovery point is lost"):
        WRITTEN.open(damaged)
    assert len(damaged.read(LOG)) == len(WRITTEN.content)


def test_a_new_partition_that_was_never_synced_may_be_torn_anywhere() -> None:
    files = MemoryFiles()
    _, log = open_log(files)
    ends = [append(log, f"value {number}") and log.size for number in range(5)]
    crashed = files.copy()
    crashed.open(LOG).flip_bit(ends[1] + 70)

    _, log = open_log(crashed)

    assert [offset for offset, _ in values_of(log)] == [0, 1]


def test_only_what_is_on_disk_may_have_been_compacted() -> None:
    config = LogConfig(segment_bytes=200, cleanup_policy=frozenset({"compact"}))
    written = Written(promised=0, unsynced=8, config=config)
    first = min(segments_of(written.files))
    files = written.crashed()
    files.open(first).truncate(0)

    log = written.open(files)

    assert (log.start_offset, log.end_offset) == (0, 0)


def segments_of(files: MemoryFiles) -> list[Path]:
    return sorted(path for path in files.files if path.suffix == ".log")


def test_segments_behind_one_that_lost_its_end_are_put_aside_whole() -> None:
    written = Written(promised=2, unsynced=20, config=LogConfig(segment_bytes=700))
    first, second, third = segments_of(written.files)[:3]
    end_offset = int(second.stem)
    files = written.crashed()
    files.open(first).truncate(files.size(first) - 5)

    log = written.open(files)

    assert log.end_offset < end_offset
    assert values_of(log) == written.kept(log.end_offset)
    assert segments_of(files) == [first]
    cut = {path.name.partition(".cut-")[0] for path in files.files if ".cut-" in path.name}
    assert {second.name, third.name} <= cut
    append(log, "goes on")
    assert values_of(log)[-1] == (log.end_offset - 1, b"goes on")


def test_a_missing_segment_above_the_recovery_point_ends_the_log_there() -> None:
    written = Written(promised=2, unsynced=20, config=LogConfig(segment_bytes=700))
    first, second = segments_of(written.files)[:2]
    files = written.crashed()
    files.remove(second)

    log = written.open(files)

    assert log.end_offset == int(second.stem)
    assert segments_of(files) == [first]


def test_a_segment_that_is_gone_below_the_recovery_point_is_an_error() -> None:
    written = Written(promised=20, unsynced=1, config=LogConfig(segment_bytes=700))
    files = written.crashed()
    files.remove(segments_of(files)[-1])

    with pytest.raises(CorruptLog, match="at its recovery point"):
        written.open(files)


def test_a_clean_stop_needs_no_scan_and_loses_nothing() -> None:
    files = MemoryFiles()
    store, log = open_log(files)
    for number in range(50):
        append(log, f"value {number}")
    before = values_of(log)
    store.close()
    assert (DATA / "log" / ".kafka_cleanshutdown") in files.files

    store, log = open_log(files.copy())

    assert store.was_clean
    assert values_of(log) == before
    assert log.durable_offset == 50


def test_a_clean_stop_counts_once() -> None:
    files = MemoryFiles()
    store, _ = open_log(files)
    store.close()
    store, _ = open_log(files)
    store.close(clean=False)

    assert not open_log(files)[0].was_clean


def test_a_cleanly_closed_log_that_is_shorter_now_is_an_error() -> None:
    files = MemoryFiles()
    store, log = open_log(files)
    append(log, "one")
    append(log, "two")
    store.close()
    files.open(LOG).truncate(len(batch("one")))

    with pytest.raises(CorruptLog, match="closed cleanly"):
        open_log(files)


def test_opening_what_was_closed_cleanly_changes_nothing_on_disk() -> None:
    files = MemoryFiles()
    store, log = open_log(files)
    append(log, "x")
    log.epochs.assign(3, log.end_offset)
    store.close()
    store, log = open_log(files)
    store.close()
    before = {path: file.content[:] for path, file in files.files.items()}

    store, log = open_log(files)
    log.epochs.assign(3, log.end_offset)
    store.close()

    assert {path: file.content for path, file in files.files.items()} == before


def test_files_of_unfinished_work_are_removed() -> None:
    files = WRITTEN.crashed()
    for name in (
        "00000000000000000000.log.cleaned",
        "00000000000000000009.log.deleted",
        "leader-epoch-checkpoint.tmp",
    ):
        files.open(LOG.with_name(name), create=True)

    WRITTEN.open(files)

    assert {path.suffix for path in files.files} & {".cleaned", ".deleted", ".tmp"} == set()


def test_a_lost_epoch_checkpoint_is_made_anew_from_the_batches() -> None:
    files = MemoryFiles()
    store, log = open_log(files)
    for epoch in (0, 0, 2, 5, 5):
        append(log, "x", leader_epoch=epoch)
    sync(log, store)
    starts = log.epochs.starts
    files.open(LOG.with_name("leader-epoch-checkpoint")).content[:] = b"no checkpoint"

    _, log = open_log(files.copy())

    assert log.epochs.starts == starts
