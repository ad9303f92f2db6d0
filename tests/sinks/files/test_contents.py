"""What the files of a table amount to is what its source had at the commit that is read."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from core_log.errors import SinkRejected
from core_log.table_schema import TableSchema
from sinks.files.sink import FilesSink
from tests.sinks.files.targets import FilesBench
from tests.slices import ScriptedTopic, schema_of

ORDERS = schema_of("public.orders", id=pa.int64(), note=pa.string())
WIDER = schema_of("public.orders", id=pa.int64(), note=pa.string(), total=pa.float64())


async def read(sink: FilesSink, schema: TableSchema) -> tuple[list[dict[str, Any]], list[int]]:
    async with sink.contents(schema, ["shop.public.orders"]) as contents:
        rows = [row async for batch in contents.batches for row in batch.to_pylist()]
        stands = [stand.next_offset for stand in contents.stands.values()]
    return sorted(rows, key=lambda row: int(row["id"])), stands


async def test_only_the_newest_of_a_key_counts_and_deletes_and_truncates_do(tmp_path: Path) -> None:
    topic, sink = ScriptedTopic(), FilesBench(str(tmp_path)).sink()
    topic.append(ORDERS, ("c", {"id": 1, "note": "gone"}), ("c", {"id": 9, "note": "gone"}))
    topic.append(ORDERS, ("t", {}))
    await sink.apply(topic.slice())
    topic.append(ORDERS, ("c", {"id": 1, "note": "a"}), ("c", {"id": 2, "note": "b"}))
    topic.append(WIDER, ("u", {"id": 1, "note": "new", "total": 1.5}), ("d", {"id": 2}))
    await sink.apply(topic.slice())

    rows, stands = await read(sink, WIDER)

    assert rows == [{"id": 1, "note": "new", "total": 1.5}]
    assert stands == [topic.ends[0]]


async def test_an_empty_target_has_no_rows_and_stands_nowhere(tmp_path: Path) -> None:
    assert await read(FilesBench(str(tmp_path)).sink(), ORDERS) == ([], [])


@pytest.mark.parametrize("chosen", [{"format": "jsonl"}, {"metadata_columns": False}])
async def test_what_does_not_say_enough_is_refused(tmp_path: Path, chosen: dict[str, Any]) -> None:
    sink = FilesBench(str(tmp_path), chosen=chosen).sink()

    with pytest.raises(SinkRejected):
        await read(sink, ORDERS)
