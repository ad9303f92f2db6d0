"""A swap that the disk interrupted behind its decision must not come back over a later one."""

from pathlib import Path

import pytest

from headwater.core_log.foundation.errors import StorageFailed
from headwater.core_log.records.record_codec import PlainRecord, encode_batch
from headwater.core_log.storage.files import Files
from headwater.core_log.storage.log_config import LogConfig
from headwater.core_log.storage.partition_log import PartitionLog
from headwater.core_log.storage.segment import LOG
from headwater.core_log.storage.swap import cleaned_path
from tests.builders import TOPIC_ID, append, open_log, open_store, sync, values_of
from tests.fakes import FaultyFiles, MemoryFiles

CONFIG = LogConfig(segment_bytes=250, cleanup_policy=frozenset({"compact"}))
VALUES = [(offset, f"value {offset}".encode() + b"x" * 40) for offset in range(10)]


def write_cleaned(files: Files, log: PartitionLog, offsets: list[int]) -> int:
    """What a worker leaves of [0, ...): these offsets. Begins as `CleanedSegment` does."""
    data = b"".join(
        bytes(
            encode_batch(
                [PlainRecord(b"%d" % each, VALUES[each][1], timestamp_ms=5, offset=each)],
                base_offset=each,
                leader_epoch=0,
            )
        )
        for each in offsets
    )
    path = cleaned_path(log.directory, 0, LOG)
    files.remove(path)
    file = files.open(path, create=True)
    file.write(0, data)
    file.sync()
    return len(data)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("operation", ["rename", "sync_directory"])
def test_a_swap_the_disk_interrupted_does_not_undo_a_later_one(operation: str, clean: bool) -> None:
    disk = MemoryFiles()
    files = FaultyFiles(disk)
    store, log = open_log(files, config=CONFIG)
    for _, value in VALUES:
        append(log, value)
    sync(log, store)
    assert [segment.base_offset for segment in log.segments] == [0, 2, 4, 6, 8]

    # 1st pass over [0, 4): decided (renamed to .swap), then the disk refuses the next step, once.
    size = write_cleaned(files, log, [1])
    log.note_cleaned(cleaned_to=4, deletes_dropped_to=0)

    def fault(what: str, path: Path) -> None:
        decided = any(name.endswith(".swap") for name in disk.names(log.directory))
        if what == operation and decided:
            raise OSError(28, "No space left on device")

    files.fault = fault
    with pytest.raises(StorageFailed):
        log.swap_in(0, 4, size=size)
    files.heal()

    if log.is_offline:  # nothing more happens to it before it is opened anew, which finishes it
        again = open_store(disk.copy()).open_partition(
            log.topic, log.partition, topic_id=TOPIC_ID, config=CONFIG
        )
        assert values_of(again) == [VALUES[1], *VALUES[4:]]
        return

    # 2nd pass, there is room again and one segment more is closed: [0, 6) keeps 1, 4 and 5.
    size = write_cleaned(files, log, [1, 4, 5])
    log.note_cleaned(cleaned_to=6, deletes_dropped_to=0)
    log.swap_in(0, 6, size=size).run()
    log.note_compacted(6)
    expected = [VALUES[1], *VALUES[4:]]
    assert values_of(log) == expected
    sync(log, store)
    store.close(clean=clean)

    again = open_store(disk.copy()).open_partition(
        log.topic, log.partition, topic_id=TOPIC_ID, config=CONFIG
    )
    assert values_of(again) == expected
