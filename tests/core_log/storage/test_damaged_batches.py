"""A batch that cannot be read is emptied, and everything else stays where it was."""

from pathlib import Path

import pytest

from headwater.core_log.records.batch_header import BatchHeader
from headwater.core_log.records.record_codec import decode_batch, iterate_batches
from headwater.core_log.storage.damaged_batches import Emptied, empty_damaged
from headwater.core_log.storage.files import OsFiles
from headwater.core_log.storage.verification import Promise
from tests.core_log.storage.test_verification import BATCHES, RECORDS, Partition, batch_at

END = BATCHES * RECORDS
NOW_MS = 1_800_000_000_000
INSIDE, HEAD = 70, 8
"""Bytes of a batch: one of its records', and one of its length's."""


@pytest.fixture
def partition(tmp_path: Path) -> Partition:
    directory = tmp_path / "orders-0"
    directory.mkdir()
    return Partition(directory)


def mend(partition: Partition, recovery_point: int = END) -> list[Emptied]:
    promise = Promise(recovery_point=recovery_point, cleaned_to=0)
    return list(empty_damaged(OsFiles(), partition.directory, promise, now_ms=NOW_MS))


def read(partition: Partition) -> list[tuple[int, int, int]]:
    """First and last offset of every batch, and how many records can be read in it."""
    found = []
    for first in (0, BATCHES // 2):
        for batch in iterate_batches(partition.path(first, "log").read_bytes()):
            header, records = decode_batch(batch)
            found.append((header.base_offset, header.last_offset, len(records)))
    return found


def whole(*numbers: int) -> list[tuple[int, int, int]]:
    return [(each * RECORDS, each * RECORDS + RECORDS - 1, RECORDS) for each in numbers]


@pytest.mark.parametrize("at", [INSIDE, HEAD])
@pytest.mark.parametrize("number", range(BATCHES))
def test_wherever_a_batch_is_damaged_all_others_stay(
    partition: Partition, number: int, at: int
) -> None:
    first = number // 4 * 4
    log = partition.path(first, "log")
    before = log.read_bytes()
    size = len(batch_at(0))
    partition.change(log, (number - first) * size + at, b"\x7f\x7f")

    damaged = log.read_bytes()
    [emptied] = mend(partition)

    offsets = (number * RECORDS, number * RECORDS + RECORDS)
    assert (emptied.first_offset, emptied.next_offset) == offsets
    assert Path(emptied.copy).read_bytes() == damaged != before
    assert read(partition) == [
        *whole(*range(number)),
        (offsets[0], offsets[1] - 1, 0),
        *whole(*range(number + 1, BATCHES)),
    ]
    promise = Promise(recovery_point=END, cleaned_to=0)
    assert [each for each in partition.findings(promise) if each.is_damage] == []
    assert mend(partition) == []


def test_a_batch_unlike_its_header_is_emptied_though_its_checksum_holds(
    partition: Partition,
) -> None:
    from tests.core_log.records.test_record_codec import other_inside

    inside = bytearray(other_inside(20, 1))
    header = BatchHeader.read(inside)
    batches = [*partition.batches[:2], bytes(inside)]
    following = batch_at(header.next_offset)
    partition.path(0, "log").write_bytes(b"".join([*batches, following]))
    partition.path(0, "index").unlink()
    partition.path(0, "timeindex").unlink()

    [emptied] = mend(partition)

    assert (emptied.first_offset, emptied.next_offset) == (20, header.next_offset)
    assert read(partition)[2:4] == [
        (20, header.last_offset, 0),
        (header.next_offset, header.next_offset + RECORDS - 1, RECORDS),
    ]


def test_a_batch_ends_at_the_recovery_point_as_every_opening_expects(partition: Partition) -> None:
    size = len(batch_at(0))
    for number in (1, 2):
        partition.change(partition.path(4, "log"), number * size + INSIDE, b"\x7f")
        partition.change(partition.path(4, "log"), number * size + HEAD, b"\x7f")

    mend(partition, recovery_point=60)

    assert read(partition)[4:] == [*whole(4), (50, 59, 0), (60, 69, 0), *whole(7)]


def test_a_missing_end_is_lost_only_as_far_as_it_was_promised(
    partition: Partition,
) -> None:
    log = partition.path(4, "log")
    log.write_bytes(log.read_bytes()[:-5])

    unfinished, lost = mend(partition, recovery_point=70), mend(partition, recovery_point=75)

    assert unfinished == []
    assert [(each.first_offset, each.next_offset) for each in lost] == [(70, 75)]
    assert read(partition)[7:] == [(70, 74, 0)]


def test_a_log_that_ends_before_what_was_promised_reaches_so_far_again(
    partition: Partition,
) -> None:
    partition.write(4, partition.batches[4:6])

    [emptied] = mend(partition)

    assert emptied.reason == "log ends before its recovery point"
    assert read(partition)[4:] == [*whole(4, 5), (60, 79, 0)]


def test_nothing_is_written_where_nothing_is_damaged(partition: Partition) -> None:
    before = {path.name: path.read_bytes() for path in partition.directory.iterdir()}

    assert mend(partition) == []
    assert {path.name: path.read_bytes() for path in partition.directory.iterdir()} == before
