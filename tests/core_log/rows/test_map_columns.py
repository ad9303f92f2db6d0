"""Text that is JSON inside of us is a map on the wire, in every format, and comes back."""

import io
import json
from collections.abc import Iterator, Sequence
from typing import Any

import fastavro
import orjson
import pyarrow as pa
import pytest

from headwater.core_log.foundation.errors import RowsRejected
from headwater.core_log.model.changes import TableChanges
from headwater.core_log.model.table_schema import Column, TableSchema
from headwater.core_log.rows.avro.schema_registry import avro_schema
from headwater.core_log.rows.codec import codec_for
from headwater.core_log.rows.converters.column import AS_MAP, FORM, JSON, form_of
from headwater.core_log.rows.settings import WireSettings
from tests.core_log.rows.avro.registry_fake import RegistryFake, running_registry
from tests.core_log.rows.tables import NOW_US, changes, table

PAIRS = Column("pairs", pa.string(), semantic=JSON, parameters={FORM: AS_MAP})
LISTED = Column("listed", pa.list_(pa.string()), semantic=JSON, parameters={FORM: AS_MAP})
SCHEMA = table(Column("id", pa.int64(), is_nullable=False), PAIRS, LISTED, key=("id",))
TEXTS = ['{"k e":"v\\"q","b":null,"é":"日\\n"}', "{}", None, '{"a":"null",":n":"}"}', None]
LISTS = [["{}", None, '{"x":"y"}'], [], None, None, ['{"z":null}']]
ROWS = [
    {"id": number, "pairs": text, "listed": listed}
    for number, (text, listed) in enumerate(zip(TEXTS, LISTS, strict=True))
]


@pytest.fixture
def registry() -> Iterator[RegistryFake]:
    with running_registry() as running:
        yield running


def told(schema: TableSchema, rows: Sequence[dict[str, Any]]) -> TableChanges:
    return changes(schema, pa.RecordBatch.from_pylist(list(rows), schema=schema.arrow).columns)


def maps_of(row: dict[str, Any]) -> dict[str, Any]:
    def parsed(text: str | None) -> Any:
        return None if text is None else json.loads(text)

    listed = None if row["listed"] is None else [parsed(each) for each in row["listed"]]
    return {"id": row["id"], "pairs": parsed(row["pairs"]), "listed": listed}


@pytest.mark.parametrize("form", ["debezium-json", "flat-json", "debezium-avro", "flat-avro"])
@pytest.mark.parametrize("first", [0, 2])
def test_maps_come_back_as_the_text_they_were(
    form: str, first: int, registry: RegistryFake
) -> None:
    wire = WireSettings.model_validate({"value": form, "registry": registry.address})
    codec, what = codec_for(wire, topic="t"), told(SCHEMA, ROWS).slice(first, 3)

    written = codec.encode(what, now_us=NOW_US)
    read = codec.decode(written.keys, written.values, SCHEMA)

    assert read.rows.to_pylist() == ROWS[first : first + 3]


def test_json_has_an_object_in_the_place_of_the_map() -> None:
    codec = codec_for(WireSettings(), topic="t")

    written = codec.encode(told(SCHEMA, ROWS), now_us=NOW_US)

    events = [orjson.loads(value) for value in written.values.to_pylist()]
    assert [event["after"] for event in events] == [maps_of(row) for row in ROWS]


def test_another_reader_of_avro_finds_a_map(registry: RegistryFake) -> None:
    wire = WireSettings.model_validate({"value": "flat-avro", "registry": registry.address})

    written = codec_for(wire, topic="t").encode(told(SCHEMA, ROWS), now_us=NOW_US)

    number = int.from_bytes(written.values[0].as_py()[1:5])
    schema = fastavro.parse_schema(json.loads(registry.schemas[number]))
    for row, value in zip(ROWS, written.values.to_pylist(), strict=True):
        read: Any = fastavro.schemaless_reader(io.BytesIO(value[5:]), schema, None)
        assert {name: read[name] for name in row} == maps_of(row)


def test_the_schema_is_connects_map_of_strings_that_may_be_null() -> None:
    schema = form_of(PAIRS, WireSettings()).connect_schema(is_optional=True)

    assert schema == {
        "type": "map",
        "keys": {"type": "string", "optional": False},
        "values": {"type": "string", "optional": True},
        "optional": True,
    }
    assert avro_schema(schema) == ["null", {"type": "map", "values": ["null", "string"]}]


@pytest.mark.parametrize("pairs", [{"a": 1}, [], "x", {"a": {}}])
def test_a_value_that_is_no_map_of_strings_is_refused(pairs: Any) -> None:
    codec = codec_for(WireSettings.model_validate({"value": "flat-json"}), topic="t")
    written = codec.encode(told(SCHEMA, ROWS[:2]), now_us=NOW_US)
    bad = orjson.loads(written.values[0].as_py()) | {"pairs": pairs}
    values = pa.array([orjson.dumps(bad), written.values[1].as_py()], pa.binary())

    with pytest.raises(RowsRejected) as caught:
        codec.decode(written.keys, values, SCHEMA)

    assert list(caught.value.reasons) == [0]
