"""Every value of every type is written as the slow reference says, and comes back as it was."""

import json
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.core_log.model.changes import Operation, TableChanges
from headwater.core_log.model.table_schema import Column
from headwater.core_log.rows.codec import Encoded, codec_for
from headwater.core_log.rows.settings import WireSettings
from tests.core_log.rows.tables import (
    LEAVES,
    NOW_US,
    PER_SECOND,
    extremes,
    json_value,
    lossless,
    table,
    tables,
)
from tests.core_log.rows.tables import changes as changes_of

JSON_FORMATS = ("debezium-json", "flat-json")
FEW = settings(max_examples=20)
"""Each example asks two parsers, and there is a table of extremes beside them."""
WIRES = st.builds(
    WireSettings,
    value=st.sampled_from(JSON_FORMATS),
    has_schemas=st.booleans(),
    decimal=st.sampled_from(["string", "precise"]),
    time=st.sampled_from(get_args(WireSettings.model_fields["time"].annotation)),
    binary=st.sampled_from(get_args(WireSettings.model_fields["binary"].annotation)),
)


def encoded(changes: TableChanges, wire: WireSettings) -> Encoded:
    return codec_for(wire, topic="shop.public.orders").encode(changes, now_us=NOW_US)


def payloads(column: pa.BinaryArray, wire: WireSettings) -> list[Any]:
    documents = [None if text is None else json.loads(text) for text in column.to_pylist()]
    return [each["payload"] if each and wire.has_schemas else each for each in documents]


def stored(column: pa.Array) -> list[Any]:
    """Times as plain numbers, since Python's own end at the year 9999."""
    values: list[Any] = as_numbers(column).to_pylist()
    return values


def as_numbers(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_temporal(kind):
        return column.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    if pa.types.is_list(kind):
        items = as_numbers(column.flatten())
        lengths = [0 if each is None else each for each in column.value_lengths().to_pylist()]
        offsets = pa.array(np.cumsum([0, *lengths]), pa.int32())
        return pa.ListArray.from_arrays(offsets, items, mask=column.is_null())
    if pa.types.is_struct(kind):
        members = [as_numbers(part) for part in column.flatten()]
        fields = [pa.field(each.name, part.type) for each, part in zip(kind, members, strict=True)]
        return pa.StructArray.from_arrays(members, fields=fields, mask=column.is_null())
    return column


def expected_rows(changes: TableChanges, wire: WireSettings) -> list[dict[str, Any]]:
    columns = {
        column.name: [json_value(column.type, value, wire) for value in stored(values)]
        for column, values in zip(changes.schema.columns, changes.rows.columns, strict=True)
    }
    return [{name: cells[row] for name, cells in columns.items()} for row in range(len(changes))]


MODES = [
    WireSettings(),
    WireSettings(decimal="precise", binary="hex", time="isostring", has_schemas=True),
    WireSettings(binary="base64-url-safe", time="connect"),
    WireSettings(binary="base64", time="microseconds"),
    WireSettings(time="nanoseconds"),
    WireSettings(time="adaptive_time_microseconds"),
    WireSettings(value="flat-json", decimal="precise"),
]


@pytest.mark.slow
@pytest.mark.parametrize("wire", MODES, ids=str)
def test_extremes_of_all_types_in_one_table(wire: WireSettings) -> None:
    changes = table_of_extremes(wire)
    codec = codec_for(wire, topic="t")

    written = codec.encode(changes, now_us=NOW_US)
    read = codec.decode(written.keys, written.values, changes.schema)

    values = [only_row(value, Operation.INSERT, wire) for value in payloads(written.values, wire)]
    assert json.dumps(values) == json.dumps(expected_rows(changes, wire))
    assert not differing(read.rows, changes.rows)


def table_of_extremes(wire: WireSettings) -> TableChanges:
    """A column of every type, and of lists and structs of it."""
    columns: list[Column] = []
    cells: list[pa.Array] = []
    for kind in LEAVES:
        values = [lossless_value(kind, value, wire) for value in extremes(kind, wire)]
        values = [*(values * ROWS_OF_EXTREMES)[: ROWS_OF_EXTREMES - 1], None]
        pair = pa.struct([("a", kind), ("b", pa.list_(kind))])
        for made, made_values in (
            (kind, values),
            (pa.list_(kind), [[], None, values, [None]] * 3),
            (pair, [{"a": None, "b": values}, None, {"a": values[0], "b": None}] * 4),
        ):
            columns.append(Column(f"c{len(columns)}", made))
            cells.append(pa.array(made_values, made, from_pandas=False))
    return changes_of(table(*columns), cells)


ROWS_OF_EXTREMES = 12


def lossless_value(kind: pa.DataType, value: Any, wire: WireSettings) -> Any:
    is_ticking = pa.types.is_time(kind) or (pa.types.is_timestamp(kind) and kind.tz is None)
    return lossless(value, PER_SECOND[kind.unit], wire) if is_ticking else value


@given(st.data())
@FEW
def test_values_are_written_as_the_reference_writes_them(data: st.DataObject) -> None:
    wire = data.draw(WIRES)
    changes = data.draw(tables(wire))

    written = encoded(changes, wire)

    rows = expected_rows(changes, wire)
    values = [value for value in payloads(written.values, wire) if value is not None]
    assert len(values) == len(changes)
    for row, value, operation in zip(rows, values, changes.operations.to_pylist(), strict=True):
        assert only_row(value, operation, wire) == row
        assert json.dumps(only_row(value, operation, wire)) == json.dumps(row)  # 1 is not 1.0


def only_row(value: dict[str, Any], operation: int, wire: WireSettings) -> Any:
    if wire.value == "debezium-json":
        return value["before" if operation == Operation.DELETE else "after"]
    return {name: cell for name, cell in value.items() if not is_added(name)}


def is_added(name: str) -> bool:
    return name in ("__deleted", "__op", "__source_ts_ms", "__source_ts_us")


@given(st.data())
@FEW
def test_rows_come_back_as_they_were(data: st.DataObject) -> None:
    wire = data.draw(WIRES)
    changes = data.draw(tables(wire))
    codec = codec_for(wire, topic="shop.public.orders")

    written = codec.encode(changes, now_us=NOW_US)
    is_event = written.values.is_valid()
    read = codec.decode(
        written.keys.filter(is_event), written.values.filter(is_event), changes.schema
    )

    read.rows.validate(full=False)
    assert not differing(read.rows, changes.rows)
    assert read.operations == changes.operations
    assert read.committed_us == changes.committed_us


def differing(one: pa.RecordBatch, other: pa.RecordBatch) -> list[Any]:
    """The columns that are not equal; NaN equals itself here."""
    assert one.schema == other.schema
    pairs = [
        (field, stored(mine), stored(theirs))
        for field, mine, theirs in zip(one.schema, one.columns, other.columns, strict=True)
    ]
    return [pair for pair in pairs if repr(pair[1]) != repr(pair[2])]


@given(st.data())
@FEW
def test_a_slice_of_a_batch_is_written_like_a_batch_of_its_own(data: st.DataObject) -> None:
    wire = WireSettings(decimal="precise")
    changes = data.draw(tables(wire))
    start = data.draw(st.integers(0, len(changes)))
    rows = changes.rows.slice(start)
    part = TableChanges(changes.schema, rows, changes.operations.slice(start), changes.source)

    written = encoded(part, wire)

    values = [value for value in payloads(written.values, wire) if value is not None]
    expected = expected_rows(changes, wire)[start:]
    operations = part.operations.to_pylist()
    assert [only_row(*each, wire) for each in zip(values, operations, strict=True)] == expected


@pytest.mark.parametrize("form", JSON_FORMATS)
def test_a_batch_without_rows_is_written_and_read(form: str) -> None:
    wire = WireSettings.model_validate({"value": form})
    changes = tables_without_rows()
    codec = codec_for(wire, topic="t")

    written = codec.encode(changes, now_us=NOW_US)
    read = codec.decode(written.keys, written.values, changes.schema)

    assert len(written.keys) == len(written.values) == 0
    assert read.rows == changes.rows


def tables_without_rows() -> TableChanges:
    schema = table(Column("id", pa.int64()), Column("name", pa.string()), key=("id",))
    return changes_of(schema, [pa.array([], pa.int64()), pa.array([], pa.string())])
