"""An index only saves time: whatever becomes of it, no reader is ever led astray."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from struct import iter_unpack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core_log.foundation.errors import CorruptLog
from headwater.core_log.storage.log_config import LogConfig
from headwater.core_log.storage.segment import Segment
from tests.builders import DATA, append, open_log, sync, values_of
from tests.fakes import MemoryFiles

CONFIG = LogConfig(segment_bytes=3000, index_interval_bytes=150)
PARTITION = DATA / "log" / "orders-0"
FIRST = "00000000000000000000"


def written_log(count: int = 100) -> MemoryFiles:
    """Several segments, cleanly closed."""
    files = MemoryFiles()
    store, log = open_log(files, config=CONFIG)
    for number in range(count):
        append(log, f"value {number}", "y" * (number % 40), timestamp_ms=1000 + number // 6)
    sync(log, store)
    store.close()
    return files


def index_files(files: MemoryFiles) -> list[Path]:
    return sorted(path for path in files.files if path.suffix in {".index", ".timeindex"})


def test_an_offset_entry_is_a_batchs_last_offset_and_its_position() -> None:
    files = written_log()

    entries = list(iter_unpack(">ii", files.read(PARTITION / f"{FIRST}.index")))

    segment = Segment(files, PARTITION, 0, index_interval=150, is_new=False)
    segment.size = files.size(PARTITION / f"{FIRST}.log")
    batches = {(head.last_offset, position) for position, head in segment.heads()}
    assert len(entries) > 5
    assert set(entries) <= batches
    steps = [after - before for (_, before), (_, after) in pairwise(entries)]
    assert min(steps) > 150


def test_a_time_entry_is_the_largest_timestamp_so_far_and_where_it_was() -> None:
    files = written_log()

    entries = list(iter_unpack(">qi", files.read(PARTITION / f"{FIRST}.timeindex")))

    assert [timestamp for timestamp, _ in entries] == sorted({time for time, _ in entries})
    assert entries[-1][0] == max(time for time, _ in entries) > 1003


def test_an_index_made_anew_equals_the_one_that_was_lost() -> None:
    files = written_log()
    paths = index_files(files)
    before = {path: files.read(path) for path in paths}
    assert len(paths) > 4

    for base in {path.stem for path in paths}:
        segment = Segment(files, PARTITION, int(base), index_interval=150, is_new=False)
        segment.size = files.size(PARTITION / f"{base}.log")
        segment.rebuild_indexes()
        segment.seal()

    sealed = [path for path in paths if path.stem != max(each.stem for each in paths)]
    assert {path: files.read(path) for path in sealed} == {path: before[path] for path in sealed}


def test_a_time_entry_that_names_another_batch_of_its_time_passes_over_none() -> None:
    """Which the log confirms, as far as one batch can."""
    files = written_log()
    _, sound = open_log(files.copy(), config=CONFIG)
    path = PARTITION / f"{FIRST}.timeindex"
    segment = Segment(files, PARTITION, 0, index_interval=150, is_new=False)
    segment.size = files.size(PARTITION / f"{FIRST}.log")
    time, offset = list(iter_unpack(">qi", files.read(path)))[1]
    heads = [head for _, head in segment.heads() if head.max_timestamp == time]
    first, other = (head.last_offset for head in heads[:2])
    files.open(path).content[20:24] = other.to_bytes(4)

    _, log = open_log(files, config=CONFIG)

    wanted = sound.offset_for_timestamp(time, below=sound.end_offset)
    assert wanted is not None
    assert (first, wanted.offset) == (offset, heads[0].base_offset)
    assert log.offset_for_timestamp(time, below=log.end_offset) == wanted


@given(data=st.data())
def test_damaged_indexes_never_change_what_is_read(data: st.DataObject) -> None:
    files = written_log()
    _, sound = open_log(files.copy(), config=CONFIG)
    path = data.draw(st.sampled_from(index_files(files)))
    damage = data.draw(st.sampled_from(["flip", "zero", "cut", "remove", "empty", "noise"]))
    file = files.open(path)
    if damage == "remove":
        files.remove(path)
    elif damage == "cut":
        file.truncate(data.draw(st.integers(0, file.size())))
    elif damage == "empty":
        file.truncate(0)
    elif damage == "zero":
        file.content[:] = bytes(file.size())
    elif damage == "noise":
        file.content[:] = data.draw(st.binary(min_size=file.size(), max_size=file.size()))
    else:
        file.flip_bit(data.draw(st.integers(0, file.size() - 1)), data.draw(st.integers(0, 7)))

    _, log = open_log(files, config=CONFIG)

    assert values_of(log) == values_of(sound)
    for offset in range(0, log.end_offset, 7):
        found = log.read(offset, below=log.end_offset, bytes_max=400, at_least_one=True)
        wanted = sound.read(offset, below=log.end_offset, bytes_max=400, at_least_one=True)
        assert found is not None
        assert wanted is not None
        assert found.read() == wanted.read()
    for timestamp_ms in (0, 1003, 1009, 1016, 1017):
        assert log.offset_for_timestamp(
            timestamp_ms, below=log.end_offset
        ) == sound.offset_for_timestamp(timestamp_ms, below=log.end_offset)
    assert log.max_timestamp() == sound.max_timestamp()


def test_the_zeros_that_kafka_leaves_behind_its_entries_are_not_entries() -> None:
    files = written_log()
    for path in index_files(files):
        files.open(path).content += bytes(1200)

    _, log = open_log(files, config=CONFIG)

    assert [offset for offset, _ in values_of(log)] == list(range(log.end_offset))


def test_a_damaged_log_is_reported_every_time_it_is_looked_at() -> None:
    config = replace(CONFIG, cleanup_policy=frozenset({"compact"}))
    files = written_log()
    damaged = sorted(path for path in files.files if path.suffix == ".log")[1]
    files.open(damaged).content[200:900] = bytes(700)
    files.remove(damaged.with_suffix(".index"))
    _, log = open_log(files, config=config)

    for _ in range(3):
        with pytest.raises(CorruptLog):
            log.max_timestamp()
        with pytest.raises(CorruptLog):
            list(log.batches(0))


def test_a_hole_in_the_log_itself_is_reported_and_not_stepped_over() -> None:
    files = written_log()
    middle = sorted(path for path in files.files if path.suffix == ".log")[1]
    files.remove(middle)

    _, log = open_log(files, config=CONFIG)

    with pytest.raises(CorruptLog, match="offsets are missing"):
        values_of(log)
