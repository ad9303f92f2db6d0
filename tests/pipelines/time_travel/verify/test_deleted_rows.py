"""However changes are folded on the way, the log tells the same of rows that are gone."""

from random import Random

import numpy as np
import pytest

from headwater.pipelines.time_travel.verify.deleted_rows import (
    THERE,
    PartitionChanges,
    fold,
    truncate,
)


def partition_changes(changes: list[tuple[int, int, int]]) -> PartitionChanges:
    """Key, digest of the row or 0 for a delete, and offset, which is the moment as well."""
    keys, rows, offsets = (np.array(each) for each in zip(*changes, strict=True))
    is_row = rows != 0
    ends_us = np.where(is_row, THERE, offsets)
    return PartitionChanges(
        keys.astype(np.uint64), rows.astype(np.uint64), offsets, is_row, ends_us, ~is_row
    )


@pytest.mark.parametrize("seed", range(20))
def test_the_last_row_of_a_key_and_its_first_end_are_told_however_they_are_folded(
    seed: int,
) -> None:
    chance, told = Random(seed), dict[int, tuple[int, int]]()
    held: list[PartitionChanges] = []

    for at in range(chance.randint(1, 30)):
        changes = []
        for number in range(chance.randint(1, 8)):
            key, row, offset = chance.randrange(6), chance.choice([0, 0, at + 1]), at * 10 + number
            changes.append((key, row, offset))
            _, end = told.get(key, (0, THERE))
            last = told.get(key, (0, 0))[0]
            told[key] = (row, THERE) if row else (last, offset if end == THERE else end)
        held.append(partition_changes(changes))
        if chance.random() < 0.3:
            held = [fold(held, keeps_deleted=True)]
        if chance.random() < 0.1:
            gone = at * 10 + 9
            held = [truncate(fold(held, keeps_deleted=True), committed_us=gone)]
            told = {k: (row, gone if end == THERE else end) for k, (row, end) in told.items()}
    found = fold(held, keeps_deleted=True)

    rows = np.where(found.is_row, found.rows, 0).tolist()
    pairs = zip(rows, found.ends_us.tolist(), strict=True)
    assert dict(zip(found.keys.tolist(), pairs, strict=True)) == told
