"""People see a table's events by what they say, whatever format they have in the log."""

import asyncio
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from headwater.core_log.model.changes import Operation
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.model.table_schema import Column, TableId, TableSchema
from headwater.core_log.records.record_codec import PlainRecord
from headwater.core_log.rows.codec import SCHEMA_HEADER, TRUNCATE_KEY, codec_for
from headwater.core_log.rows.settings import WireSettings
from headwater.pipelines.terminal.record_lines import EventLines, record_line
from tests.pipelines.journal.test_schemas import TOPIC, a_log, record
from tests.pipelines.transforms.table_changes import changes_of

HERE = TopicPartition(TOPIC, 0)
SCHEMA = TableSchema(
    TableId("public", "orders"),
    (
        Column("id", pa.int64(), is_nullable=False),
        Column("total", pa.decimal128(9, 2)),
        Column("at", pa.timestamp("us", tz="UTC")),
    ),
    ("id",),
)
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
FORMATS = [
    {"value": "debezium-json"},
    {"value": "debezium-json", "decimal": "precise"},
    {"value": "flat-json"},
]


def events(wire: WireSettings, *, schema_number: int = 1) -> list[PlainRecord]:
    """An insert, an update, and a delete with its tombstone."""
    changes = changes_of(
        SCHEMA,
        (Operation.INSERT, {"id": 7, "total": Decimal("12.50"), "at": NOON}),
        (Operation.UPDATE, {"id": 7, "total": Decimal("0.05"), "at": None}),
        (Operation.DELETE, {"id": 7, "total": Decimal("0.05"), "at": None}),
    )
    found = codec_for(wire, topic=TOPIC).encode(changes, now_us=1)
    headers = [(SCHEMA_HEADER, str(schema_number).encode())]
    pairs = zip(found.keys.to_pylist(), found.values.to_pylist(), strict=True)
    return [
        PlainRecord(key, value, headers, timestamp_ms=0, offset=offset)
        for offset, (key, value) in enumerate(pairs)
    ]


def lines(records: list[PlainRecord], wire: WireSettings) -> list[str]:
    async def story() -> list[str]:
        log = await a_log()
        await record(log, "shop", SCHEMA, wire)
        return await EventLines(log).of(HERE, records)

    return asyncio.run(story())


@pytest.mark.parametrize("given", FORMATS, ids=lambda given: "-".join(given.values()))
def test_keys_and_rows_are_shown_as_people_write_them(given: dict[str, str]) -> None:
    wire = WireSettings.model_validate(given)

    found = [line.split("\t") for line in lines(events(wire), wire)]

    assert [each[0] for each in found] == ["0:0", "0:1", "0:2", "0:3"]
    assert {each[1] for each in found} == {"1970-01-01T00:00:00.000Z"}
    assert {each[2] for each in found} == {'{"id": 7}'}
    first, second, third, last = (each[3] for each in found)
    assert first == 'insert {"id": 7, "total": "12.50", "at": "2026-01-31T12:00:00Z"}'
    assert second == 'update {"id": 7, "total": "0.05", "at": null}'
    assert third.startswith('delete {"id": 7, ')
    assert last == "-"


def test_a_record_that_is_no_event_of_a_known_schema_is_shown_as_it_is() -> None:
    wire = WireSettings()
    [event, *_] = events(wire)
    others = [
        *events(wire, schema_number=9)[:2],
        PlainRecord(b"k", b"\xff", timestamp_ms=0),
        PlainRecord(TRUNCATE_KEY, b"{}", event.headers, timestamp_ms=0),
        event._replace(value=b"no event"),
        PlainRecord(b"k", None, timestamp_ms=0),
    ]

    found = lines([others[0], event, *others[1:]], wire)

    assert "insert " in found.pop(1)
    assert found == [record_line(0, each) for each in others]


def test_signs_that_a_terminal_would_obey_are_not_shown() -> None:
    wire = WireSettings()
    schema = TableSchema(SCHEMA.table, (Column("v", pa.string()),), ())
    changes = changes_of(schema, (Operation.INSERT, {"v": "\x1b[2J\u009b"}))
    [value] = codec_for(wire, topic=TOPIC).encode(changes, now_us=1).values.to_pylist()

    async def story() -> list[str]:
        log = await a_log()
        await record(log, "shop", schema, wire)
        one = PlainRecord(None, value, [(SCHEMA_HEADER, b"1")], timestamp_ms=0, offset=5)
        return await EventLines(log).of(HERE, [one])

    assert asyncio.run(story()) == [
        '0:5\t1970-01-01T00:00:00.000Z\t-\tinsert {"v": "\\u001b[2J\\x9b"}'
    ]
