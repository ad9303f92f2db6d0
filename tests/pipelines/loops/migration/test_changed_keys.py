"""The two records of a changed key stay together, and each names the other's key."""

from dataclasses import replace

import pyarrow as pa

from headwater.core_log.model.changes import Operation, TableChanges, source_times
from headwater.core_log.model.table_schema import Column, TableId, TableSchema
from headwater.core_log.records.record_headers import header_column
from headwater.core_log.rows.codec import codec_for
from headwater.core_log.rows.settings import WireSettings
from headwater.pipelines.loops.ingest.encoder import (
    NEW_KEY_HEADER,
    OLD_KEY_HEADER,
    headers_of,
    split_batch,
)
from headwater.pipelines.loops.thread_offload import PART_ROWS_MIN

SCHEMA = TableSchema(TableId("s", "t"), (Column("id", pa.int64(), is_nullable=False),), ("id",))


def pairs(count: int, *, leading: int) -> TableChanges:
    """Updates, and then keys that change from n to n + 1,000,000."""
    ids = [-1 - number for number in range(leading)]
    ids += [number + half * 1_000_000 for number in range(count) for half in (0, 1)]
    operations = [Operation.UPDATE] * leading + [Operation.DELETE, Operation.INSERT] * count
    return TableChanges(
        schema=SCHEMA,
        rows=pa.RecordBatch.from_arrays([pa.array(ids, pa.int64())], schema=SCHEMA.arrow),
        operations=pa.array(operations, pa.uint8()),
        source={"connector": "script", **source_times(0)},
        moves=pa.array([False] * leading + [True, True] * count),
    )


def test_a_large_batch_is_never_divided_between_the_halves() -> None:
    for leading in (0, 1):
        changes = pairs(2 * PART_ROWS_MIN + 3, leading=leading)

        pieces = split_batch(changes)

        assert sum(map(len, pieces)) == len(changes)
        assert all(piece.operations[0].as_py() != Operation.INSERT for piece in pieces)


def test_headers_name_the_other_key_and_tombstones_have_them_too() -> None:
    changes = pairs(2, leading=1)
    encoded = codec_for(WireSettings(), topic="t").encode(changes, now_us=0)

    headers = headers_of(changes, encoded, 1)

    newer, older = (
        header_column(headers, name).to_pylist() for name in (NEW_KEY_HEADER, OLD_KEY_HEADER)
    )
    first, second = b'{"id":1000000}', b'{"id":1000001}'
    assert newer == [None, first, first, None, second, second, None]
    assert older == [None, None, None, b'{"id":0}', None, None, b'{"id":1}']


def test_headers_that_all_records_share_are_made_once() -> None:
    changes = replace(pairs(3, leading=0), moves=None, indexes=None, commits="0/16B3748")
    encoded = codec_for(WireSettings(), topic="t").encode(changes, now_us=0)

    shared = headers_of(changes, encoded, 7)
    each = headers_of(replace(changes, commits=pa.array(["0/16B3748"] * len(changes))), encoded, 7)

    assert isinstance(shared, bytes) and isinstance(each, pa.Array)
    assert set(each.to_pylist()) == {shared}
