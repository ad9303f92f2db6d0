"""Pieces of one schema can be worked on as one, and nothing of them is lost or out of order."""

import subprocess
import sys
from pathlib import Path

import pytest

from headwater.core_log.model.changes import TableChanges, concat_changes
from headwater.pipelines.loops.deliver.decoder import DecodedChanges, neighbours
from tests.pipelines.transforms.table_changes import (
    DELETE,
    INSERT,
    TRUNCATE,
    UPDATE,
    changes_of,
    schema_of,
    told,
)

ROOT = Path(__file__).resolve().parents[2]
ORDERS, NEXT = schema_of(), schema_of()
PAID, DRAFT = {"id": 1, "status": "paid"}, {"id": 1, "status": "draft"}
BYTES = 100
WHOLE = changes_of(
    ORDERS,
    (INSERT, DRAFT),
    (UPDATE, PAID),
    (INSERT, {"id": 2}),
    (DELETE, {"id": 1}),
    before=[None, DRAFT, None, None],
    first_offset=7,
)


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_pieces_are_joined_to_the_whole(cut: int) -> None:
    parts = [WHOLE.slice(0, cut), WHOLE.slice(cut, len(WHOLE) - cut)]

    found = concat_changes(parts)

    assert told(found) == told(WHOLE)
    assert found.before is not None and found.before.equals(WHOLE.before)
    assert found.committed_us.equals(WHOLE.committed_us)
    assert (found.log_partition, found.log_offsets) == (WHOLE.log_partition, WHOLE.log_offsets)


def test_rows_before_an_update_keep_their_places_beside_pieces_that_have_none() -> None:
    plain, updated = changes_of(ORDERS, (INSERT, DRAFT)), WHOLE.slice(1, 1)

    found = concat_changes([plain, updated, plain])

    assert found.before is not None
    assert found.before.is_valid().to_pylist() == [False, True, False]
    assert concat_changes([plain, plain]).before is None


@pytest.mark.parametrize(
    ("bytes_max", "sizes"), [(0, [1, 1, 1, 1, 1]), (200, [2, 1, 1, 1]), (1_000, [3, 1, 1])]
)
def test_only_so_much_is_joined_and_only_of_one_schema_with_truncates_alone(
    bytes_max: int, sizes: list[int]
) -> None:
    orders, other = changes_of(ORDERS, (INSERT, PAID)), changes_of(NEXT, (INSERT, PAID))
    pieces = [_piece(each) for each in (orders, orders, orders, changes_of(ORDERS, (TRUNCATE, {})))]

    found = [*neighbours([*pieces, _piece(other)], bytes_max=bytes_max)]

    assert [len(each) for each in found] == sizes
    assert [each for together in found for each in together] == [*pieces, _piece(other)]
    assert [len(each) for each in neighbours([pieces[0], _piece(other)], bytes_max=1_000)] == [1, 1]


@pytest.mark.slow
def test_the_engine_of_expressions_is_loaded_while_changes_are_fetched() -> None:
    program = (
        "import sys, time\n"
        "from headwater.pipelines.file.spec import TransformRule\n"
        "from headwater.pipelines.transforms.after_log import RowTransforms\n"
        "RowTransforms([TransformRule(table=('*',), rename={'a': 'b'})], []).prepare()\n"
        "after_log = RowTransforms([TransformRule(table=('*',), filter='a > 1')], [])\n"
        "time.sleep(0.1)\n"
        "assert 'duckdb' not in sys.modules\n"
        "after_log.prepare()\n"
        "while 'duckdb' not in sys.modules: time.sleep(0.01)\n"
    )

    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, timeout=120)


def _piece(changes: TableChanges) -> DecodedChanges:
    return DecodedChanges(changes, BYTES)
