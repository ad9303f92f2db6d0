"""What `verify` reads of a table is what its source has, of whatever types and however kept."""

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.core_log.model.table_schema import TableSchema
from headwater.core_log.rows.digests import digests_of
from headwater.sinks.spark.sink import SparkSink
from tests.sinks.spark.targets import LakeBench
from tests.slices import COMMITTED_US, ScriptedTopic, schema_of

ORDERS = schema_of("public.orders", id=pa.int64(), note=pa.string())
MOMENT = pa.timestamp("us")
NESTED: dict[str, pa.DataType] = {
    "id": pa.int64(),
    "tags": pa.list_(pa.string()),
    "part": pa.struct([("a", pa.uint16()), ("at", pa.timestamp("us", "UTC"))]),
    "words": pa.map_(pa.string(), pa.decimal128(9, 2)),
    "deep": pa.list_(pa.struct([("name", pa.string()), ("sizes", pa.list_(pa.int32()))])),
}
ROW: dict[str, Any] = {
    "id": 1,
    "tags": ["a", None, ""],
    "part": {"a": 65_535, "at": datetime(2026, 1, 2, 3, 4, 5, 6, UTC)},
    "words": [("ü", Decimal("1.10")), ("", None)],
    "deep": [{"name": "x", "sizes": [1, None]}, None],
}


async def read(sink: SparkSink, schema: TableSchema) -> pa.Table:
    async with sink.contents(schema, ["shop.public.orders"]) as contents:
        assert set(contents.columns) == set(schema.names), "every column comes back"
        batches = [batch async for batch in contents.batches]
    return pa.Table.from_batches(batches, schema=schema.arrow)


@pytest.mark.parametrize("format", ["delta", "iceberg"])
async def test_nested_values_come_back_as_they_were(tmp_path: Path, format: str) -> None:
    schema, nothing = schema_of("public.orders", **NESTED), dict.fromkeys(NESTED) | {"id": 2}
    topic = ScriptedTopic()
    topic.append(schema, ("c", ROW), ("c", nothing), ("c", {**nothing, "id": 3, "tags": []}))
    sink = LakeBench(str(tmp_path / "lake"), chosen={"format": format}).sink()
    await sink.committed_offsets([topic.name])
    await sink.apply(topic.slice())

    found = (await read(sink, schema)).sort_by("id").combine_chunks().to_batches()[0]

    given = topic.entries[0].rows
    assert found.to_pylist() == given.to_pylist()
    assert digests_of(found.columns, 3).tolist() == digests_of(given.columns, 3).tolist()


@pytest.mark.parametrize("format", ["delta", "iceberg"])
async def test_days_and_moments_of_far_away_years_stay_what_they_are(
    tmp_path: Path, format: str
) -> None:
    """PostgreSQL knows days until the year 5874897, and moments until 294276."""
    day, moment = pa.date32(), pa.timestamp("us", "UTC")
    schema = schema_of(id=pa.int64(), day=day, at=moment, days=pa.list_(day), local=MOMENT)
    far: list[dict[str, Any]] = [
        {"id": 1, "day": 2_145_031_948, "at": 2**63 - 2, "days": [2**31 - 1], "local": 2**62},
        {"id": 2, "day": -(2**31) + 1, "at": -(2**63) + 2, "days": None, "local": -(2**62)},
        {"id": 3, "day": 0, "at": 0, "days": [], "local": 0},
    ]
    sink, topic = (
        LakeBench(str(tmp_path / "lake"), chosen={"format": format}).sink(),
        ScriptedTopic(),
    )
    topic.append(schema, *[("c", row) for row in far])
    await sink.committed_offsets([topic.name])
    await sink.apply(topic.slice())
    topic.append(schema, ("u", far[2]))
    await sink.apply(topic.slice())

    found = (await read(sink, schema)).sort_by("id").combine_chunks().to_batches()[0]

    given = topic.entries[0].rows
    assert all(a.equals(b) for a, b in zip(found.columns, given.columns, strict=True))


async def test_the_current_rows_of_a_change_log_are_read(tmp_path: Path) -> None:
    chosen = {"tables": {"*": {"mode": "append", "file_rows": 2}}}
    sink, topic = LakeBench(str(tmp_path / "lake"), chosen=chosen).sink(), ScriptedTopic()
    await sink.committed_offsets([topic.name])
    for number, note in enumerate(("old", "older", "new")):
        rows = [("c", {"id": key, "note": note}) for key in range(number, 9)]
        topic.append(ORDERS, *rows, committed_us=COMMITTED_US + number)
        if note == "older":
            topic.append(ORDERS, ("t", {}))
        await sink.apply(topic.slice())
    topic.append(ORDERS, ("d", {"id": 3}), ("u", {"id": 4, "note": "newest"}))
    await sink.apply(topic.slice())

    found = await read(sink, ORDERS)

    notes = dict(zip(found["id"].to_pylist(), found["note"].to_pylist(), strict=True))
    assert notes == dict.fromkeys((2, 5, 6, 7, 8), "new") | {4: "newest"}
    assert found.num_rows == len(notes)
