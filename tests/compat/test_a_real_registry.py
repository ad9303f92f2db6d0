"""Avro by a schema registry that others built, read by the client that Confluent built."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from headwater.core_log.foundation.errors import RegistryRejected
from headwater.core_log.model.changes import TableChanges
from headwater.core_log.model.table_schema import Column
from headwater.core_log.rows.codec import RowCodec, codec_for
from headwater.core_log.rows.settings import WireSettings
from tests.compat.apicurio_registry import demand_compatibility, running_apicurio
from tests.core_log.rows.json.test_debezium_writer import POSTGRES, customers
from tests.core_log.rows.json.test_round_trip import MODES, differing, table_of_extremes
from tests.core_log.rows.tables import NOW_US, changes, table
from tests.crash.pipeline_process import run_pipeline
from tests.crash.test_a_killed_pipeline_ends_equal import rows_found, rows_of_truth

pytestmark = pytest.mark.compat

TOPICS = (f"t.public.customers{number}" for number in count())
PIPELINE = """
pipeline: shop
log: {{value: {form}, registry: "{registry}"}}
source: {{type: generator, size: 1000, total: 5500, rate: 0, batch_rows: 100, batch_wait: 0ms}}
sink: {{type: sql, url: "sqlite:///shop.db", commit_every: 0s}}
"""


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One for all: each test has topics, and so subjects, of its own."""
    with running_apicurio(tmp_path_factory.mktemp("registry")) as address:
        yield address


def codec(registry: str, form: str = "debezium-avro", *, topic: str = "", **wire: Any) -> RowCodec:
    settings = WireSettings.model_validate({"value": form, "registry": registry} | wire)
    return codec_for(settings, topic=topic or next(TOPICS))


@pytest.mark.parametrize("form", ["debezium-avro", "flat-avro"])
@pytest.mark.parametrize("wire", MODES[:3], ids=str)
def test_extremes_of_all_types_come_back(registry: str, wire: WireSettings, form: str) -> None:
    what = table_of_extremes(wire)
    modes = wire.model_dump(exclude={"value", "registry", "has_schemas"})
    topic = next(TOPICS)

    written = codec(registry, form, topic=topic, **modes).encode(what, now_us=NOW_US)
    read = codec(registry, form, topic=topic, **modes).decode(
        written.keys, written.values, what.schema
    )

    assert not differing(read.rows, what.rows)
    assert read.operations == what.operations


def test_confluents_reader_finds_debeziums_events(registry: str) -> None:
    topic = next(TOPICS)
    what: TableChanges = customers((1, "Ann"), (2, "é😀"), operations=[1, 3], source=POSTGRES)
    value = SerializationContext(topic, MessageField.VALUE)
    key = SerializationContext(topic, MessageField.KEY)

    written = codec(registry, topic=topic).encode(what, now_us=NOW_US)
    with SchemaRegistryClient({"url": registry}) as client:
        read = AvroDeserializer(client)
        events = [read(each, value) for each in written.values.drop_null().to_pylist()]
        keys = [read(each, key) for each in written.keys.to_pylist()]

    assert [(each["op"], each["before"], each["after"]) for each in events] == [
        ("c", None, {"id": 1, "name": "Ann"}),
        ("d", {"id": 2, "name": "é😀"}, None),
    ]
    assert {name: events[0]["source"][name] for name in POSTGRES} == POSTGRES
    assert keys == [{"id": 1}, {"id": 2}, {"id": 2}]


def test_values_of_a_table_that_grew_are_read_by_either_schema(registry: str) -> None:
    topic = next(TOPICS)
    narrow = table(Column("id", pa.int32()), key=("id",))
    wide = table(Column("id", pa.int32()), Column("name", pa.string()), key=("id",))
    numbers = pa.array([1], pa.int32())
    demand_compatibility(registry, f"{topic}-value", "BACKWARD")

    first = codec(registry, topic=topic).encode(changes(narrow, [numbers]), now_us=NOW_US)
    grown = changes(wide, [numbers, pa.array(["a"])])
    second = codec(registry, topic=topic).encode(grown, now_us=NOW_US)

    fresh = codec(registry, topic=topic)
    assert fresh.decode(first.keys, first.values, narrow).rows.to_pylist() == [{"id": 1}]
    assert fresh.decode(second.keys, second.values, wide).rows == grown.rows


def test_a_change_that_the_registry_forbids_is_refused_with_the_cure(registry: str) -> None:
    topic = next(TOPICS)
    number, text = Column("id", pa.int32()), Column("id", pa.string(), is_nullable=False)
    codec(registry, topic=topic).encode(
        changes(table(number), [pa.array([1], pa.int32())]), now_us=NOW_US
    )
    demand_compatibility(registry, f"{topic}-value", "BACKWARD")

    with pytest.raises(RegistryRejected) as caught:
        codec(registry, topic=topic).encode(changes(table(text), [pa.array(["a"])]), now_us=NOW_US)

    assert caught.value.facts["status"] == 409 and "compatibility" in str(caught.value)


@pytest.mark.parametrize("form", ["debezium-avro", "flat-avro"])
def test_a_pipeline_by_avro_ends_equal(registry: str, form: str, tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(PIPELINE.format(form=form, registry=registry))

    assert run_pipeline(file, None) == 0

    assert rows_found(tmp_path / "shop.db") == rows_of_truth()
