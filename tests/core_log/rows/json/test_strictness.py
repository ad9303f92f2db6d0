"""A record that does not fit its schema is an error that names it, never a null."""

import json
from typing import Any

import pyarrow as pa
import pytest

from headwater.core_log.foundation.errors import RowsRejected
from headwater.core_log.model.changes import Operation
from headwater.core_log.model.table_schema import Column
from headwater.core_log.rows.codec import codec_for
from headwater.core_log.rows.settings import WireSettings
from tests.core_log.rows.tables import changes, one_column, table

SCHEMA = table(
    Column("id", pa.int32(), is_nullable=False),
    Column("name", pa.string()),
    Column("total", pa.decimal128(5, 2)),
    Column("day", pa.date32()),
    Column("photo", pa.binary()),
    Column("at", pa.timestamp("us", "UTC")),
    Column("size", pa.float32()),
    Column("tags", pa.list_(pa.string()), is_nullable=False),
    Column("place", pa.struct([("x", pa.float64())])),
    key=("id",),
)
GOOD: dict[str, Any] = {
    "id": 1,
    "name": "a",
    "total": "1.50",
    "day": 3,
    "photo": "AA==",
    "at": "2026-11-20T12:34:56.123456Z",
    "size": 1.5,
    "tags": [],
    "place": {"x": 2.0},
}


NOTES = table(Column("id", pa.int64()), Column("note", pa.string()), key=("id",))


def event(row: Any, **more: Any) -> dict[str, Any]:
    return {"before": None, "after": row, "op": "c", "source": {"ts_us": 1}} | more


def decode(*documents: Any) -> list[dict[str, Any]]:
    texts = [each if isinstance(each, bytes) else json.dumps(each).encode() for each in documents]
    values = pa.array(texts, pa.binary())
    codec = codec_for(WireSettings(), topic="t")
    read = codec.decode(pa.nulls(len(values), pa.binary()), values, SCHEMA)
    rows: list[dict[str, Any]] = read.rows.to_pylist()
    return rows


MISFITS: list[tuple[dict[str, Any], str]] = [
    ({"id": "1"}, "column id is int32 in JSON and the value is a text"),
    ({"id": 1.0}, "column id is int32 in JSON and the value is a number with a point"),
    ({"id": True}, "column id is int32 in JSON and the value is true or false"),
    ({"id": 2**31}, "column id is int32 in JSON and the value is a number that is too large"),
    ({"id": 10**30}, "column id is int32 in JSON and the value is a number that is too large"),
    ({"id": None}, "column 'id' is null"),
    ({"name": 5}, "column name is string in JSON and the value is a whole number"),
    ({"name": {"x": 1}}, "column name is string in JSON and the value is an object"),
    (
        {"total": "1.555"},
        "column total is decimal(5,2) and the text is a number with more than 2 digits after the"
        " point",
    ),
    (
        {"total": "1234.00"},
        "column total is decimal(5,2) and the text is a number that is too large",
    ),
    ({"total": "NAN"}, "column total is decimal(5,2) and the text is not a number"),
    ({"total": 1.5}, "column total is string in JSON and the value is a number with a fraction"),
    ({"day": 2**31}, "column day is int32 in JSON and the value is a number that is too large"),
    ({"photo": "A"}, "column photo is bytes and the text is no encoded bytes"),
    ({"photo": "A=A="}, "column photo is bytes and the text is no encoded bytes"),
    ({"photo": "????"}, "column photo is bytes and the text is no encoded bytes"),
    ({"at": "yesterday"}, "column at is timestamptz(us) and the text is no time"),
    (
        {"at": "2026-11-20T12:34:56.1234567Z"},
        "column at is timestamptz(us) and the text is a moment out of range",
    ),
    (
        {"at": "+99999999-01-01T00:00:00Z"},
        "column at is timestamptz(us) and the text is a moment out of range",
    ),
    ({"size": 1e39}, "column size is float32 in JSON and the value is a number that is too large"),
    ({"size": "big"}, "column size is float32 in JSON and the value is a text"),
    ({"tags": None}, "column 'tags' is null"),
    ({"tags": [1]}, "column tags[] is string in JSON and the value is a whole number"),
    ({"tags": "x"}, "column tags is list<string> in JSON and the value is a text"),
    ({"place": {}}, "fields are missing from place: x"),
    ({"place": {"x": 1, "y": 2}}, "place has fields that no column has: y"),
    ({"more": 1}, "the value has fields that no column has: more"),
]


@pytest.mark.parametrize(("change", "reason"), MISFITS, ids=str)
def test_one_misfit_among_many_is_named(change: dict[str, Any], reason: str) -> None:
    documents = [event(GOOD), event(GOOD | change), event(GOOD | {"id": 3})]

    with pytest.raises(RowsRejected) as caught:
        decode(*documents)

    assert caught.value.reasons == {1: reason}


@pytest.mark.parametrize("name", GOOD)
def test_a_missing_field_is_never_a_null(name: str) -> None:
    poor = {key: value for key, value in GOOD.items() if key != name}

    with pytest.raises(RowsRejected) as caught:
        decode(event(GOOD | {"name": ":null"}), event(poor))

    assert caught.value.reasons == {1: f"fields are missing from the value: {name}"}


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (b"", "the value is not JSON"),
        (b"{", "the value is not JSON"),
        (b"\xff", "the value is not UTF-8"),
        (b"[]", "`op` is none of r, c, u and d"),
        (b"null", "`op` is none of r, c, u and d"),
        (event(GOOD, op="x"), "`op` is none of r, c, u and d"),
        (event(GOOD, op="t"), "`op` is none of r, c, u and d"),
        (event(None), "the row is missing"),
        (event(GOOD, op="d"), "the row is missing"),
        (event([GOOD]), "the value is not an object"),
        (event(GOOD, source={}), "the time of the commit is missing"),
        (event(GOOD, op="u", before={"id": 1}), "before: fields are missing from the value: "
         "at, day, name, photo, place, size, tags, total"),
    ],
    ids=str,
)  # fmt: skip
def test_a_value_that_is_no_event_is_named(document: Any, reason: str) -> None:
    with pytest.raises(RowsRejected) as caught:
        decode(event(GOOD), document, event(GOOD))

    assert caught.value.reasons == {1: reason}


def test_a_field_that_is_there_twice_is_refused() -> None:
    text = json.dumps(event(GOOD)).replace('"id": 1', '"id": 1, "id": 2').encode()

    with pytest.raises(RowsRejected) as caught:
        decode(text)

    assert caught.value.reasons == {0: "field 'id' occurs twice"}


@pytest.mark.parametrize("name", ["op", "after"])
def test_a_field_of_the_event_that_is_there_twice_is_refused(name: str) -> None:
    text = json.dumps(event(GOOD), separators=(",", ":"))
    twice = text[:-1] + f',"{name}":null}}'

    with pytest.raises(RowsRejected) as caught:
        decode(event(GOOD), twice.encode())

    assert caught.value.reasons == {1: f"field '{name}' occurs twice"}


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"x":', "}")])
def test_no_depth_brings_a_reader_down(opening: str, closing: str) -> None:
    deep = opening * 100_000 + "1" + closing * 100_000
    text = json.dumps(event(GOOD | {"name": "here"})).replace('"here"', deep).encode()

    with pytest.raises(RowsRejected) as caught:
        decode(event(GOOD), text)

    assert list(caught.value.reasons) == [1]


def test_every_bad_record_is_named() -> None:
    documents = [event(GOOD | {"total": "x"} if place % 3 == 0 else GOOD) for place in range(10)]

    with pytest.raises(RowsRejected) as caught:
        decode(*documents)

    assert list(caught.value.reasons) == [0, 3, 6, 9]


def test_no_value_is_ever_quoted() -> None:
    secret = "hunter2"
    bad = [GOOD | {name: secret} for name in GOOD if name != "name"]

    for row in bad:
        with pytest.raises(RowsRejected) as caught:
            decode(event(row))
        shown = f"{caught.value}{caught.value.reasons}{caught.value.__cause__}"
        assert secret not in shown


def test_floats_that_json_cannot_say_come_as_words_among_numbers() -> None:
    words = ["NaN", "Infinity", "-Infinity", 1.5]
    names = ["NaN", "NaN", None, ":null"]

    rows = decode(
        *(event(GOOD | {"size": w, "name": n}) for w, n in zip(words, names, strict=True))
    )

    assert repr([row["size"] for row in rows]) == "[nan, inf, -inf, 1.5]"
    assert [row["name"] for row in rows] == names


def test_events_of_other_writers_may_have_spaces_and_other_fields() -> None:
    text = json.dumps({"op": "c", "ts_ms": 1, "source": {"ts_ms": 7}, "after": GOOD}, indent=2)

    codec = codec_for(WireSettings(), topic="t")
    read = codec.decode(pa.nulls(1, pa.binary()), pa.array([text.encode()]), SCHEMA)

    assert read.committed_us.to_pylist() == [7_000]
    assert read.rows.column("id").to_pylist() == [1]


def test_a_value_beyond_its_mode_is_refused_by_its_row() -> None:
    far = 253_402_300_800
    what = one_column(pa.timestamp("s"), [0, far, 1])

    with pytest.raises(RowsRejected) as caught:
        codec_for(WireSettings(time="nanoseconds"), topic="t").encode(what, now_us=1)

    assert caught.value.reasons == {1: "column v is timestamp(s) and the value is a moment"}


@pytest.mark.parametrize("rows", [3, 100])
@pytest.mark.parametrize("unit", ["s", "ms", "us"])
def test_the_least_number_is_no_moment_whoever_writes_it(unit: str, rows: int) -> None:
    """numpy takes it for none at all, and Arrow for one like others."""
    what = one_column(pa.timestamp(unit, "UTC"), [0, -(2**63), *[1] * (rows - 2)])

    with pytest.raises(RowsRejected) as caught:
        codec_for(WireSettings(), topic="t").encode(what, now_us=1)

    assert caught.value.reasons == {1: f"column v is timestamptz({unit}) and the value is a moment"}


def test_flat_rows_are_as_strict() -> None:
    schema = table(Column("id", pa.int32()), key=("id",))
    codec = codec_for(WireSettings(value="flat-json"), topic="t")
    written = codec.encode(changes(schema, [pa.array([1, 2], pa.int32())]), now_us=1)
    spoiled = [written.values[0].as_py(), written.values[1].as_py().replace(b":2,", b':"2",')]

    with pytest.raises(RowsRejected) as caught:
        codec.decode(written.keys, pa.array(spoiled, pa.binary()), schema)

    assert caught.value.reasons == {1: "column id is int32 in JSON and the value is a text"}


@pytest.mark.parametrize("fields", [{}, {"a": 1}, {"op": "d", "ts_ms": 5}])
def test_fields_of_the_source_are_not_taken_for_those_of_the_event(fields: dict[str, Any]) -> None:
    source = {"ts_us": 1_700_000_000_000_001} | fields
    columns = [pa.array([1, 2]), pa.array(["a", None])]
    codec = codec_for(WireSettings(), topic="t")

    written = codec.encode(changes(NOTES, columns, source=source), now_us=1_800_000_000_000_002)
    read = codec.decode(written.keys, written.values, NOTES)

    assert read.committed_us.to_pylist() == [source["ts_us"]] * 2
    assert read.operations.to_pylist() == [Operation.INSERT] * 2


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


def test_schemas_inside_documents_may_differ_and_hide_nothing() -> None:
    codec = codec_for(WireSettings(has_schemas=True), topic="t")
    row = event({"id": 1, "note": "a"})
    texts = [
        json.dumps({"schema": schema, "payload": row}, separators=(",", ":")).encode()
        for schema in ({"a": 1}, {"a": 1}, {"b": 2}, None)
    ]
    texts.append(json.dumps({"payload": row, "schema": {"b": 2}}).encode())
    twice = texts[0][:-1] + b',"payload":null}'

    read = codec.decode(pa.nulls(5, pa.binary()), pa.array(texts), NOTES)
    with pytest.raises(RowsRejected) as caught:
        codec.decode(pa.nulls(2, pa.binary()), pa.array([texts[0], twice]), NOTES)

    assert read.rows.column("id").to_pylist() == [1] * 5
    assert caught.value.reasons == {1: "field 'payload' occurs twice"}
