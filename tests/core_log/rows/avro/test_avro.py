"""Avro values are what any other reader of Avro makes of them, and come back as they were."""

import io
import json
from collections.abc import Iterator
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest

from headwater.core_log.foundation.errors import (
    ConfigError,
    Cure,
    DecodeError,
    HeadwaterError,
    RowsRejected,
)
from headwater.core_log.model.changes import Operation, TableChanges
from headwater.core_log.model.table_schema import Column
from headwater.core_log.rows.avro.schema_registry import avro_schema, legal_names
from headwater.core_log.rows.codec import TRUNCATE_KEY, RowCodec, codec_for
from headwater.core_log.rows.settings import WireSettings
from tests.core_log.rows.avro.registry_fake import RegistryFake, running_registry
from tests.core_log.rows.json.test_debezium_writer import CUSTOMERS, POSTGRES, customers
from tests.core_log.rows.json.test_round_trip import MODES, differing, table_of_extremes
from tests.core_log.rows.tables import NOW_US, changes, table

AVRO_FORMATS = ("debezium-avro", "flat-avro")
TOPIC = "t.public.customers"


@pytest.fixture(scope="module")
def shared() -> Iterator[RegistryFake]:
    with running_registry() as registry:
        yield registry


@pytest.fixture
def registry() -> Iterator[RegistryFake]:
    with running_registry() as running:
        yield running


def codec(registry: RegistryFake, form: str = "debezium-avro", **wire: Any) -> RowCodec:
    settings = WireSettings.model_validate({"value": form, "registry": registry.address} | wire)
    return codec_for(settings, topic=TOPIC)


def read_by_fastavro(registry: RegistryFake, framed: bytes) -> Any:
    number = int.from_bytes(framed[1:5])
    schema = without_logical_types(json.loads(registry.schemas[number]))
    stream = io.BytesIO(framed[5:])
    value = fastavro.schemaless_reader(stream, fastavro.parse_schema(schema), None)
    assert framed[:1] == b"\0" and not stream.read()
    return value


def without_logical_types(schema: Any) -> Any:
    """So that the other reader shows what is stored, not what it stands for."""
    if isinstance(schema, list):
        return [without_logical_types(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: without_logical_types(value) for key, value in schema.items() if key != "logicalType"
    }


@pytest.mark.slow
@pytest.mark.parametrize("form", AVRO_FORMATS)
@pytest.mark.parametrize("wire", MODES[:3], ids=str)
def test_extremes_of_all_types_come_back(
    shared: RegistryFake, wire: WireSettings, form: str
) -> None:
    what = table_of_extremes(wire)
    modes = wire.model_dump(exclude={"value", "registry", "has_schemas"})
    avro = codec(shared, form, **modes)

    written = avro.encode(what, now_us=NOW_US)
    read = avro.decode(written.keys, written.values, what.schema)

    assert not differing(read.rows, what.rows)
    assert read.operations == what.operations and read.committed_us == what.committed_us


def test_another_reader_finds_debeziums_event(registry: RegistryFake) -> None:
    source = POSTGRES | {"lsn": pa.array([5, 6, 7]), "sequence": pa.array(["a", None, "c"])}
    before = [None, {"id": 2, "name": "b"}, None]
    rows = [(1, "Ann"), (2, "é😀"), (3, None)]
    what = customers(*rows, operations=[1, 2, 3], before=before, source=source)

    written = codec(registry).encode(what, now_us=NOW_US)

    events = [read_by_fastavro(registry, each) for each in written.values.drop_null().to_pylist()]
    assert events[0] == {
        "before": None,
        "after": {"id": 1, "name": "Ann"},
        "source": POSTGRES | {"lsn": 5, "sequence": "a"},
        "transaction": None,
        "op": "c",
        "ts_ms": NOW_US // 1000,
        "ts_us": NOW_US,
        "ts_ns": NOW_US * 1000,
    }
    assert [(each["op"], each["before"], each["after"]) for each in events[1:]] == [
        ("u", {"id": 2, "name": "b"}, {"id": 2, "name": "é😀"}),
        ("d", {"id": 3, "name": None}, None),
    ]
    keys = [read_by_fastavro(registry, each) for each in written.keys.to_pylist()]
    assert keys == [{"id": 1}, {"id": 2}, {"id": 3}, {"id": 3}]
    assert written.values.is_null().to_pylist() == [False, False, False, True]


def test_events_of_every_kind_come_back(registry: RegistryFake) -> None:
    before = [None, {"id": 2, "name": "b"}, None, None]
    rows = [(1, "a"), (2, None), (3, None), (4, "d")]
    what = customers(*rows, operations=[0, 2, 3, 2], before=before)
    avro = codec(registry)

    written = avro.encode(what, now_us=NOW_US)
    is_event = written.values.is_valid()
    read = avro.decode(written.keys.filter(is_event), written.values.filter(is_event), CUSTOMERS)

    assert read.rows == what.rows and read.operations == what.operations
    assert read.before is not None and read.before.to_pylist() == before


def test_schemas_carry_connects_names(registry: RegistryFake) -> None:
    schema = table(
        Column("id", pa.int16(), is_nullable=False),
        Column("day", pa.date32()),
        Column("price", pa.decimal128(8, 3)),
        Column("mood", pa.string(), semantic="io.debezium.data.Enum", parameters={"allowed": "a"}),
        key=("id",),
    )
    columns = [pa.array([None], column.type) for column in schema.columns[1:]]
    what = changes(schema, [pa.array([1], pa.int16()), *columns], source=POSTGRES)

    codec(registry, decimal="precise").encode(what, now_us=NOW_US)

    envelope = registry.schema(f"{TOPIC}-value")
    assert (envelope["namespace"], envelope["name"]) == (TOPIC, "Envelope")
    assert envelope["connect.name"] == f"{TOPIC}.Envelope" and envelope["connect.version"] == 2
    before, after = (field["type"] for field in envelope["fields"][:2])
    assert after == ["null", f"{TOPIC}.Value"]
    assert [field["type"] for field in before[1]["fields"]] == [
        {"type": "int", "connect.type": "int16"},
        ["null", {"type": "int", "connect.version": 1, "connect.name": "io.debezium.time.Date"}],
        ["null", {
            "type": "bytes", "scale": 3, "precision": 8, "logicalType": "decimal",
            "connect.version": 1,
            "connect.parameters": {"scale": "3", "connect.decimal.precision": "8"},
            "connect.name": "org.apache.kafka.connect.data.Decimal",
        }],
        ["null", {
            "type": "string", "connect.version": 1, "connect.parameters": {"allowed": "a"},
            "connect.name": "io.debezium.data.Enum",
        }],
    ]  # fmt: skip
    assert registry.schema(f"{TOPIC}-key")["connect.name"] == f"{TOPIC}.Key"
    fastavro.parse_schema(envelope)


def test_names_that_avro_forbids_are_replaced_and_stay_apart(registry: RegistryFake) -> None:
    names = ["naïve", "na_ve", "1st", "", "a b"]
    schema = table(*(Column(name, pa.int32()) for name in names), key=("a b",))
    what = changes(schema, [pa.array([place], pa.int32()) for place in range(len(names))])
    avro = codec(registry)

    written = avro.encode(what, now_us=NOW_US)

    assert legal_names(names) == ["na_ve", "na_ve_2", "_1st", "_", "a_b"]
    assert avro.decode(written.keys, written.values, schema).rows == what.rows


@pytest.mark.parametrize("form", AVRO_FORMATS)
def test_a_truncate_can_be_read_by_others(registry: RegistryFake, form: str) -> None:
    row = [pa.nulls(1, column.type) for column in CUSTOMERS.columns]

    written = codec(registry, form).encode(
        changes(CUSTOMERS, row, [Operation.TRUNCATE], source=POSTGRES), now_us=NOW_US
    )

    value = read_by_fastavro(registry, written.values[0].as_py())
    assert written.keys.to_pylist() == [TRUNCATE_KEY]
    assert value.get("op", value.get("__op")) == "t"


@pytest.mark.parametrize("form", AVRO_FORMATS)
def test_a_batch_without_rows_is_written_and_read(registry: RegistryFake, form: str) -> None:
    avro = codec(registry, form)

    written = avro.encode(customers(), now_us=NOW_US)

    assert not len(written.values)
    assert not len(avro.decode(written.keys, written.values, CUSTOMERS))


def test_each_schema_is_asked_for_once(registry: RegistryFake) -> None:
    avro = codec(registry)

    for _ in range(3):
        written = avro.encode(customers((1, "a")), now_us=NOW_US)
        avro.decode(written.keys, written.values, CUSTOMERS)

    assert len(registry.requests) == 3  # a key's, a value's, and the value's again by its number


def test_records_of_two_schemas_come_back_in_their_order(registry: RegistryFake) -> None:
    other = {"connector": "generator", "ts_us": 5, "more": "x"}
    avro = codec(registry)
    one = avro.encode(customers((1, "a"), (2, "b")), now_us=NOW_US).values
    two = avro.encode(customers((3, "c"), source=other), now_us=NOW_US).values

    values = pa.concat_arrays([one[:1], two, one[1:]])
    read = avro.decode(pa.nulls(3, pa.binary()), values, CUSTOMERS)

    assert read.rows.column("id").to_pylist() == [1, 3, 2]


@pytest.mark.parametrize("form", AVRO_FORMATS)
def test_bytes_that_are_no_value_are_named(shared: RegistryFake, form: str) -> None:
    avro = codec(shared, form)
    good = avro.encode(customers((1, "abc")), now_us=NOW_US).values[0].as_py()
    bad = [
        b"",
        b"\1" + good[1:],
        good[:-1],
        good + b"\0",
        good[:5],
        good.replace(b"abc", b"a\xffc"),
    ]

    for spoiled in bad:
        with pytest.raises(RowsRejected) as caught:
            values = pa.array([good, spoiled, good], pa.binary())
            avro.decode(pa.nulls(3, pa.binary()), values, CUSTOMERS)
        assert list(caught.value.reasons) == [1]


@pytest.mark.slow
def test_no_cut_or_changed_byte_does_worse_than_be_refused(shared: RegistryFake) -> None:
    schema = table(Column("tags", pa.list_(pa.string())), Column("size", pa.float64()))
    what = changes(schema, [pa.array([["a", None, "b"]]), pa.array([1.5])])
    avro = codec(shared)
    good = avro.encode(what, now_us=NOW_US).values[0].as_py()

    for place in range(5, len(good)):
        for spoiled in (good[:place], good[:place] + b"\xff" + good[place + 1 :]):
            try:
                avro.decode(pa.nulls(1, pa.binary()), pa.array([spoiled], pa.binary()), schema)
            except DecodeError:
                continue


def test_a_schema_that_holds_itself_is_no_table(registry: RegistryFake) -> None:
    avro = codec(registry)
    values = avro.encode(customers((1, "a")), now_us=NOW_US).values
    node = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": "Node"}]}
    registry.schemas[int.from_bytes(values[0].as_py()[1:5])] = json.dumps(node)

    with pytest.raises(RowsRejected):
        avro.decode(pa.nulls(1, pa.binary()), values, CUSTOMERS)


def test_a_table_with_other_columns_is_refused(registry: RegistryFake) -> None:
    avro = codec(registry)
    values = avro.encode(customers((1, "a")), now_us=NOW_US).values

    with pytest.raises(DecodeError, match="other columns"):
        avro.decode(pa.nulls(1, pa.binary()), values, table(Column("id", pa.int32())))


@pytest.mark.parametrize(
    ("status", "cure"),
    [(500, Cure.TIME), (429, Cure.TIME), (409, Cure.OPERATOR), (401, Cure.OPERATOR)],
)
def test_a_refusing_registry_says_who_can_help(
    registry: RegistryFake, status: int, cure: Cure
) -> None:
    registry.refusals = [status]

    with pytest.raises(HeadwaterError) as caught:
        codec(registry).encode(customers((1, "a")), now_us=NOW_US)

    assert caught.value.cure is cure and caught.value.facts["status"] == status


def test_a_registry_that_is_away_may_come_back(registry: RegistryFake) -> None:
    away = WireSettings(value="debezium-avro", registry="http://127.0.0.1:1")

    with pytest.raises(HeadwaterError) as caught:
        codec_for(away, topic=TOPIC).encode(customers((1, "a")), now_us=NOW_US)

    assert caught.value.cure is Cure.TIME


def test_a_password_is_sent_and_never_shown(registry: RegistryFake) -> None:
    address = registry.address.replace("//", "//me:p%40ss@")
    avro = codec_for(WireSettings(value="flat-avro", registry=address), topic=TOPIC)
    registry.refusals = [401]

    with pytest.raises(HeadwaterError) as caught:
        avro.encode(customers((1, "a")), now_us=NOW_US)

    assert registry.requests[0][1] == "Basic bWU6cEBzcw=="
    assert "p%40ss" not in str(caught.value) and "p@ss" not in str(caught.value)


def test_avro_without_a_registry_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="schema registry"):
        codec_for(WireSettings(value="flat-avro"), topic=TOPIC)


def test_an_optional_field_with_a_default_has_its_own_type_first() -> None:
    field = {"type": "string", "optional": True, "default": "x"}

    assert avro_schema(field) == [{"type": "string", "connect.default": "x"}, "null"]


def test_flat_rows_can_be_read_by_others(registry: RegistryFake) -> None:
    what: TableChanges = customers((1, "a"), (2, None), operations=[2, 3])

    written = codec(registry, "flat-avro").encode(what, now_us=NOW_US)

    values = [read_by_fastavro(registry, each) for each in written.values.drop_null().to_pylist()]
    assert values[1] == {
        "id": 2, "name": None, "__deleted": "true", "__op": "d",
        "__source_ts_ms": POSTGRES["ts_ms"], "__source_ts_us": POSTGRES["ts_us"],
    }  # fmt: skip


@pytest.mark.parametrize("form", [*AVRO_FORMATS, "debezium-json", "flat-json"])
@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_both_zeros_and_every_nan_have_one_record_key_each(
    shared: RegistryFake, kind: pa.DataType, form: str
) -> None:
    """So that the changes of a row stay in one partition, and compaction knows it as one."""
    nans = np.array([0x7FF8 << 48, 0xFFF8 << 48], np.uint64).view(np.float64)
    rates = pa.concat_arrays([pa.array([0.0, -0.0]), pa.array(nans)]).cast(kind)
    what = changes(table(Column("rate", kind, is_nullable=False), key=("rate",)), [rates])
    chosen = codec(shared, form)

    written = chosen.encode(what, now_us=NOW_US)
    back = chosen.decode(written.keys, written.values, what.schema)

    zero, negative, *others = written.keys.to_pylist()
    assert zero == negative and others[0] == others[1] != zero
    assert np.signbit(back.rows.column("rate").to_numpy())[:2].tolist() == [False, True]
