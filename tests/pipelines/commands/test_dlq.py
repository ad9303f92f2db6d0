"""`headwater dlq` shows dead letters as people read them, puts them back and drops them."""

import asyncio
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from headwater.core_log.embedded import EmbeddedLog
from headwater.core_log.foundation.settings import BrokerSettings, TopicSettings
from headwater.core_log.model.changes import Reject
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.model.table_schema import TableId
from headwater.core_log.rows.codec import codec_for
from headwater.core_log.rows.settings import WireSettings
from headwater.pipelines.dead_letters.dead_letter import (
    DeadLetter,
    FailureStage,
    append_dead_letters,
    dead_letter_topic,
    encode_rejects,
)
from headwater.pipelines.journal.internal_topics import internal_topics, read_decided
from headwater.pipelines.journal.schemas import StoredSchema, encode_schema, schemas_home
from headwater.pipelines.terminal import exit_codes
from tests.pipelines.conftest import Headwater
from tests.pipelines.transforms.table_changes import INSERT, changes_of, schema_of

pytestmark = pytest.mark.slow

TOPIC = "shop.public.orders"
WIRE = WireSettings(decimal="precise")
SCHEMA = schema_of({"id": pa.int64(), "total": pa.decimal128(10, 2), "note": pa.string()})


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The data directory of a pipeline that set three things aside, and does not run now."""
    asyncio.run(prepare(tmp_path / "data"))
    return tmp_path / "data"


async def prepare(directory: Path) -> None:
    log = await EmbeddedLog.open(BrokerSettings(data=directory, listen="127.0.0.1:0"))
    for topic in (*internal_topics(history_ms=1_000), dead_letter_topic("shop")):
        await log.ensure_topic(topic)
    await log.ensure_topic(TopicSettings(name=TOPIC))
    stored = StoredSchema("shop", TOPIC, 1, SCHEMA, WIRE, {}, 0)
    await log.append(schemas_home(TOPIC), encode_schema(stored))
    row = {"id": 7, "total": Decimal("12.50"), "note": "a\x1b[31mb"}
    changes = changes_of(SCHEMA, (INSERT, row))
    encoded = codec_for(WIRE, topic=TOPIC).encode(changes, now_us=0)
    first = DeadLetter(
        topic=TOPIC,
        partition=0,
        offset=0,
        key=encoded.keys[0].as_py(),
        value=encoded.values[0].as_py(),
        headers=(("headwater.schema", b"1"), ("headwater.at", b"0/1#0")),
        stage=FailureStage.SINK,
        error="total does not fit",
        at="0/1#0",
        table="public.orders",
        task="sql",
    )
    garbage = DeadLetter(
        topic=TOPIC,
        partition=0,
        offset=1,
        key=b"k",
        value=b"\xff",
        headers=(("headwater.schema", b"1"),),
        stage=FailureStage.DECODING,
        error="no JSON",
        at="",
        table="public.orders",
        task="sql",
    )
    await append_dead_letters(log, "shop", [first, garbage], now_ms=1)
    reject = Reject(TableId("", "people"), b"a;b", "too few columns", "people.csv#3")
    for partition, batch in encode_rejects("shop", [reject], now_ms=2):
        await log.append(partition, batch)
    await log.close()


def test_letters_are_counted_shown_put_back_and_dropped(headwater: Headwater, data: Path) -> None:
    listed = headwater("dlq", "ls", "shop", "--data", data, "--json").envelope["data"]
    shown = headwater("dlq", "show", "shop", "--table", "orders", "--data", data)
    back = headwater("dlq", "redrive", "shop", "--number", 0, "--data", data, "--json")
    topic = asyncio.run(records_of(data, TOPIC))
    unasked = headwater("dlq", "drop", "shop", "--data", data, "--yes")
    dropped = headwater("dlq", "drop", "shop", "--table", "people", "--data", data, "--yes")
    left = headwater("dlq", "show", "shop", "--data", data, "--json").envelope["data"]

    assert [(row["table"], row["records"], row["problem"]) for row in listed] == [
        ("people", 1, "too few columns"),
        ("public.orders", 1, "no JSON"),
        ("public.orders", 1, "total does not fit"),
    ]
    assert '{"operation": "insert", "row": {"id": 7, "total": "12.50"' in shown.data
    assert "\x1b" not in shown.data
    assert f"{TOPIC}-0 offset 0, at 0/1#0" in shown.data
    assert back.envelope["data"] == [{"number": 0, "table": "public.orders", "outcome": "redriven"}]
    assert len(topic) == 1 and b'"id":7' in topic[0]
    assert unasked.code == exit_codes.INVALID and "no dead letters are selected" in unasked.remarks
    assert dropped.data == "dropped 1 dead letter\n"
    assert [(each["number"], each["problem"]) for each in left] == [(1, "no JSON")]


async def records_of(data: Path, topic: str) -> list[bytes]:
    log = await EmbeddedLog.open(BrokerSettings(data=data, listen="127.0.0.1:0"))
    found = [
        value
        async for columns in read_decided(log, TopicPartition(topic, 0))
        for value in columns.values.to_pylist()
    ]
    await log.close()
    return found


def test_an_unknown_pipeline_or_dead_letter_is_reported_as_missing(
    headwater: Headwater, data: Path
) -> None:
    mistyped = headwater("dlq", "ls", "shpo", "--data", data)
    missing = headwater("dlq", "show", "shop", "--number", 99, "--data", data)

    assert mistyped.code == exit_codes.INVALID and "no pipeline of this name" in mistyped.remarks
    assert (
        missing.code == exit_codes.INVALID
        and "does not have a dead letter of this number" in missing.remarks
    )
