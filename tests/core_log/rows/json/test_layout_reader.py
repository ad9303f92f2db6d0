"""Events cut by their layout are those the parser finds, and all others go to the parser."""

import json
from typing import Any

import pyarrow as pa
import pytest

from headwater.core_log.model.changes import Operation
from headwater.core_log.model.table_schema import Column
from headwater.core_log.rows.codec import codec_for
from headwater.core_log.rows.json import layout_reader
from headwater.core_log.rows.settings import WireSettings
from tests.core_log.rows.tables import SOURCE, changes, table

ROW = '{"id":1,"note":"},\\"source\\":{,\\"op\\":\\"d\\""}'
OURS = (
    '{"before":null,"after":%s,"source":{"a":1,"ts_us":1700000000123456,"b":2},"transaction":null,'
    '"op":"c","ts_ms":1}'
)
SCHEMA = table(Column("id", pa.int64()), Column("note", pa.string()), key=("id",))


def test_rows_of_many_widths_are_cut_where_they_end() -> None:
    numbers = [10**power for power in range(12)]
    times = [9_876_543_210_123_456 - 7 * number for number in numbers]
    source = SOURCE | {"lsn": pa.array(numbers), "ts_us": pa.array(times)}
    columns = [pa.array(numbers), pa.array([f"{number}," for number in numbers])]
    whats = [Operation.INSERT, Operation.DELETE, Operation.UPDATE, Operation.READ] * 3
    written = codec_for(WireSettings(), topic="t").encode(
        changes(SCHEMA, columns, whats, source=source), now_us=1_700_000_000_000_000
    )

    layout = layout_reader.cut(written.values.drop_null().cast(pa.string()))

    assert layout is not None
    assert [json.loads(row)["id"] for row in layout.row.to_pylist()] == numbers
    assert layout.is_deleted.tolist() == [False, True, False, False] * 3
    assert bytes(layout.codes) == b"cdur" * 3
    assert layout.committed_us.tolist() == times


@pytest.mark.parametrize("fields", [{}, {"a": 1}, {"op": "d", "ts_ms": 5}])
def test_fields_of_the_source_are_not_taken_for_those_of_the_event(fields: dict[str, Any]) -> None:
    source = {"ts_us": 1_700_000_000_000_001} | fields
    columns = [pa.array([1, 2]), pa.array(["a", None])]
    codec = codec_for(WireSettings(), topic="t")

    written = codec.encode(changes(SCHEMA, columns, source=source), now_us=1_800_000_000_000_002)
    read = codec.decode(written.keys, written.values, SCHEMA)

    assert read.committed_us.to_pylist() == [source["ts_us"]] * 2
    assert read.operations.to_pylist() == [Operation.INSERT] * 2


@pytest.mark.parametrize("start", [0, 1])
def test_text_that_looks_like_the_end_of_a_row_is_none(start: int) -> None:
    texts = pa.array([OURS % ROW, OURS % '{"id":2}']).slice(start)

    layout = layout_reader.cut(texts)

    assert layout is not None
    assert layout.row.to_pylist() == [ROW, '{"id":2}'][start:]


@pytest.mark.parametrize(
    "other",
    [
        OURS.replace(":", ": "),
        OURS.replace('"source"', '"origin"'),
        OURS.replace('"before":null', '"before":{"id":1}'),
        OURS.replace("1700000000123456", "17"),
        OURS.replace("1700000000123456", "17000000001234567"),
        OURS.replace("1700000000123456", '"1700000000123456"'),
        OURS.replace('"op"', '"operation"'),
        OURS[:-1],
    ],
)
def test_another_layout_among_ours_is_left_to_the_parser(other: str) -> None:
    texts = pa.array([OURS % ROW, other % ROW, OURS % ROW])

    assert layout_reader.cut(texts) is None


@pytest.mark.parametrize(
    "columns",
    [
        {"source": {"id": 1}},
        {"a": {"source": {"op": "c"}}},
    ],
)
def test_columns_that_are_named_source_do_not_mislead(columns: dict[str, Any]) -> None:
    row = pa.RecordBatch.from_pylist([columns])
    schema = table(*(Column(field.name, field.type) for field in row.schema))
    codec = codec_for(WireSettings(), topic="t")

    written = codec.encode(changes(schema, row.columns), now_us=1)
    read = codec.decode(written.keys, written.values, schema)

    assert read.rows.to_pylist() == [columns]
