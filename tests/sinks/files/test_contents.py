"""What the files of a table amount to is what its source had at the commit that is read."""

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.core_log.foundation.errors import SinkRejected
from headwater.core_log.model.table_schema import TableSchema
from headwater.sinks.files.sink import FilesSink
from tests.sinks.files.targets import FilesBench
from tests.slices import ScriptedTopic, schema_of

ORDERS = schema_of("public.orders", id=pa.int64(), note=pa.string())
WIDER = schema_of("public.orders", id=pa.int64(), note=pa.string(), total=pa.float64())


async def read(sink: FilesSink, schema: TableSchema) -> tuple[list[dict[str, Any]], list[int]]:
    async with sink.contents(schema, ["shop.public.orders"]) as contents:
        rows = [row async for batch in contents.batches for row in batch.to_pylist()]
        offsets = [applied.next_offset for applied in contents.offsets.values()]
    return sorted(rows, key=lambda row: int(row["id"])), offsets


FORMATS: list[dict[str, Any]] = [
    {"format": "parquet"},
    {"format": "jsonl"},
    {"format": "jsonl", "compression": "zstd"},
    {"format": "jsonl", "compression": "gzip"},
]


@pytest.mark.parametrize("chosen", FORMATS, ids=str)
async def test_only_the_newest_of_a_key_counts_and_deletes_and_truncates_do(
    tmp_path: Path, chosen: dict[str, Any]
) -> None:
    topic, sink = ScriptedTopic(), FilesBench(str(tmp_path), chosen=chosen).sink()
    topic.append(ORDERS, ("c", {"id": 1, "note": "gone"}), ("c", {"id": 9, "note": "gone"}))
    topic.append(ORDERS, ("t", {}))
    await sink.apply(topic.slice())
    topic.append(ORDERS, ("c", {"id": 1, "note": "a"}), ("c", {"id": 2, "note": "b"}))
    topic.append(WIDER, ("u", {"id": 1, "note": "new", "total": 1.5}), ("d", {"id": 2}))
    await sink.apply(topic.slice())

    rows, offsets = await read(sink, WIDER)

    assert rows == [{"id": 1, "note": "new", "total": 1.5}]
    assert offsets == [topic.ends[0]]


async def test_an_empty_target_has_no_rows_and_stands_nowhere(tmp_path: Path) -> None:
    assert await read(FilesBench(str(tmp_path)).sink(), ORDERS) == ([], [])


@pytest.mark.parametrize("format", ["parquet", "jsonl"])
async def test_values_come_back_as_they_were_written(tmp_path: Path, format: str) -> None:
    kinds: dict[str, pa.DataType] = {
        "id": pa.int64(),
        "exact": pa.decimal128(30, 4),
        "bytes": pa.binary(),
        "at": pa.timestamp("us", "UTC"),
        "day": pa.date32(),
        "ratio": pa.float64(),
        "tags": pa.list_(pa.string()),
        "part": pa.struct([("a", pa.int32()), ("b", pa.string())]),
    }
    schema = schema_of("public.orders", **kinds)
    row = {
        "id": -(2**63),
        "exact": Decimal("-12345678901234567890.1234"),
        "bytes": b"\x00\xff\n",
        "at": datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC),
        "day": date(9999, 12, 31),
        "ratio": 0.1,
        "tags": ["a\nb", None, ""],
        "part": {"a": 1, "b": "\u2028"},
    }
    topic, sink = ScriptedTopic(), FilesBench(str(tmp_path), chosen={"format": format}).sink()
    topic.append(schema, ("c", row), ("c", {"id": 1}))
    await sink.apply(topic.slice())

    rows, _ = await read(sink, schema)

    assert rows == [row, dict.fromkeys(kinds) | {"id": 1}]


async def test_every_change_of_a_table_without_a_key_is_there(tmp_path: Path) -> None:
    audit = schema_of("public.orders", key=(), id=pa.int64())
    topic, sink = ScriptedTopic(), FilesBench(str(tmp_path)).sink()
    topic.append(audit, ("c", {"id": 1}), ("c", {"id": 1}))
    await sink.apply(topic.slice())

    rows, _ = await read(sink, audit)

    assert rows == [{"id": 1}, {"id": 1}]


@pytest.mark.parametrize("damage", [b'{"id": "x"}', b"nothing", b'{"id": 1'])
async def test_lines_that_are_no_rows_are_refused(tmp_path: Path, damage: bytes) -> None:
    topic, sink = ScriptedTopic(), FilesBench(str(tmp_path), chosen={"format": "jsonl"}).sink()
    topic.append(ORDERS, ("c", {"id": 1, "note": "a"}))
    await sink.apply(topic.slice())
    [file] = lines_in(tmp_path)
    file.write_bytes(file.read_bytes() + damage + b"\n")

    with pytest.raises(SinkRejected) as caught:
        await read(sink, ORDERS)

    assert "no rows" in caught.value.problem


def lines_in(directory: Path) -> list[Path]:
    return [*directory.glob("public*/**/*.jsonl")]


async def test_a_file_without_metadata_columns_is_refused(tmp_path: Path) -> None:
    sink = FilesBench(str(tmp_path), chosen={"metadata_columns": False}).sink()

    with pytest.raises(SinkRejected):
        await read(sink, ORDERS)
