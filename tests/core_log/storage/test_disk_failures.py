"""A disk that refuses leaves no torn state; one that lies about a sync is not believed again."""

import errno
import os
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core_log.foundation.errors import HeadwaterError, StorageFailed
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.storage.log_config import LogConfig
from headwater.core_log.storage.partition_log import PartitionLog
from tests.builders import TOPIC_ID, Sequenced, append, open_log, open_store, sync, values_of
from tests.fakes import FaultyFiles, MemoryFiles

NEEDS_NO_ROOM = frozenset({"read", "truncate", "sync", "sync_directory", "remove"})
CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=100)


def write(log: PartitionLog, count: int, written: list[tuple[int, bytes | None]]) -> None:
    """Appends until the disk refuses, and notes what was taken."""
    for _ in range(count):
        value = b"value %d" % len(written) + b"x" * 60
        producer = Sequenced(7, 0, len(written))
        offset = append(log, value, producer=producer, leader_epoch=len(written) // 6)
        written.append((offset, value))


@given(fail_at=st.integers(1, 70), failures=st.integers(1, 6), is_short=st.booleans())
def test_the_log_goes_on_when_space_returns_as_if_nothing_had_been(
    fail_at: int, failures: int, is_short: bool
) -> None:
    disk = MemoryFiles()
    files = FaultyFiles(disk)
    store, log = open_log(files, config=CONFIG)
    files.change_count, files.fail_at, files.failures_max = 0, fail_at, failures
    files.is_short = is_short
    files.sound = NEEDS_NO_ROOM

    written: list[tuple[int, bytes | None]] = []
    refused = 0
    while len(written) < 30:
        try:
            write(log, 1, written)
        except StorageFailed as error:
            refused += 1
            assert "free some space" in error.hint
            assert values_of(log) == written
        assert log.end_offset == len(written)

    assert refused <= failures + 1
    assert not log.is_offline
    sync(log, store)
    store.close()
    assert values_of(open_log(disk.copy(), config=CONFIG)[1]) == written


def test_a_full_disk_says_so_and_an_append_that_fits_later_is_taken() -> None:
    files = FaultyFiles(MemoryFiles())
    _, log = open_log(files)
    append(log, "first")

    files.fail_at, files.is_short, files.sound = 0, True, NEEDS_NO_ROOM
    with pytest.raises(StorageFailed, match="no space left on device"):
        append(log, "refused")
    files.heal()
    append(log, "second")

    assert values_of(log) == [(0, b"first"), (1, b"second")]


def test_a_refused_append_does_not_count_for_its_producer() -> None:
    files = FaultyFiles(MemoryFiles())
    _, log = open_log(files)
    append(log, "first", producer=Sequenced(7, 0, 0))
    files.fail_at, files.sound = 0, NEEDS_NO_ROOM
    with pytest.raises(StorageFailed):
        append(log, "second", producer=Sequenced(7, 0, 1))
    files.heal()

    assert append(log, "second", producer=Sequenced(7, 0, 1)) == 1


def failing_sync(files: FaultyFiles) -> None:
    def fault(operation: str, path: object) -> None:
        if operation == "sync":
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    files.fault = fault


def test_a_partition_is_offline_after_a_failed_sync_and_claims_nothing_more() -> None:
    files = FaultyFiles(MemoryFiles())
    store, log = open_log(files)
    append(log, "first")
    sync(log, store)
    append(log, "second")

    failing_sync(files)
    job = log.sync_job()
    with pytest.raises(OSError, match="Input/output error") as caught:
        job.run()
    log.sync_failed(caught.value)
    files.heal()

    assert log.is_offline
    assert log.durable_offset == 1
    with pytest.raises(StorageFailed, match="offline"):
        append(log, "third")
    with pytest.raises(StorageFailed, match="offline"):
        log.read(0, below=1, bytes_max=100, at_least_one=True)


@given(count=st.integers(1, 12), seed=st.integers(0, 2**32))
def test_a_failed_sync_is_not_forgotten_by_a_killed_process(count: int, seed: int) -> None:
    disk = MemoryFiles()
    files = FaultyFiles(disk)
    store, log = open_log(files, config=CONFIG)
    written: list[tuple[int, bytes | None]] = []
    write(log, 3, written)
    sync(log, store)
    write(log, count, written)
    failing_sync(files)
    with pytest.raises(OSError, match="Input/output error"):
        log.sync_job().run()
    disk.after_kill()

    store, log = open_log(disk, config=CONFIG)
    write(log, 3, written)
    sync(log, store)

    _, log = open_log(disk.after_power_cut(Random(seed)), config=CONFIG)
    assert values_of(log) == written


def test_an_offline_partition_is_reopened_with_what_the_disk_gives_back() -> None:
    disk = MemoryFiles()
    files = FaultyFiles(disk)
    store, log = open_log(files)
    append(log, "first")
    sync(log, store)
    append(log, "second")
    log.sync_failed(OSError(errno.EIO, "Input/output error"))
    for file in disk.files.values():
        file.content = bytearray(file.synced)  # what the cache held is gone

    again = store.reopen_partition("orders", 0)

    assert values_of(again) == [(0, b"first")]
    assert store.partitions[TopicPartition("orders", 0)] is again
    assert append(again, "second") == 1


def test_a_store_with_an_offline_partition_is_not_marked_clean() -> None:
    disk = MemoryFiles()
    store, log = open_log(disk)
    append(log, "first")
    log.sync_failed(OSError(errno.EIO, "Input/output error"))
    store.close()

    assert not open_store(disk).was_clean


@given(fail_at=st.integers(1, 60))
def test_an_opening_that_the_disk_refuses_can_be_tried_again(fail_at: int) -> None:
    disk = MemoryFiles()
    store, log = open_log(disk, config=CONFIG)
    written: list[tuple[int, bytes | None]] = []
    write(log, 12, written)
    sync(log, store)
    write(log, 12, written)
    files = FaultyFiles(disk.after_kill())
    files.fail_at = fail_at

    try:
        store = open_store(files)
        store.open_partition("orders", 0, topic_id=TOPIC_ID, config=CONFIG)
    except (HeadwaterError, OSError):
        pass
    files.heal()
    del store

    _, log = open_log(disk.after_kill(), config=CONFIG)
    assert values_of(log) == written


def test_a_store_that_cannot_write_its_recovery_points_goes_on() -> None:
    files = FaultyFiles(MemoryFiles())
    store, log = open_log(files)
    append(log, "first")
    log.sync()
    files.fail_at = 0

    store.write_recovery_points([log])

    assert log.durable_offset == 1
