"""Whenever the power fails, what was synced is there afterwards, and nothing comes back changed."""

from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core_log.storage.log_config import LogConfig
from headwater.core_log.storage.partition_log import PartitionLog
from headwater.core_log.storage.store import Store
from tests.builders import TOPIC_ID, Sequenced, append, open_log, open_store, sync, values_of
from tests.fakes import FaultyFiles, MemoryFiles, PowerCut

pytestmark = pytest.mark.simulation

CONFIG = LogConfig(segment_bytes=900, index_interval_bytes=100)


class History:
    """Drives a store through everything that changes files, and notes what it was promised."""

    def __init__(self, files: FaultyFiles) -> None:
        self.files = files
        self.promised: list[tuple[int, bytes | None]] = []
        self.written: list[tuple[int, bytes | None]] = []
        self.promised_start = 0
        self.aborted: list[int] = []
        self.aborted_promised = 0

    def run(self) -> None:
        store, log = open_log(self.files, config=CONFIG)
        for number in range(24):
            self._append(log, number)
            if number % 4 == 1:
                self._abort(log)
            if number % 3 == 2:
                self._sync(log, store)
            if number == 14:
                log.delete_records_before(4)
                self.promised_start = 4
            if number == 16:
                removal = log.apply_retention(0, below=log.durable_offset)
                if removal is not None:
                    removal.run()
        self._abort(log)
        self._sync(log, store)
        store.close()
        store, log = open_log(self.files, config=CONFIG)
        self._append(log, 99)
        self._sync(log, store)

    def _append(self, log: PartitionLog, number: int) -> None:
        value = f"value {number} {'x' * (number * 7 % 90)}".encode()
        self.written.append((log.end_offset, value))
        stamp = Sequenced(7, 0, number) if number < 24 else None
        append(log, value, producer=stamp, leader_epoch=number // 10)

    def _sync(self, log: PartitionLog, store: Store) -> None:
        sync(log, store)
        self.promised, self.aborted_promised = list(self.written), len(self.aborted)

    def _abort(self, log: PartitionLog) -> None:
        epoch = len(self.aborted)
        stamp = Sequenced(8, epoch, 0, is_transactional=True)
        self.written.append((log.end_offset, b"aborted"))
        self.aborted.append(log.end_offset)
        append(log, b"aborted", producer=stamp, leader_epoch=9)
        log.append_marker(8, epoch, commit=False, coordinator_epoch=0, leader_epoch=9, now_ms=0)

    def check(self, files: MemoryFiles) -> None:
        store = open_store(files)
        log = store.open_partition("orders", 0, topic_id=TOPIC_ID, config=CONFIG)
        found = values_of(log)
        held = [each for each in self.written if each[0] >= log.start_offset]
        assert found == held[: len(found)], "what comes back is what was written, in order"
        promised = [each for each in self.promised if each[0] >= log.start_offset]
        assert found[: len(promised)] == promised, "what was synced is there"
        assert log.start_offset >= self.promised_start, "deleted records do not come back"
        assert log.durable_offset == log.end_offset
        self._check_aborted(log)
        append(log, "goes on", leader_epoch=20)
        sync(log, store)
        assert values_of(log)[-1][1] == b"goes on"

    def _check_aborted(self, log: PartitionLog) -> None:
        """Of every aborted transaction it is known that it was, as soon as its marker is there."""
        found = [each.first_offset for each in log.find_aborted(log.start_offset, 1 << 40)]
        held = [each for each in self.aborted if each >= log.start_offset]
        gone = len(self.aborted) - len(held)
        assert found == held[: len(found)]
        assert len(found) >= self.aborted_promised - gone
        unstable = log.producers.first_unstable_offset()
        assert unstable is None or unstable not in found


def changes_of_a_whole_history() -> int:
    files = FaultyFiles(MemoryFiles())
    History(files).run()
    return files.change_count


CHANGES = changes_of_a_whole_history()


def cut_at(change: int) -> tuple[History, MemoryFiles]:
    disk = MemoryFiles()
    files = FaultyFiles(disk)
    files.fail_at, files.error = change, PowerCut()
    history = History(files)
    with pytest.raises(PowerCut):
        history.run()
    return history, disk


@given(change=st.integers(1, CHANGES), seed=st.integers(0, 1 << 32))
def test_a_power_cut_loses_nothing_that_was_synced(change: int, seed: int) -> None:
    history, disk = cut_at(change)

    history.check(disk.after_power_cut(Random(seed)))


@given(change=st.integers(1, CHANGES))
def test_a_killed_process_loses_nothing_that_was_written(change: int) -> None:
    history, disk = cut_at(change)
    history.promised = history.written[:-1]  # the last may not have reached the kernel

    history.check(disk.after_kill())


@given(first=st.integers(1, CHANGES), second=st.integers(1, 40), seed=st.integers(0, 1 << 32))
def test_a_power_cut_during_the_recovery_from_one_loses_nothing_either(
    first: int, second: int, seed: int
) -> None:
    history, disk = cut_at(first)
    recovering = FaultyFiles(disk.after_power_cut(Random(seed)))
    recovering.fail_at, recovering.error = second, PowerCut()
    survived = recovering._files
    assert isinstance(survived, MemoryFiles)

    try:
        store = open_store(recovering)
        store.open_partition("orders", 0, topic_id=TOPIC_ID, config=CONFIG)
    except PowerCut:
        pass

    history.check(survived.after_power_cut(Random(seed + 1)))


def test_the_index_of_aborted_transactions_outlives_a_recovery_that_is_cut_off() -> None:
    """The index has entries from before the recovery point, which are promised, and others behind
    it, which the recovery takes out and finds anew."""
    disk = MemoryFiles()
    history = History(FaultyFiles(disk))
    store, log = open_log(history.files)
    history._abort(log)
    history._sync(log, store)
    history._abort(log)
    log.sync_job()  # writes the index; nobody waits for the disk

    for seed in range(60):
        for step in range(1, 8):
            recovering = FaultyFiles(disk.after_power_cut(Random(seed)))
            recovering.fail_at, recovering.error = step, PowerCut()
            with suppress(PowerCut):
                open_log(recovering, config=CONFIG)
            assert isinstance(recovering._files, MemoryFiles)
            history.check(recovering._files.after_power_cut(Random(seed + 1)))


def test_a_deleted_partition_does_not_come_back() -> None:
    for seed in range(20):
        files = MemoryFiles()
        store, log = open_log(files)
        append(log, "x")
        sync(log, store)
        store.delete_partition("orders", 0)

        cut = open_store(files.after_power_cut(Random(seed)))

        assert cut.found == frozenset()
        assert [name for name in cut.files.names(Path("/data/log")) if "orders" in name] == []
