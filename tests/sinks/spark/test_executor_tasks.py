"""What a task of Spark hands on, and what another makes of it: each change that counts, once."""

import importlib
import json
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.core_log.model.changes import TableChanges
from headwater.core_log.model.log import Bounds, TopicPartition
from headwater.sinks.object_names import OFFSET
from headwater.sinks.sink import AppliedOffset, AppliedOffsets, Heard
from headwater.sinks.spark import executor_tasks
from headwater.sinks.spark.driver_plan import SparkWork
from headwater.sinks.spark.executor_tasks import (
    DivideSplits,
    RewriteCells,
    UnknownSchema,
    keep_archives,
)
from headwater.sinks.spark.file_rewrite import FileRewrite
from headwater.sinks.spark.key_ranges import KeyRange
from headwater.sinks.spark.layout import LakeTableLayout, shape
from headwater.sinks.spark.settings import LakeTableSettings
from headwater.sinks.spark.splits import Split
from headwater.sinks.spark.storage_location import StorageLocation
from tests.slices import Change, changes_of, schema_of

ORDERS = schema_of("public.orders", id=pa.int64(), note=pa.string())
WIDER = schema_of("public.orders", id=pa.int64(), note=pa.string(), total=pa.int32())
PLACE = TopicPartition("shop.public.orders", 0)
CELLS = (KeyRange(None, 10, ()), KeyRange(10, 20, ()), KeyRange(20, None, ()))


@dataclass(frozen=True, slots=True)
class Told:
    """A reader that has its changes already, some at a time."""

    pieces: Sequence[TableChanges]

    async def schemas(self, topic: str) -> Sequence[Any]:
        return [ORDERS]

    async def truncates(self, start: AppliedOffsets, end: AppliedOffsets) -> Sequence[Any]:
        return []

    def read(
        self, start: AppliedOffsets, end: AppliedOffsets, heard: Heard = lambda _: None
    ) -> Iterator[TableChanges]:
        at = 0
        for piece in self.pieces:
            offsets = pa.array(range(at, at + len(piece)), pa.int64())
            at += len(piece)
            yield replace(piece, log_partition=PLACE, log_offsets=offsets)


def layout_of(**chosen: Any) -> LakeTableLayout:
    found, _ = shape(ORDERS, LakeTableSettings(**chosen), None, policy={}, may_drop=True)
    return found


def divided(layout: LakeTableLayout, *pieces: Sequence[Change]) -> list[pa.RecordBatch]:
    reader = Told([changes_of(ORDERS, *piece) for piece in pieces])
    splits = iter([Split(PLACE, "id", 0, 100)])
    return list(DivideSplits(reader, layout, (ORDERS,), CELLS)(splits))


def rows_of(parcels: Sequence[pa.RecordBatch]) -> list[tuple[int, int, int]]:
    """Cell, key and offset of every change."""
    found = []
    for parcel in parcels:
        [number], [content] = parcel.column("cell").to_pylist(), parcel.column("rows")
        rows = pa.ipc.open_stream(content.as_buffer()).read_next_batch()
        keys, offsets = rows.column("id").to_pylist(), rows.column(OFFSET).to_pylist()
        found += [(number, *each) for each in zip(keys, offsets, strict=True)]
    return found


def update(key: int) -> Change:
    return ("u", {"id": key, "note": f"note {key}"})


def test_only_the_newest_change_of_a_key_travels_and_by_its_cell() -> None:
    layout = layout_of()
    hot = [update(5)] * 50

    parcels = divided(layout, [update(25), *hot], [*hot, update(10), update(25)])

    assert rows_of(parcels) == [(0, 5, 100), (1, 10, 101), (2, 25, 102)]


def test_a_history_needs_all_changes() -> None:
    layout = layout_of(mode="scd2")

    parcels = divided(layout, [update(5), update(5)], [update(5)])

    assert [offset for _, _, offset in rows_of(parcels)] == [0, 1, 2]


def test_rows_beyond_memory_go_on_in_the_order_of_the_log(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setattr(executor_tasks, "HELD_BYTES_MAX", 100)
    monkeypatch.setattr(executor_tasks, "PARCEL_BYTES", 1)
    layout = layout_of()
    first, second = [update(key) for key in range(30)], [("d", {"id": key}) for key in range(15)]

    parcels = divided(layout, first, second, [update(3)])
    cells = RewriteCells(FileRewrite(StorageLocation(str(tmp_path)), layout), CELLS)
    written = list(cells(iter(parcels)))

    assert len(parcels) == 30 + 15 + 1
    files = [executor_tasks.read_file(each) for said in written for each in _said(said)]
    assert sorted(each.rows for each in files) == [1, 5, 10]
    assert [(each.low, each.high) for each in files] == [(3, 3), (15, 19), (20, 29)]


def test_changes_under_another_schema_are_not_taken_for_ours() -> None:
    reader = Told([changes_of(WIDER, ("c", {"id": 1, "note": "", "total": 2}))])
    splits = iter([Split(PLACE, "id", 0, 1)])

    with pytest.raises(UnknownSchema):
        list(DivideSplits(reader, layout_of(), (ORDERS,), CELLS)(splits))


def _said(batch: pa.RecordBatch) -> list[Any]:
    found: list[Any] = json.loads(batch.column("files")[0].as_py())
    return found


@pytest.mark.parametrize(
    ("rows", "lengths"),
    [
        (40_000, [40_000]),
        (200_000, [100_000] * 2),
        (2_000_000, [1_000_000] * 2),
        (2_000_004, [500_001] * 4),
        (5_400_000, [900_000] * 6),
    ],
)
def test_every_core_gets_as_many_splits(rows: int, lengths: Sequence[int]) -> None:
    """And none so large as to be more than a task should have."""
    never: Any = None
    work = SparkWork(
        never,
        Told([]),
        ORDERS,
        start={PLACE: AppliedOffset("id", 100)},
        end={PLACE: AppliedOffset("id", 100 + rows)},
        bounds={PLACE: Bounds(0, 100 + rows, 100 + rows, 0, 0)},
        split_rows=1_000_000,
    )

    assert [each.end - each.start for each in work.splits(2)] == lengths


def test_archives_on_the_path_are_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "code.zip"
    with zipfile.ZipFile(archive, "w") as content:
        content.writestr("packed_module.py", "")
    monkeypatch.syspath_prepend(archive)
    assert find_spec("packed_module") is not None

    keep_archives()
    with zipfile.ZipFile(archive, "a") as content:
        content.writestr("packed_later.py", "")
    importlib.invalidate_caches()  # as a worker does before each task

    assert find_spec("packed_later") is None
