"""Records that no table can hold are set aside, and take nothing else with them."""

from decimal import Decimal

import numpy as np
import orjson
import pyarrow as pa
import pytest

from headwater.connectors.kafka.debezium_events import DebeziumReader
from headwater.connectors.kafka.json_rows import DecodedBatches, TopicReader
from headwater.connectors.kafka.record_formats import JsonReader
from headwater.connectors.kafka.settings import KafkaSourceSettings
from headwater.core_log.records.record_headers import encode_headers
from headwater.core_log.records.record_views import RecordColumns

GOOD = (b"2", b'{"id":2}')
SETTINGS = KafkaSourceSettings(bootstrap=("127.0.0.1:1",), topics=("*",))


def columns_of(*pairs: tuple[bytes | None, bytes | None]) -> RecordColumns:
    keys, values = (pa.array(column, pa.binary()) for column in zip(*pairs, strict=True))
    places = np.arange(len(pairs), dtype=np.int64)
    headers = pa.array([encode_headers(())] * len(pairs), pa.binary())
    return RecordColumns(places, places, keys, values, headers)


def ids(decoded: DecodedBatches) -> list[object]:
    return [row["id"] for portion in decoded.batches for row in portion.rows.to_pylist()]


def nested(depth: int) -> bytes:
    return b'{"id":1,"more":' + b'{"a":' * depth + b"1" + b"}" * depth + b"}"


@pytest.mark.parametrize("value", [b"null", b" null ", b"5", b"[]", b"", nested(100), nested(300)])
@pytest.mark.parametrize("is_first", [True, False])
def test_a_value_that_is_no_row_is_set_aside(value: bytes, is_first: bool) -> None:
    odd = (b"1", value)

    decoded = JsonReader("orders", ("id",), "").decode(
        columns_of(odd, GOOD) if is_first else columns_of(GOOD, odd), partition=0
    )

    assert ids(decoded) == [2]
    assert list(decoded.rejected) == [0 if is_first else 1]


def test_a_key_that_is_null_deletes_nothing() -> None:
    decoded = JsonReader("orders", ("id",), "").decode(
        columns_of(GOOD, (b"null", None), (b'{"id":null}', None), (b"2", None)), partition=0
    )

    assert ids(decoded) == [2, 2]
    assert list(decoded.rejected) == [1, 2]


def test_a_schema_learned_from_a_topic_with_odd_records_is_read_back() -> None:
    value = b'{"before":null,"after":%s,"source":{"ts_ms":5},"op":"c"}'
    for depth in (100, 300):
        pairs = (b'{"id":1}', value % nested(depth)), (b'{"id":2}', value % b'{"id":2}')
        reader: TopicReader = DebeziumReader(SETTINGS, "shop.public.orders", "")

        decoded = reader.decode(columns_of(*pairs), partition=0)

        assert ids(decoded) == [2]
        assert DebeziumReader(SETTINGS, "shop.public.orders", reader.schema_text()).schema


ORDER = b'{"id":%d,"total":%s,"photo":"AQI="}'
MEMBERS = (
    {"type": "int32", "optional": False, "field": "id"},
    {
        "type": "bytes",
        "optional": True,
        "name": "org.apache.kafka.connect.data.Decimal",
        "parameters": {"scale": "2", "connect.decimal.precision": "5"},
        "field": "total",
    },
    {"type": "bytes", "optional": True, "field": "photo"},
)


def framed(id: int, total: bytes) -> tuple[bytes, bytes]:
    """As Debezium writes an event by its defaults: beside its schema, decimals in bytes."""
    rows = [
        {"type": "struct", "fields": MEMBERS, "optional": True, "field": name}
        for name in ("before", "after")
    ]
    source = {"type": "struct", "fields": [], "optional": False, "field": "source"}
    operation = {"type": "string", "optional": False, "field": "op"}
    schema = {"type": "struct", "fields": [*rows, source, operation], "optional": False}
    value = b'{"schema":%s,"payload":{"before":null,"after":%s,"source":{"ts_ms":5},"op":"c"}}'
    return b'{"id":%d}' % id, value % (orjson.dumps(schema), ORDER % (id, total))


@pytest.mark.parametrize("decimal", ["string", "precise", "double"])
def test_the_format_of_decimals_is_read_from_the_schema_beside_them(decimal: str) -> None:
    settings = SETTINGS.model_copy(update={"decimal": decimal, "binary": "hex"})
    reader: TopicReader = DebeziumReader(settings, "shop.public.orders", "")

    decoded = reader.decode(columns_of(framed(1, b'"MDk="'), framed(2, b"null")), partition=0)

    rows = [row for portion in decoded.batches for row in portion.rows.to_pylist()]
    assert rows == [
        {"id": 1, "total": Decimal("123.45"), "photo": b"\1\2"},
        {"id": 2, "total": None, "photo": b"\1\2"},
    ]


@pytest.mark.parametrize(
    ("total", "problem"),
    [
        (b"5", "column total is string in JSON and the value is a whole number"),
        (
            b'"f////////w=="',
            "column total is decimal(5,2) and the bytes are not a number of this type",
        ),
        (b'"?"', "column total is decimal(5,2) and the bytes are not a number of this type"),
    ],
)
def test_an_event_that_does_not_fit_names_column_type_and_class(total: bytes, problem: str) -> None:
    reader: TopicReader = DebeziumReader(SETTINGS, "shop.public.orders", "")

    decoded = reader.decode(columns_of(framed(1, b'"MDk="'), framed(2, total)), partition=0)

    assert (ids(decoded), decoded.rejected) == ([1], {1: problem})
