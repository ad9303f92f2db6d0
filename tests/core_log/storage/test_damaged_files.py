"""Whatever becomes of any file, a reader gets what was written or an error, and nothing else."""

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from headwater.core_log.foundation.errors import ConfigError, HeadwaterError
from headwater.core_log.storage.checkpoints import LOG_STARTS
from headwater.core_log.storage.leader_epochs import FILE_NAME as LEADER_EPOCHS
from headwater.core_log.storage.log_config import LogConfig
from tests.builders import DATA, Sequenced, append, open_log, sync, values_of
from tests.fakes import MemoryFile, MemoryFiles

CONFIG = LogConfig(segment_bytes=900, index_interval_bytes=150)
Damage = Callable[[MemoryFile, MemoryFile | None, Random], None]


def flip(file: MemoryFile, older: MemoryFile | None, random: Random) -> None:
    if file.content:
        file.flip_bit(random.randrange(len(file.content)), random.randrange(8))


def zero(file: MemoryFile, older: MemoryFile | None, random: Random) -> None:
    file.content[:] = bytes(len(file.content))


def cut(file: MemoryFile, older: MemoryFile | None, random: Random) -> None:
    file.truncate(random.randint(0, len(file.content)))


def empty(file: MemoryFile, older: MemoryFile | None, random: Random) -> None:
    file.truncate(0)


def age(file: MemoryFile, older: MemoryFile | None, random: Random) -> None:
    if older is not None:
        file.content = bytearray(older.content)


DAMAGES: list[Damage] = [flip, zero, cut, empty, age]


def histories(*, is_clean: bool) -> tuple[MemoryFiles, MemoryFiles]:
    """A log in the middle of its life, and at its end."""
    files = MemoryFiles()
    store, log = open_log(files, config=CONFIG)
    older = files.copy()
    for number in range(40):
        producer = Sequenced(7, 0, number)
        append(log, f"value {number}", producer=producer, timestamp_ms=1000 + number)
        if number == 20:
            sync(log, store)
            older = files.copy()
    sync(log, store)
    store.close(clean=is_clean)
    return older, files.copy()


HISTORIES = {is_clean: histories(is_clean=is_clean) for is_clean in (True, False)}
WRITTEN = [(number, b"value %d" % number) for number in range(40)]
PATHS = sorted(path for path in HISTORIES[True][1].files if path.name != "lock")


@given(
    path=st.sampled_from(PATHS),
    damage=st.sampled_from(DAMAGES),
    is_clean=st.booleans(),
    seed=st.integers(0, 1 << 32),
)
def test_a_damaged_file_is_made_anew_or_reported(
    path: Path, damage: Damage, is_clean: bool, seed: int
) -> None:
    older, newest = HISTORIES[is_clean]
    files = newest.copy()
    # A digit that turned into another cannot be noticed in Kafka's checkpoint format.
    assume(damage is not flip or path.name not in {LOG_STARTS, LEADER_EPOCHS})
    if path in files.files:
        damage(files.files[path], older.files.get(path), Random(seed))

    try:
        _, log = open_log(files, config=CONFIG)
        count = sum(1 for _ in log.batches(log.start_offset))
        values = values_of(log)
    except HeadwaterError:
        return

    assert values == WRITTEN
    assert count == len(WRITTEN)
    assert log.epochs.end_offset_for(0) == (0, 40)
    timed = log.offset_for_timestamp(1025, below=40)
    assert timed is not None
    assert timed[:2] == (25, 1025)  # the epoch in a batch's head is outside its checksum


@given(path=st.sampled_from(PATHS), is_clean=st.booleans())
def test_a_removed_file_is_made_anew_or_reported(path: Path, is_clean: bool) -> None:
    files = HISTORIES[is_clean][1].copy()
    files.remove(path)

    try:
        _, log = open_log(files, config=CONFIG)
        values = values_of(log)
    except HeadwaterError:
        return

    assert values == WRITTEN
    assert log.epochs.end_offset_for(0) == (0, 40)
    assert log.offset_for_timestamp(1025, below=40) == (25, 1025, 0)


def test_a_data_directory_that_lost_its_identity_is_not_given_another() -> None:
    files = HISTORIES[True][1].copy()
    files.remove(DATA / "meta.properties")

    with pytest.raises(ConfigError, match=r"meta\.properties"):
        open_log(files)
