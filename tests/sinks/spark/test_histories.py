"""However a history is sliced, a table of the lake ends in the same rows, our columns included."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from headwater.core_log.model.changes import TableChanges
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.model.table_schema import TableSchema
from headwater.sinks.sink import AppliedOffsets, Heard, Truncate
from headwater.sinks.spark import earlier_changes, executor_tasks, work_split
from headwater.sinks.spark.executor_tasks import (
    NEW,
    REREAD,
    AppendSplits,
    DivideSplits,
    RewriteCells,
    read_file,
)
from headwater.sinks.spark.file_rewrite import FileRewrite, truncates_of
from headwater.sinks.spark.key_ranges import DataFile, KeyRange
from headwater.sinks.spark.layout import shape
from headwater.sinks.spark.settings import SparkSettings
from headwater.sinks.spark.splits import Split
from headwater.sinks.spark.storage_location import StorageLocation
from tests.sinks.histories import (
    KEPT,
    SHOPS,
    Truth,
    append_chance,
    check_versions,
    settings_of,
    shown,
)
from tests.sinks.spark.targets import LakeBench
from tests.slices import ScriptedTopic


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kept", KEPT)
async def test_a_history_ends_in_the_same_rows_however_it_is_sliced(
    kept: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = Random(f"{kept} {seed}")
    monkeypatch.setattr(work_split, "HELD_BYTES_MAX", chance.choice([1, 500, 1 << 20]))
    monkeypatch.setattr(work_split, "ALONE_ROWS", chance.choice([1, 1_000]))
    chosen = settings_of(kept)
    chosen.setdefault("tables", {"*": {}})["*"]["file_rows"] = 3
    bench, topic, truth = LakeBench(str(tmp_path), chosen=chosen), ScriptedTopic(), Truth(kept)
    sink = bench.sink()
    await sink.committed_offsets([topic.name])

    share = chance.random()
    for at in range(chance.randint(5, 25)):
        append_chance(topic, truth, chance, at=at)
        if chance.random() < share:
            await sink.apply(topic.slice())
    await sink.apply(topic.slice())

    found = bench.table("public.orders")
    assert found is not None
    assert shown(kept, found.to_pylist()) == truth.rows()


@pytest.mark.slow
@pytest.mark.parametrize("format", ["delta", "iceberg"])
@pytest.mark.parametrize("share", [0.3, 1])
async def test_versions_follow_each_other_whatever_the_clock_of_the_source_does(
    format: str, share: float, tmp_path: Path
) -> None:
    chance, topic, truth = Random(f"clock {share}"), ScriptedTopic(), Truth("scd2")
    chosen = {"tables": {"*": {"mode": "scd2", "file_rows": 3}}, "format": format}
    sink = (bench := LakeBench(str(tmp_path), chosen=chosen)).sink()
    await sink.committed_offsets([topic.name])

    for at in range(40):
        append_chance(topic, truth, chance, at=at, is_clock_wrong=True)
        if chance.random() < share:
            await sink.apply(topic.slice())
    await sink.apply(topic.slice())

    found = bench.table("public.orders")
    assert found is not None
    check_versions(shown("scd2", found.to_pylist()), truth)


@pytest.mark.slow
@pytest.mark.parametrize("format", ["iceberg", "parquet"])
async def test_the_other_formats_keep_a_history_as_it_was(format: str, tmp_path: Path) -> None:
    kept = "append" if format == "parquet" else "soft_delete"
    chance, topic, truth = Random(format), ScriptedTopic(), Truth(kept)
    settings = {} if format == "parquet" else settings_of(kept)
    bench = LakeBench(str(tmp_path), chosen={**settings, "format": format})
    sink = bench.sink()
    await sink.committed_offsets([topic.name])

    for at in range(12):
        append_chance(topic, truth, chance, at=at)
        if chance.random() < 0.3:
            await sink.apply(topic.slice())
    await sink.apply(topic.slice())

    found = bench.table(str(SHOPS.table))
    assert found is not None
    assert shown(kept, found.to_pylist()) == truth.rows()


@dataclass(frozen=True, slots=True)
class Entries:
    """A reader of a scripted topic, as the tasks of Spark have one of a log."""

    topic: ScriptedTopic

    async def schemas(self, topic: str) -> Sequence[TableSchema]:
        return [SHOPS]

    async def truncates(self, start: AppliedOffsets, end: AppliedOffsets) -> Sequence[Truncate]:
        return []

    def read(
        self, start: AppliedOffsets, end: AppliedOffsets, heard: Heard = lambda _: None
    ) -> Iterator[TableChanges]:
        [begins], [ends] = start.values(), end.values()
        for changes in self.topic.entries:
            assert changes.log_offsets is not None
            offsets = np.asarray(changes.log_offsets)
            mask = (offsets >= begins.next_offset) & (offsets < ends.next_offset)
            if mask.any():
                yield changes.filter(pa.array(mask))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kept", [each for each in KEPT if each != "append"])
def test_a_history_ends_in_the_same_rows_however_spark_tasks_divide_it(
    kept: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance, topic, truth = Random(f"{kept} {seed}"), ScriptedTopic(), Truth(kept)
    monkeypatch.setattr(executor_tasks, "HELD_BYTES_MAX", chance.choice([1, 500, 1 << 20]))
    settings = SparkSettings.model_validate({"path": str(tmp_path), **settings_of(kept)})
    layout, _ = shape(SHOPS, settings.of("public.orders"), None, policy={}, may_drop=True)
    cells = (KeyRange(None, "zz", ()), KeyRange("zz", None, ()))
    for at in range(20):
        append_chance(topic, truth, chance, at=at)
    truncates = truncates_of([
        Truncate(each, {each.log_partition: each.log_offsets[0].as_py()})
        for each in topic.entries
        if each.is_truncate and each.log_partition and each.log_offsets
    ])  # fmt: skip

    end = topic.ends[0]
    edges = sorted({0, end, *(chance.randrange(end) for _ in range(chance.randint(0, 5)))})
    place = TopicPartition(topic.name, 0)
    splits = [Split(place, topic.topic_id, *edge) for edge in pairwise(edges)]
    divide = DivideSplits(Entries(topic), layout, (SHOPS,), cells, truncates)
    parcels = [parcel for split in splits for parcel in divide(iter([split]))]
    chance.shuffle(parcels)
    rewrite = RewriteCells(FileRewrite(StorageLocation(str(tmp_path)), layout), cells, truncates)
    written = list(rewrite(iter(parcels)))

    files = [each for said in written for each in json.loads(said.column("files")[0].as_py())]
    found = [
        row for each in files for row in parquet.read_table(tmp_path / each["path"]).to_pylist()
    ]
    assert shown(kept, found) == truth.rows()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_however_tasks_of_spark_divide_it_a_change_log_repeats_no_row(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance, topic, truth = Random(f"append {seed}"), ScriptedTopic(), Truth("append")
    monkeypatch.setattr(earlier_changes, "ASKED_AT_ONCE", chance.choice([1, 5, 1_000]))
    settings = SparkSettings.model_validate({
        "path": str(tmp_path), "tables": {"*": {"mode": "append", "file_rows": 3}}
    })  # fmt: skip
    layout, _ = shape(SHOPS, settings.of("public.orders"), None, policy={}, may_drop=True)
    rewriting = FileRewrite(StorageLocation(str(tmp_path)), layout)
    place, files, begin = TopicPartition(topic.name, 0), list[DataFile](), 0

    for at in range(20):
        append_chance(topic, truth, chance, at=at)
        if at % 7 and at < 19:
            continue
        end = topic.ends[0]
        cuts = [chance.randint(begin, end) for _ in range(chance.randint(0, 3))]
        edges = sorted({begin, end, *cuts})
        splits = [Split(place, topic.topic_id, *edge) for edge in pairwise(edges)]
        written = AppendSplits(Entries(topic), rewriting, (SHOPS,))(iter(splits))
        told = [(row["cell"], row["files"]) for each in written for row in each.to_pylist()]
        new, again = (
            [
                read_file(each)
                for number, text in told
                if number == which
                for each in json.loads(text)
            ]
            for which in (NEW, REREAD)
        )
        files += new
        files += rewriting.append_news(again, beside=files)
        begin = end

    found = [row for each in files for row in parquet.read_table(tmp_path / each.path).to_pylist()]
    assert shown("append", found) == truth.rows()
