"""A checkpoint says what was last written to it, to us and to Kafka, whatever was torn."""

import errno
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.storage.checkpoints import (
    SECTOR_BYTES,
    Checkpoints,
    OffsetCheckpoint,
    read_checkpoint,
    write_checkpoint,
)
from tests.fakes import FaultyFiles, MemoryFiles

PATH = Path("/log/recovery-point-offset-checkpoint")


def empty_directory() -> MemoryFiles:
    files = MemoryFiles()
    files.make_directory(PATH.parent)
    files.sync_everything()
    return files


names = st.text("abc.-_", min_size=1, max_size=249)
changes = st.lists(st.tuples(names, st.integers(0, 3), st.integers(0, 1 << 62)), max_size=30)


@given(changes=changes)
def test_every_partition_has_the_offset_last_set(changes: list[tuple[str, int, int]]) -> None:
    files = MemoryFiles()
    checkpoint = OffsetCheckpoint(files, PATH)
    for change in changes:
        checkpoint.set(*change)

    again = OffsetCheckpoint(files, PATH)

    assert dict(again) == {(topic, partition): offset for topic, partition, offset in changes}
    assert not again.is_damaged
    assert again.is_missing == (not changes)


@given(changes=changes)
def test_kafka_reads_it_too(changes: list[tuple[str, int, int]]) -> None:
    files = MemoryFiles()
    checkpoint = OffsetCheckpoint(files, PATH)
    for change in changes:
        checkpoint.set(*change)

    rows = read_checkpoint(files, PATH, columns=3)

    assert {(row[0], int(row[1])): int(row[2]) for row in rows} == dict(checkpoint)


@given(changes=changes)
def test_no_number_crosses_the_border_of_a_sector(changes: list[tuple[str, int, int]]) -> None:
    files = MemoryFiles()
    checkpoint = OffsetCheckpoint(files, PATH)
    for change in changes:
        checkpoint.set(*change)

    position = 0
    for line in (files.read(PATH) if changes else b"").splitlines(keepends=True):
        number = position + len(line) - 21
        if line.count(b" "):
            assert number // SECTOR_BYTES == (number + 19) // SECTOR_BYTES
        position += len(line)


@given(seed=st.integers(0, 1 << 32), count=st.integers(1, 60))
def test_an_offset_after_a_power_cut_is_one_that_was_once_set(seed: int, count: int) -> None:
    files = empty_directory()
    checkpoint = OffsetCheckpoint(files, PATH)
    checkpoint.set("first", 0, 1)
    for number in range(count):
        checkpoint.set(f"topic{number % 40}" * 5, 0, 999 + number * 7)

    survived = OffsetCheckpoint(files.after_power_cut(Random(seed)), PATH)

    for (topic, _), offset in survived:
        if topic.startswith("topic0"):
            assert offset in {999, 999 + 40 * 7}
    assert survived.get("first", 0) == 1
    assert not survived.is_damaged


@pytest.mark.parametrize("is_read_only_so_far", [False, True])
def test_a_new_partition_inherits_nothing_from_an_older_one_of_its_name(
    is_read_only_so_far: bool,
) -> None:
    files = empty_directory()
    checkpoints = Checkpoints(files, Path("/log"))
    for checkpoint in (checkpoints.recovery_points, checkpoints.cleaned_to):
        checkpoint.set("a", 0, 5)
        checkpoint.set("b", 0, 6)
    if is_read_only_so_far:
        checkpoints = Checkpoints(files, Path("/log"))
    checkpoints.forget("a", 0)
    checkpoints.begin([("a", 0)])

    for seed in range(10):
        again = Checkpoints(files.after_power_cut(Random(seed)), Path("/log"))
        assert dict(again.recovery_points) == {("a", 0): 0, ("b", 0): 6}
        assert dict(again.cleaned_to) == {("a", 0): 0, ("b", 0): 6}
        assert read_checkpoint(files, PATH, columns=3)


def test_partitions_that_are_not_there_any_more_are_forgotten_for_good() -> None:
    files = empty_directory()
    checkpoints = Checkpoints(files, Path("/log"))
    checkpoints.recovery_points.set("a", 0, 5)
    checkpoints.recovery_points.set("b", 0, 6)

    Checkpoints(files, Path("/log")).retain({("b", 0)})

    again = Checkpoints(files.after_power_cut(Random(0)), Path("/log"))
    assert dict(again.recovery_points) == {("b", 0): 6}


def test_a_partition_that_comes_back_leaves_the_others_alone() -> None:
    files = empty_directory()
    checkpoint = OffsetCheckpoint(files, PATH)
    for topic in ("first", "gone", "kept"):
        checkpoint.set(topic, 0, 7)

    checkpoint.remove("gone", 0)
    checkpoint.set("gone", 0, 1)
    checkpoint.set("gone", 0, 2)

    assert dict(OffsetCheckpoint(files, PATH)) == {
        ("first", 0): 7,
        ("kept", 0): 7,
        ("gone", 0): 2,
    }


@given(changes=st.lists(st.tuples(st.sampled_from("abc"), st.integers(-1, 9)), max_size=30))
def test_partitions_that_come_and_go_keep_their_own_offsets(changes: list[tuple[str, int]]) -> None:
    files = empty_directory()
    checkpoint = OffsetCheckpoint(files, PATH)
    expected: dict[tuple[str, int], int] = {}
    for topic, offset in changes:
        if offset < 0:
            checkpoint.remove(topic, 0)
            expected.pop((topic, 0), None)
        else:
            checkpoint.set(topic, 0, offset)
            expected[topic, 0] = offset

    again = dict(OffsetCheckpoint(files, PATH))
    assert {key: again[key] for key in expected} == dict(checkpoint) == expected
    assert not any(offset for key, offset in again.items() if key not in expected)


@given(
    changes=st.lists(st.tuples(st.sampled_from("abcd"), st.integers(-1, 9)), max_size=12),
    fail_at=st.integers(1, 40),
    is_short=st.booleans(),
)
def test_a_refused_write_puts_no_number_in_anothers_place(
    changes: list[tuple[str, int]], fail_at: int, is_short: bool
) -> None:
    sound = empty_directory()
    files = FaultyFiles(sound)
    files.fail_at, files.failures_max, files.is_short = fail_at, 1, is_short
    checkpoint = OffsetCheckpoint(files, PATH)
    seen: set[tuple[tuple[str, int], int]] = set()
    for topic, offset in changes:
        with suppress(OSError):
            if offset < 0:
                seen.add(((topic, 0), 0))
                checkpoint.remove(topic, 0)
            else:
                own = offset * 10 + ord(topic) - ord("a")
                seen.add(((topic, 0), own))
                checkpoint.set(topic, 0, own)

    assert set(OffsetCheckpoint(sound, PATH)) <= seen


def test_an_offset_that_a_full_disk_refused_is_written_when_it_is_set_again() -> None:
    sound = empty_directory()
    files = FaultyFiles(sound)
    checkpoint = OffsetCheckpoint(files, PATH)
    checkpoint.set("a", 0, 1)
    for topic, offset in (("a", 5), ("b", 6)):
        files.change_count, files.fail_at = 0, 0
        with pytest.raises(OSError, match="No space"):
            checkpoint.set(topic, 0, offset)
        files.heal()
        checkpoint.set(topic, 0, offset)

    assert dict(OffsetCheckpoint(sound, PATH)) == {("a", 0): 5, ("b", 0): 6}


@pytest.mark.parametrize(
    "content", [b"", b"1\n1\na 0 5\n", b"0\n1\na 0\n", b"0\n1\na zero 5\n", b"\0" * 40]
)
def test_a_file_that_is_no_checkpoint_is_not_believed(content: bytes) -> None:
    files = MemoryFiles()
    files.open(PATH, create=True).write(0, content)

    assert OffsetCheckpoint(files, PATH).is_damaged


def test_kafkas_own_checkpoint_is_read() -> None:
    files = MemoryFiles()
    files.open(PATH, create=True).write(0, b"0\n2\norders 0 42\norders 1 7\n")

    checkpoint = OffsetCheckpoint(files, PATH)
    checkpoint.set("orders", 1, 8)

    assert dict(OffsetCheckpoint(files, PATH)) == {("orders", 0): 42, ("orders", 1): 8}


def test_a_whole_checkpoint_with_a_wrong_count_is_an_error() -> None:
    files = MemoryFiles()
    write_checkpoint(files, PATH, [(1, 2)])
    assert read_checkpoint(files, PATH, columns=2) == [["1", "2"]]

    files.open(PATH).content[2:3] = b"5"
    with pytest.raises(DecodeError, match="what it counts"):
        read_checkpoint(files, PATH, columns=2)


def test_partitions_that_begin_together_begin_from_nothing_each() -> None:
    files = empty_directory()
    checkpoints = Checkpoints(files, Path("/log"))
    for checkpoint in (checkpoints.recovery_points, checkpoints.cleaned_to):
        checkpoint.set("a", 0, 5)
        checkpoint.set("b", 0, 6)
    checkpoints.forget("a", 0)

    checkpoints.begin([("a", 0), ("a", 1), ("a", 2)])

    for seed in range(10):
        again = Checkpoints(files.after_power_cut(Random(seed)), Path("/log"))
        assert dict(again.recovery_points) == {("a", 0): 0, ("a", 1): 0, ("a", 2): 0, ("b", 0): 6}
        assert dict(again.cleaned_to) == {("a", 0): 0, ("b", 0): 6}
        assert not again.recovery_points.is_damaged


def test_a_checkpoint_whose_sync_failed_goes_on_in_a_new_file() -> None:
    memory = empty_directory()
    files = FaultyFiles(memory)
    marks = Checkpoints(files, PATH.parent).of("t", 0)
    marks.settle_start(1)
    files.fail_at, files.error = files.change_count + 2, OSError(errno.EIO, "Input/output error")
    with pytest.raises(OSError, match="Input/output"):
        marks.settle_start(5)
    files.heal()

    marks.settle_start(5)

    after = Checkpoints(memory.after_power_cut(Random(1)), PATH.parent)
    assert after.log_starts.get("t", 0) == 5
