"""The small files beside a partition's records: however damaged, no record is lost or invented."""

from pathlib import Path

from headwater.core_log.foundation.errors import HeadwaterError
from headwater.core_log.storage.log_config import LogConfig
from tests.builders import DATA, Sequenced, append, open_log, sync, values_of
from tests.fakes import MemoryFile, MemoryFiles

CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=60)


def written() -> tuple[MemoryFiles, list[tuple[int, bytes | None]]]:
    """A partition of several segments after a kill, and what it holds."""
    files = MemoryFiles()
    store, log = open_log(files, config=CONFIG)
    for number in range(20):
        append(log, f"value {number}", producer=Sequenced(7, 0, number))
    for number in range(4):
        append(log, "in a transaction", producer=Sequenced(8, 0, number, is_transactional=True))
        log.append_marker(
            8, 0, commit=number % 2 == 0, coordinator_epoch=0, leader_epoch=0, now_ms=1
        )
    sync(log, store)
    values = values_of(log)
    store.close(clean=True)
    return files, values


def side_files(files: MemoryFiles) -> list[Path]:
    return sorted(path for path in files.files if path.suffix != ".log" and path.name != "lock")


FILES, VALUES = written()
SIDE_FILES = side_files(FILES)
CLEAN = 1


def seeds() -> list[bytes]:
    return [
        bytes([place, clean]) + bytes(FILES.files[path].content)
        for place, path in enumerate(SIDE_FILES)
        for clean in (0, CLEAN)
    ]


class Target:
    """Opening says what is wrong, or finds every record; after a clean stop or a kill."""

    def __call__(self, data: bytes) -> None:
        if len(data) < 2:
            return
        files = FILES.copy()
        files.locked = set()
        path = SIDE_FILES[data[0] % len(SIDE_FILES)]
        files.files[path] = MemoryFile(data[2:])
        if data[1] != CLEAN:
            for name in [each for each in files.files if each.name == ".kafka_cleanshutdown"]:
                del files.files[name]
        assert DATA in path.parents
        try:
            _, log = open_log(files, config=CONFIG)
            found = values_of(log)
        except HeadwaterError:
            return
        start = log.start_offset
        assert found == [each for each in VALUES if each[0] >= start], f"{path} changed the records"
