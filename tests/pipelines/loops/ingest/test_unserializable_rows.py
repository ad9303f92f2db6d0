"""A row that the wire form cannot express costs itself, neither its neighbours nor the source."""

import json
from random import Random
from typing import Any

import pyarrow as pa

from headwater.core_log.model.changes import Operation, Reject, TableChanges
from headwater.core_log.model.table_schema import Column, TableId, TableSchema
from headwater.core_log.records.compression import Compression
from headwater.core_log.rows.codec import RowCodec, codec_for
from headwater.core_log.rows.settings import WireSettings
from headwater.pipelines.loops.ingest.unserializable_rows import (
    RECORD_BYTES_MAX,
    check_sizes,
    encode_or_reject,
)

MOMENT = pa.timestamp("us")
SCHEMA = TableSchema(
    TableId("public", "t"), (Column("id", pa.int64()), Column("at", MOMENT)), ("id",)
)
NEAR, FAR = 1_000, 253_402_300_800_000_000
"""Nanoseconds end in 2262."""
READ, INSERT, UPDATE, DELETE = Operation.READ, Operation.INSERT, Operation.UPDATE, Operation.DELETE


def changes(*rows: tuple[int, int, int | None], **more: Any) -> TableChanges:
    columns = [pa.array([key for _, key, _ in rows]), pa.array([at for *_, at in rows], MOMENT)]
    given = {"commits": "0/1", "indexes": pa.array(range(len(rows)))} | more
    return TableChanges(
        SCHEMA,
        pa.RecordBatch.from_arrays(columns, schema=SCHEMA.arrow),
        pa.array([operation for operation, *_ in rows], pa.uint8()),
        {"ts_us": 5},
        **given,
    )


def encoded(what: TableChanges) -> tuple[TableChanges, list[Any], list[Reject]]:
    return through(codec_for(WireSettings(time="nanoseconds"), topic="t"), what)


def through(
    codec: RowCodec, what: TableChanges, *, record_bytes_max: int = RECORD_BYTES_MAX
) -> tuple[TableChanges, list[Any], list[Reject]]:
    """Returns the changes that are left, their events, and the rejected rows."""
    kept = [what]

    def encode(left: TableChanges) -> list[Any]:
        found = codec.encode(left, now_us=1)
        check_sizes(found, Compression.ZSTD, record_bytes_max=record_bytes_max)
        kept.append(left)
        return [json.loads(each) for each in found.values.drop_null().to_pylist()]

    events, rejects = encode_or_reject(what, encode)
    return kept[-1], events, rejects


def test_neighbours_of_a_row_that_cannot_be_expressed_go_on() -> None:
    _, events, rejects = encoded(changes((INSERT, 1, NEAR), (INSERT, 2, FAR), (UPDATE, 3, None)))

    assert [event["after"]["id"] for event in events] == [1, 3]
    assert [(each.content, each.at) for each in rejects] == [(b'{"id":"2"}', "0/1#1")]
    assert "at" in rejects[0].problem and str(FAR) not in rejects[0].problem


def test_the_key_of_a_deleted_row_is_enough() -> None:
    _, [event], rejects = encoded(changes((DELETE, 1, FAR)))

    assert (event["op"], event["before"]) == ("d", {"id": 1, "at": None})
    assert not rejects


def test_a_row_before_an_update_is_left_out_rather_than_the_update() -> None:
    before = pa.array([{"id": 1, "at": FAR}], pa.struct(list(SCHEMA.arrow)))

    _, [event], rejects = encoded(changes((UPDATE, 1, NEAR), before=before))

    assert (event["before"], event["after"]["at"]) == (None, NEAR * 1_000)
    assert not rejects


def test_a_changed_key_that_loses_its_new_half_is_a_plain_delete() -> None:
    moves = pa.array([True, True, False])

    kept, events, rejects = encoded(
        changes((DELETE, 1, None), (INSERT, 2, FAR), (INSERT, 3, NEAR), moves=moves)
    )

    assert [event["op"] for event in events] == ["d", "c"]
    assert kept.moves is not None and kept.moves.to_pylist() == [False, False]
    assert [each.at for each in rejects] == ["0/1#1"]


def test_rows_that_nobody_counts_have_places_of_their_own() -> None:
    _, events, rejects = encoded(changes((READ, 1, FAR), (READ, 2, FAR), indexes=None))

    assert not events and len({each.at for each in rejects}) == 2
    assert all(each.at.startswith("0/1#") for each in rejects)


LARGE = TableSchema(
    TableId("public", "t"), (Column("id", pa.int64()), Column("body", pa.string())), ("id",)
)
NOISE, OTHER = (Random(seed).randbytes(100_000).hex() for seed in (1, 2))


def large(operation: Operation, *bodies: str, before: str | None = None) -> TableChanges:
    columns = [pa.array(range(len(bodies)), pa.int64()), pa.array(bodies)]
    rows = pa.RecordBatch.from_arrays(columns, schema=LARGE.arrow)
    old = None
    if before is not None:
        columns[1] = pa.array([before] * len(bodies))
        old = pa.StructArray.from_arrays(columns, fields=list(LARGE.arrow))
    operations = pa.array([operation] * len(bodies), pa.uint8())
    return TableChanges(LARGE, rows, operations, {"ts_us": 5}, commits="0/1", before=old)


def fitting(what: TableChanges) -> tuple[TableChanges, list[Any], list[Reject]]:
    """Into records of at most 128 KiB, with room for what stands around them."""
    return through(codec_for(WireSettings(), topic="t"), what, record_bytes_max=192 << 10)


def test_a_row_too_large_for_a_record_is_set_aside_by_its_key_with_what_to_do() -> None:
    _, events, [reject] = fitting(large(INSERT, "small", NOISE + OTHER, "small"))

    assert [event["after"]["id"] for event in events] == [0, 2]
    assert reject.content == b'{"id":"1"}'
    assert "max.message.bytes" in reject.problem and "`drop`" in reject.problem


def test_a_row_that_compression_makes_fit_goes_on() -> None:
    _, [event], rejects = fitting(large(INSERT, "x" * 1_000_000))

    assert not rejects and len(event["after"]["body"]) == 1_000_000


def test_the_row_before_is_left_out_before_the_row_is() -> None:
    _, [event], rejects = fitting(large(UPDATE, NOISE, before=NOISE[::-1]))

    assert not rejects and event["before"] is None
    assert event["after"]["body"] == NOISE
