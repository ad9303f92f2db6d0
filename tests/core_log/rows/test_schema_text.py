"""Every column type has a text of its own, and every schema survives its own JSON."""

import json
from typing import get_args

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.model.table_schema import Column, TableId, TableSchema
from headwater.core_log.rows.schema_text import (
    parse_type,
    schema_from_json,
    schema_to_json,
    type_text,
)
from headwater.core_log.rows.settings import WireSettings
from tests.core_log.rows.tables import NAMES, kinds

FEW = settings(max_examples=50)


@given(kinds())
@FEW
def test_a_type_is_read_from_its_text(kind: pa.DataType) -> None:
    text = type_text(kind)

    read = parse_type(text)

    assert read == kind


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("int32", pa.int32()),
        ("bytes", pa.binary()),
        ("date", pa.date32()),
        ("time(us)", pa.time64("us")),
        ("timestamp(us)", pa.timestamp("us")),
        ("timestamptz(us)", pa.timestamp("us", "UTC")),
        ("decimal(10,2)", pa.decimal128(10, 2)),
        ("decimal( 40 , 2 )", pa.decimal256(40, 2)),
        ("list<int32>", pa.list_(pa.int32())),
        ("struct<a:int32, b:string>", pa.struct([("a", pa.int32()), ("b", pa.string())])),
        ('struct<"a b":list<decimal(10,2)>>', pa.struct([("a b", pa.list_(pa.decimal128(10, 2)))])),
        ("struct<>", pa.struct([])),
    ],
)
def test_types_are_written_as_people_write_them(text: str, kind: pa.DataType) -> None:
    assert parse_type(text) == kind


@pytest.mark.parametrize(
    "text",
    ["", "int", "int32 x", "decimal(0,0)", "decimal(77,2)", "decimal(5)", "list<int32", "list<>",
     "struct<a:int32,>", "struct<a>", 'struct<"a:int32>', "timestamp(min)", "list<" * 100],
)  # fmt: skip
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(DecodeError):
        parse_type(text)


def test_a_type_without_a_place_in_the_log_is_refused() -> None:
    with pytest.raises(DecodeError, match="not supported by the log"):
        type_text(pa.month_day_nano_interval())


WIRES = st.builds(
    WireSettings,
    value=st.sampled_from(get_args(WireSettings.model_fields["value"].annotation)),
    has_schemas=st.booleans(),
    registry=st.sampled_from(["", "http://registry:8081"]),
)


@given(st.data())
@FEW
def test_a_schema_survives_its_json(data: st.DataObject) -> None:
    wire = data.draw(WIRES)
    names = data.draw(st.lists(NAMES, max_size=4, unique=True))
    columns = tuple(
        Column(
            name,
            data.draw(kinds()),
            is_nullable=data.draw(st.booleans()),
            semantic=data.draw(st.sampled_from(["", "io.debezium.data.Enum"])),
            parameters=data.draw(st.dictionaries(NAMES, NAMES, max_size=2)),
        )
        for name in names
    )
    key = tuple(reversed(names[:2]))
    schema = TableSchema(TableId(data.draw(NAMES), data.draw(NAMES)), columns, key)

    read = schema_from_json(json.loads(json.dumps(schema_to_json(schema, wire))))

    assert read == (schema, wire)


@pytest.mark.parametrize("document", [{}, {"version": 2}, {"version": 1, "table": []}])
def test_a_stored_schema_of_another_shape_is_refused(document: dict[str, object]) -> None:
    with pytest.raises(DecodeError):
        schema_from_json(document)
