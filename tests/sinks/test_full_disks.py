"""A target whose disk has no room says so, with the disk, the path and the bytes, and goes on."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.core_log.foundation.errors import DiskFull
from headwater.sinks.sink import Sink
from tests.crash.broker_faults import why_no_mounts
from tests.sinks.files.targets import FilesBench
from tests.sinks.spark.targets import LakeBench
from tests.sinks.sql.databases import SqlBench
from tests.slices import ScriptedTopic, schema_of
from tests.small_disk import SmallDisk, small_disk

WHY_NOT = why_no_mounts()
pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))

LITTLE, ENOUGH, ROWS = 1 << 20, 64 << 20, 6_000
ORDERS = schema_of("public.orders", id=pa.int64(), note=pa.string())
TARGETS: dict[str, Callable[[Path], Any]] = {
    "files, JSON lines": lambda place: FilesBench(str(place), chosen={"format": "jsonl"}),
    "files, Parquet": lambda place: FilesBench(str(place), chosen={"format": "parquet"}),
    "Delta": lambda place: LakeBench(str(place)),
    "Iceberg": lambda place: LakeBench(str(place), chosen={"format": "iceberg"}),
    "SQLite": lambda place: SqlBench("sqlite", f"sqlite:///{place}/target.db", place),
}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk", size=LITTLE) as disk:
        yield disk


@pytest.mark.parametrize("kind", TARGETS)
async def test_a_full_disk_is_told_apart_and_the_same_slice_goes_in_once_there_is_room(
    disk: SmallDisk, kind: str
) -> None:
    bench, topic = TARGETS[kind](disk.point), ScriptedTopic()
    topic.append(ORDERS, *(("c", {"id": n, "note": os.urandom(500).hex()}) for n in range(ROWS)))
    part = topic.slice()
    sink: Sink = bench.sink()

    with pytest.raises(DiskFull) as full:
        await sink.apply(part)
    await sink.close()
    disk.resize(ENOUGH)
    again: Sink = bench.sink()
    await again.committed_offsets([topic.name])
    await again.apply(part)
    await again.close()

    facts = full.value.facts
    assert facts["disk"] == str(disk.point)
    assert str(facts["path"]).startswith(str(disk.point))
    assert isinstance(facts["free_bytes"], int) and facts["free_bytes"] <= LITTLE
    assert "free some space" in full.value.hint
    assert len(await bench.rows("public.orders")) == ROWS
