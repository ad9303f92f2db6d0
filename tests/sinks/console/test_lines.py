"""What is printed can be read by people and by programs, and harms no terminal."""

import io
import json
from collections.abc import AsyncIterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.core_log.foundation.errors import SinkRejected
from headwater.core_log.model.changes import Operation, TableChanges, source_times
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.model.table_schema import Column, TableId, TableSchema
from headwater.sinks.console.settings import ConsoleSettings
from headwater.sinks.console.sink import ConsoleSink, cell_texts, json_lines, people_lines
from headwater.sinks.sink import SinkContext, Slice
from tests.fakes import SimulatedClock
from tests.memory_log import MemoryLog

INSERT, UPDATE, DELETE = Operation.INSERT, Operation.UPDATE, Operation.DELETE
COLUMNS = (
    Column("total", pa.decimal128(12, 2)),
    Column("note", pa.string()),
    Column("id", pa.int64()),
    Column("day", pa.date32()),
    Column("at", pa.timestamp("us", "UTC")),
    Column("rate", pa.float64()),
)
ORDERS = TableSchema(TableId("shop", "orders"), COLUMNS, ("id",))


def changes_of(
    *rows: dict[str, Any], operations: list[int] | None = None, schema: TableSchema = ORDERS
) -> TableChanges:
    codes = operations or [INSERT] * len(rows)
    return TableChanges(
        schema,
        pa.RecordBatch.from_pylist(list(rows), schema=schema.arrow),
        pa.array(codes, pa.uint8()),
        source_times(1_000_000),
        log_partition=TopicPartition("shop.orders", 0),
        log_offsets=pa.array(range(5, 5 + len(rows)), pa.int64()),
    )


def test_moments_beyond_those_of_python_are_words_or_numbers() -> None:
    ends = pa.array([2**31 - 1, 2_932_897], pa.int32()).view(pa.date32())
    ours = pa.array([9_223_372_036_825_200_000, 10**18], pa.int64())
    moments = ours.view(pa.timestamp("us", "UTC"))
    lists = pa.ListArray.from_arrays([0, 2], ends)

    assert cell_texts(ends).to_pylist() == ['"infinity"', '"10000-01-01"']
    assert cell_texts(moments).to_pylist() == ['"infinity"', '"33658-09-27T01:46:40.000000Z"']
    assert cell_texts(lists).to_pylist() == ['["infinity","10000-01-01"]']


def test_a_change_is_a_line_with_values_as_people_write_them() -> None:
    row = {
        "id": 7,
        "total": Decimal("12.50"),
        "note": 'say "hi"\nGrüße',
        "day": date(2026, 1, 31),
        "at": datetime(2026, 1, 31, 12, tzinfo=UTC),
        "rate": None,
    }

    assert people_lines(changes_of(row, operations=[UPDATE])) == (
        'update   shop.orders id=7 total="12.50" note="say \\"hi\\"\\nGrüße" day="2026-01-31" '
        'at="2026-01-31T12:00:00.000000Z" rate=null\n'
    )


def test_a_delete_shows_its_key() -> None:
    changes = changes_of({"id": 7, "note": "x"}, {"id": 8}, operations=[INSERT, DELETE])

    lines = people_lines(changes).splitlines()

    assert lines[1] == "delete   shop.orders id=8"
    assert lines[0].startswith('insert   shop.orders id=7 total=null note="x"')


def test_json_lines_are_json() -> None:
    changes = changes_of(
        {"id": 7, "total": Decimal("-0.05"), "note": "\x1b[31m\u202e\\", "rate": float("nan")},
        {"id": 8},
        operations=[UPDATE, DELETE],
    )

    first, second = map(json.loads, json_lines(changes).splitlines())

    assert first["op"] == "update" and first["at"] == "shop.orders-0@5"
    assert first["row"]["total"] == "-0.05" and first["row"]["rate"] == "nan"
    assert first["row"]["note"] == "\x1b[31m\u202e\\"
    assert second == {
        "op": "delete",
        "table": "shop.orders",
        "row": {"id": 8},
        "at": "shop.orders-0@6",
    }


@pytest.mark.parametrize("write", [people_lines, json_lines])
def test_signs_that_a_terminal_obeys_are_not_printed(write: Any) -> None:
    name = "a\x07b"
    schema = TableSchema(TableId("s\x1b", "t"), (Column(name, pa.string()),), ())

    text = write(changes_of({name: "\x1b[2J\x9b"}, {name: None}, schema=schema))

    assert text.replace("\n", "").isprintable() and text.count("\n") == 2


@pytest.mark.parametrize("write", [people_lines, json_lines])
def test_a_truncate_is_said(write: Any) -> None:
    text = write(changes_of({}, operations=[Operation.TRUNCATE]))

    assert "truncate" in text and "shop.orders" in text and text.count("\n") == 1


@pytest.mark.parametrize(
    ("column", "texts"),
    [
        (pa.array([True, None]), ["true", "null"]),
        (pa.array([1.5, float("inf"), None]), ["1.5", '"inf"', "null"]),
        (pa.array([Decimal("0.0000001")], pa.decimal128(10, 7)), ['"0.0000001"']),
        (pa.array([b"\x01\xff"]), ['"01ff"']),
        (pa.array([[1, None]]), ["[1,null]"]),
        (pa.array([{"a": b"\x02", "b": Decimal("1.0")}]), ['{"a":"02","b":"1.0"}']),
        (pa.array(["x", "x"]).dictionary_encode(), ['"x"', '"x"']),
        (pa.array([43_200_000_000], pa.time64("us")), ['"12:00:00.000000"']),
    ],
)
def test_every_type_has_its_text(column: pa.Array, texts: list[str]) -> None:
    assert cell_texts(column).to_pylist() == texts


async def test_only_chosen_tables_are_printed_and_no_more_than_asked_for() -> None:
    other = TableSchema(TableId("shop", "secret"), COLUMNS, ("id",))
    part = slice_of(
        changes_of({"id": 1}, schema=other), changes_of({"id": 2}, {"id": 3}), changes_of({"id": 4})
    )
    output = io.StringIO()
    sink = ConsoleSink(
        ConsoleSettings(tables=("shop.*", "!*.secret"), limit=2), sink_context(), output
    )

    await sink.apply(part)

    assert [line.split()[2] for line in output.getvalue().splitlines()] == ["id=2", "id=3"]
    assert await sink.committed_offsets(["shop.orders"]) is None
    assert await sink.plan([ORDERS, other]) == ["print changes of shop.orders"]


async def test_a_reader_who_left_is_an_error_and_no_traceback() -> None:
    class Left(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    sink = ConsoleSink(ConsoleSettings(), sink_context(), Left())

    with pytest.raises(SinkRejected, match="output is closed"):
        await sink.apply(slice_of(changes_of({"id": 1})))


def sink_context() -> SinkContext:
    return SinkContext("shop", Path(), {}, SimulatedClock())


def slice_of(*parts: TableChanges) -> Slice:
    async def read(_: Slice) -> AsyncIterator[TableChanges]:
        for part in parts:
            yield part

    return Slice(MemoryLog(), {}, {}, None, read)
