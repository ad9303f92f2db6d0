"""The compiled scan finds what the slow readers find, or leaves the events to them."""

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.core_log.foundation.errors import RowsRejected
from headwater.core_log.model.changes import Operation, TableChanges
from headwater.core_log.model.table_schema import Column, TableSchema
from headwater.core_log.records.record_views import RecordField
from headwater.core_log.rows.codec import codec_for
from headwater.core_log.rows.converters.row import RowConverters
from headwater.core_log.rows.json import debezium
from headwater.core_log.rows.json.scanner import EventScanner, ScannedEvents, scanner_for
from headwater.core_log.rows.json.strict_reader import carrier, check, parse_document
from headwater.core_log.rows.settings import WireSettings
from tests.core_log.rows.tables import (
    INT64,
    LEAVES,
    NOW_US,
    SOURCE,
    changes,
    extremes,
    table,
    values_of,
)

pytest.importorskip("numba")
WIRE = WireSettings()
SCHEMA = table(
    Column("id", pa.int64(), is_nullable=False),
    Column("small", pa.int16()),
    Column("naïve", pa.string()),
    Column("is_gift", pa.bool_()),
    Column("share", pa.float64()),
    Column("weight", pa.float32()),
    Column("total", pa.decimal128(12, 2)),
    Column("tags", pa.list_(pa.string())),
    Column("place", pa.struct([("x", pa.float64()), ("ids", pa.list_(pa.int16()))])),
    key=("id",),
)
NESTED = [
    pa.list_(pa.int16()),
    pa.list_(pa.list_(pa.string())),
    pa.struct([("a", pa.string()), ("b", pa.list_(pa.bool_()))]),
]
ROW: dict[str, Any] = {
    "id": 1,
    "small": -7,
    "naïve": 'a "quoted" \\ é\n',
    "is_gift": True,
    "share": 0.25,
    "weight": 1.5,
    "total": "12.50",
    "tags": ["]", '"}', None],
    "place": {"x": 1.5, "ids": [1, -2]},
}
SOUND = json.dumps(ROW, separators=(",", ":"), ensure_ascii=False)


def scanner_of(schema: TableSchema) -> EventScanner:
    scanner = scanner_for(carrier(RowConverters.of(schema, WIRE).wire_type))
    assert scanner is not None, "these columns are plain"
    return scanner


def scanned(schema: TableSchema, values: pa.Array) -> ScannedEvents | None:
    return scanner_of(schema).events(RecordField.of(values))


def found_by_scan(schema: TableSchema, values: pa.Array) -> TableChanges | None:
    events = scanned(schema, values)
    if events is None:
        return None
    return debezium._read_scanned(events, RowConverters.of(schema, WIRE))


def as_numbers(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Times as what is stored, since Python's own end at the year 9999."""
    columns = [
        column.view(pa.int32() if column.type.bit_width == 32 else pa.int64())
        if pa.types.is_temporal(column.type)
        else column
        for column in rows.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=rows.schema.names)


@pytest.mark.parametrize("kind", LEAVES, ids=str)
def test_extremes_of_every_type_come_back(kind: pa.DataType) -> None:
    values = [*extremes(kind, WIRE), None]
    column = pa.array(values, kind, from_pandas=False)
    schema = table(Column("id", pa.int64()), Column("v", kind), key=("id",))
    written = changes(schema, [pa.array(range(len(values))), column])
    records = codec_for(WIRE, topic="t").encode(written, now_us=NOW_US).values

    read = found_by_scan(schema, records)

    assert read is not None
    assert repr(as_numbers(read.rows).to_pydict()) == repr(as_numbers(written.rows).to_pydict())


@settings(max_examples=60)
@given(st.data())
def test_random_tables_are_read_as_the_slow_readers_read_them(data: st.DataObject) -> None:
    kinds = data.draw(st.lists(st.sampled_from([*LEAVES, *NESTED]), max_size=4))
    named = [Column(f"c{number}", kind) for number, kind in enumerate(kinds)]
    schema = table(Column("id", pa.int64()), *named, key=("id",))
    count = data.draw(st.integers(1, 5))
    cells: list[list[Any]] = [data.draw(st.lists(INT64, min_size=count, max_size=count))]
    cells += [
        data.draw(st.lists(st.none() | values_of(kind, WIRE), min_size=count, max_size=count))
        for kind in kinds
    ]
    columns = [
        pa.array(each, column.type, from_pandas=False)
        for each, column in zip(cells, schema.columns, strict=True)
    ]
    whats = data.draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    images = pa.RecordBatch.from_arrays(columns, schema=schema.arrow).to_struct_array()
    has_image = [what == Operation.UPDATE and data.draw(st.booleans()) for what in whats]
    before = images.take(pa.array(np.arange(count), mask=~np.asarray(has_image, np.bool_)))
    written = changes(schema, columns, whats, before=before)
    codec = codec_for(WIRE, topic="t")
    encoded = codec.encode(written, now_us=NOW_US)
    records = encoded.values.drop_null()

    read = found_by_scan(schema, records)

    slow = codec.decode(pa.nulls(len(records), pa.binary()), records, schema)
    assert read is not None
    assert repr(as_numbers(read.rows).to_pydict()) == repr(as_numbers(slow.rows).to_pydict())
    assert read.operations == slow.operations
    assert (read.before is None) == (slow.before is None)
    if read.before is not None and slow.before is not None:
        assert read.before.is_valid() == slow.before.is_valid()
        assert_same_images(read.before, slow.before)


def assert_same_images(read: pa.StructArray, slow: pa.StructArray) -> None:
    for one, other in zip(read.flatten(), slow.flatten(), strict=True):
        batches = [pa.RecordBatch.from_arrays([each], names=["v"]) for each in (one, other)]
        assert repr(as_numbers(batches[0]).to_pydict()) == repr(as_numbers(batches[1]).to_pydict())


def event(row: str, *, before: str = "null", letter: str = "c") -> bytes:
    return (
        f'{{"before":{before},"after":{row},"source":{{"a":1,"ts_us":1700000000123456}},"op":"{letter}"}}'
    ).encode()


def test_a_sound_event_is_scanned() -> None:
    events = scanned(SCHEMA, pa.array([event(SOUND)]))

    assert events is not None
    assert [column[0].as_py() for column in events.rows] == list(ROW.values())


def read_slowly(row: bytes) -> Any:
    """None where it does not fit."""
    try:
        row.decode()
        return check(parse_document(row), carrier(RowConverters.of(SCHEMA, WIRE).wire_type))
    except ValueError:
        return None


@settings(max_examples=300)
@given(
    place=st.integers(0, len(SOUND.encode()) - 1),
    removed=st.integers(0, 6),
    put=st.binary(max_size=4) | st.sampled_from(
        [b'"', b"\\", b"null", b"0", b"-", b"1e400", b"NaN", b'"NaN"', b" ", b"\\u00e9", b"true",
         b"99999999999999999999", b"9223372036854775808", b"-9223372036854775808", b",", b"}"]
    ),
)  # fmt: skip
def test_a_row_that_was_tampered_with_is_read_as_it_is_or_not_at_all(
    place: int, removed: int, put: bytes
) -> None:
    sound = SOUND.encode()
    row = sound[:place] + put + sound[place + removed :]
    tampered = event("@").replace(b"@", row)
    records = pa.array([event(SOUND), tampered, event(SOUND)], pa.binary())

    events = scanned(SCHEMA, records)

    if events is not None:
        expected = read_slowly(row)
        assert expected is not None, "what the slow way refuses is not let through"
        read = [column[1].as_py() for column in events.rows]
        wanted = [
            pa.array([expected[name]], column.type, from_pandas=False)[0].as_py()
            for name, column in zip(SCHEMA.names, events.rows, strict=True)
        ]
        assert repr(read) == repr(wanted)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("id", '"1"'),
        ("id", "1.0"),
        ("id", "01"),
        ("id", "-0"),
        ("id", "true"),
        ("id", "9223372036854775808"),
        ("small", "32768"),
        ("naïve", "5"),
        ("naïve", '"\\x"'),
        ("naïve", '"\\ud800"'),
        ("is_gift", "1"),
        ("share", '"1.5"'),
        ("share", "1e400"),
        ("share", ".5"),
        ("share", "+1"),
        ("share", "NaN"),
        ("share", "1."),
        ("weight", "1e39"),
        ("weight", '"Inf"'),
    ],
)
def test_a_value_of_another_kind_is_left_to_who_can_say_why(column: str, value: str) -> None:
    members = {name: json.dumps(each, ensure_ascii=False) for name, each in ROW.items()}
    text = ",".join(f'"{name}":{each}' for name, each in (members | {column: value}).items())

    assert scanned(SCHEMA, pa.array([event(SOUND), event(f"{{{text}}}")])) is None


@pytest.mark.parametrize(
    "record",
    [
        event(SOUND, letter="d"),
        event("null", letter="d"),
        event("null", before=SOUND),
        event(SOUND).replace(b":", b": "),
        event(SOUND).replace(b'"source"', b'"origin"'),
        event(SOUND).replace(b'"ts_us"', b'"ts_ms"'),
        event(SOUND).replace(b'"op"', b'"operation"'),
        event(SOUND)[:-1],
        event(SOUND[:-1]),
        event("{}"),
        b"{",
        b"",
    ],
)
def test_events_of_another_layout_are_left_to_the_parser(record: bytes) -> None:
    assert scanned(SCHEMA, pa.array([event(SOUND), record, event(SOUND)], pa.binary())) is None


def test_an_unknown_operation_is_refused() -> None:
    with pytest.raises(RowsRejected) as caught:
        found_by_scan(SCHEMA, pa.array([event(SOUND), event(SOUND, letter="x")]))

    assert list(caught.value.reasons) == [1]


def test_rows_before_updates_come_along() -> None:
    other = SOUND.replace('"id":1', '"id":2')
    records = [event(SOUND), event(SOUND, before=other, letter="u")]
    records += [event("null", before=other, letter="d"), event(SOUND)]

    read = found_by_scan(SCHEMA, pa.array(records))

    assert read is not None and read.before is not None
    assert [each and each["id"] for each in read.before.to_pylist()] == [None, 2, None, None]
    assert read.rows.column("id").to_pylist() == [1, 1, 2, 1]


@pytest.mark.parametrize("count", [49, 51])
def test_the_codec_reads_the_same_however_many_there_are(count: int) -> None:
    columns = [
        pa.array(range(count)),
        pa.array([None if number % 3 else f'"{number}"' for number in range(count)]),
    ]
    schema = table(Column("id", pa.int64()), Column("note", pa.string()), key=("id",))
    times = pa.array([SOURCE["ts_us"]] * count)
    written = changes(schema, columns, source=SOURCE | {"ts_us": times})
    codec = codec_for(WIRE, topic="t")
    records = codec.encode(written, now_us=NOW_US)

    read = codec.decode(records.keys.slice(1), records.values.slice(1), schema)

    assert read.rows == written.rows.slice(1)


def placed(values: Sequence[bytes]) -> pa.Array:
    """In the middle of a larger buffer, as records are."""
    return pa.array([b"x" * 7, *values, b'"' * 9], pa.binary()).slice(1, len(values))


def test_values_in_the_middle_of_a_buffer_are_read_alone() -> None:
    events = scanned(SCHEMA, placed([event(SOUND), event(SOUND)]))

    assert events is not None
    assert events.rows[0].to_pylist() == [1, 1]


def test_bare_objects_are_scanned_as_well() -> None:
    rows = [SOUND, SOUND.replace('"id":1', '"id":2')]

    columns = scanner_of(SCHEMA).objects(RecordField.of(pa.array(rows)))

    assert columns is not None
    assert columns[0].to_pylist() == [1, 2]
    assert scanner_of(SCHEMA).objects(RecordField.of(pa.array([SOUND, SOUND + " "]))) is None
    assert scanner_of(SCHEMA).objects(RecordField.of(pa.array([SOUND, None]))) is None


@settings(max_examples=300)
@given(st.binary(max_size=6), st.integers(0, 9))
def test_only_utf_8_is_scanned(put: bytes, place: int) -> None:
    text = b"0123456789"
    row = SOUND.encode().replace(rb"\n", text[:place] + put + text[place:])
    source = event(SOUND).replace(b'"a":1', b'"a":"' + put + b'"')

    for record in (event("@").replace(b"@", row), source):
        if scanned(SCHEMA, pa.array([event(SOUND), record, event(SOUND)])) is not None:
            record.decode()


NUMBERS = st.from_regex(
    r"-?(0|[1-9][0-9]{0,20})(\.[0-9]{1,22})?([eE][-+]?[0-9]{1,6})?", fullmatch=True
)


@pytest.mark.slow
@settings(max_examples=500)
@given(st.lists(NUMBERS, min_size=1, max_size=4))
def test_every_number_becomes_the_nearest_double(texts: list[str]) -> None:
    schema = table(Column("id", pa.int64()), Column("v", pa.float64()), key=("id",))
    records = pa.array([event(f'{{"id":1,"v":{text}}}') for text in texts])

    events = scanned(schema, records)

    if any(math.isinf(float(text)) for text in texts):
        assert events is None
        return
    assert events is not None
    read = events.rows[1].to_pylist()
    assert [each.hex() for each in read] == [float(text).hex() for text in texts]
