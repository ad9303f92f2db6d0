"""Retention that the disk interrupts must not leave readers a silent gap."""

from pathlib import Path

import pytest

from headwater.core_log.foundation.errors import OffsetOutOfRange, StorageFailed
from headwater.core_log.records.batch_header import BatchHeader
from headwater.core_log.storage.log_config import LogConfig
from tests.builders import append, open_log, sync, values_of
from tests.fakes import FaultyFiles, MemoryFiles

CONFIG = LogConfig(segment_bytes=250, retention_ms=1000, cleanup_policy=frozenset({"delete"}))


@pytest.mark.parametrize("operation", ["rename", "remove"])
def test_records_deleted_by_interrupted_retention_are_out_of_range(operation: str) -> None:
    files = FaultyFiles(MemoryFiles())
    store, log = open_log(files, config=CONFIG)
    for number in range(10):
        append(log, b"value %d" % number + b"x" * 40)
    sync(log, store)
    before = values_of(log)
    now_ms = log.segments.active.newest_ms + 100_000

    def fault(what: str, path: Path) -> None:
        if what == operation:
            raise OSError(28, "No space left on device")

    files.fault = fault
    with pytest.raises(StorageFailed):
        log.apply_retention(now_ms, below=log.end_offset)
    files.heal()
    log.apply_retention(now_ms, below=log.end_offset)  # the next round
    append(log, b"later")

    try:
        found = log.read(0, below=log.end_offset, bytes_max=1 << 20, at_least_one=True)
    except OffsetOutOfRange:
        return  # told so: PositionLost
    # A reader of offset 0 gets records 0.. on, or is refused; it never skips what is gone.
    assert found is not None
    assert BatchHeader.read(found.read()).base_offset == before[0][0], "0 to 9 skipped silently"
