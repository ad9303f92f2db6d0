"""Files that no version of a table needs are removed in time, and never one that is needed."""

import os
import time
from pathlib import Path

import pytest

from headwater.core_log.foundation.clock import SystemClock
from headwater.core_log.foundation.errors import ConfigError
from headwater.sinks.sink import RebuildRecipe
from headwater.sinks.spark.delta.table import CHECKPOINT_EVERY
from tests.contract.sink_suite import ORDERS, by_id
from tests.fakes import SimulatedClock
from tests.sinks.spark.orders import TABLE, applied, bench_of, many, state_of
from tests.sinks.spark.targets import NOW_MS, LakeBench
from tests.slices import ScriptedTopic

KINDS = pytest.mark.parametrize("kind", ["delta", "iceberg"])
RETAIN_S = 7_200
LONG_AGO_S = 3 * RETAIN_S
MONTHS_S = 60 * 86_400


@pytest.fixture
def topic() -> ScriptedTopic:
    topic = ScriptedTopic()
    topic.append(ORDERS, *many(0, 4))
    return topic


def lake(path: Path, kind: str) -> LakeBench:
    bench = bench_of(path, format=kind, maintenance={"retain": "2h"})
    bench.clock = SystemClock()
    return bench


async def filled(path: Path, kind: str, topic: ScriptedTopic) -> LakeBench:
    bench = lake(path, kind)
    await applied(bench, topic)
    return bench


def age(path: Path, by_s: int = LONG_AGO_S) -> None:
    long_ago = time.time() - by_s
    os.utime(path, (long_ago, long_ago))


def files(bench: LakeBench, pattern: str) -> set[Path]:
    return set(Path(bench.address("public.orders")).glob(pattern))


def data_files(bench: LakeBench) -> set[str]:
    root = Path(bench.address("public.orders"))
    return {each.relative_to(root).as_posix() for each in files(bench, "**/*.parquet")}


def age_all(bench: LakeBench) -> None:
    for name in data_files(bench):
        age(Path(bench.address("public.orders"), name))


@KINDS
async def test_files_of_a_run_that_broke_off_go_once_they_are_old_enough(
    kind: str, topic: ScriptedTopic, tmp_path: Path
) -> None:
    bench = await filled(tmp_path, kind, topic)
    kept = data_files(bench)
    old, new = (Path(bench.address("public.orders"), f"{each}.parquet") for each in ("old", "new"))
    for each in (old, new):
        each.write_bytes(b"left behind")
    age(old)

    said = await bench.sink().maintain()

    assert said == ["public.orders: 1 files removed that no version needs"]
    assert data_files(bench) == kept | {"new.parquet"}
    assert len(await bench.rows("public.orders")) == 4


@KINDS
async def test_files_that_a_table_had_once_go_by_whatever_its_directories_are_called(
    kind: str, topic: ScriptedTopic, tmp_path: Path
) -> None:
    bench = lake(tmp_path, kind)
    bench.chosen["tables"] = {"*": {"partition_by": ["note"]}}
    topic.append(ORDERS, ("u", {"id": 1, "note": "ü b/c%20"}))
    await applied(bench, topic)
    kept = data_files(bench)
    for name in kept:
        path = Path(bench.address("public.orders"), name)
        path.with_stem("old").write_bytes(b"left behind")
        age(path.with_stem("old"))

    await bench.sink().maintain()

    assert data_files(bench) == kept
    assert len(await bench.rows("public.orders")) == 4


@KINDS
async def test_files_of_the_table_stay_however_old_they_are(
    kind: str, topic: ScriptedTopic, tmp_path: Path
) -> None:
    bench = await filled(tmp_path, kind, topic)
    age_all(bench)
    topic.append(ORDERS, ("u", {"id": 1, "note": "b"}))
    sink = bench.sink()
    await sink.committed_offsets([topic.name])
    await sink.apply(topic.slice())
    before = data_files(bench)

    assert await bench.sink().maintain() == []

    assert data_files(bench) == before, "the version of before can still be read"
    assert [row["note"] for row in by_id(await bench.rows("public.orders"))] == ["a", "b", "a", "a"]


@pytest.mark.slow
@KINDS
async def test_files_whose_place_was_taken_long_ago_go(
    kind: str, topic: ScriptedTopic, tmp_path: Path
) -> None:
    bench = lake(tmp_path, kind)
    bench.clock = SimulatedClock(NOW_MS)
    await applied(bench, topic)
    age_all(bench)
    topic.append(ORDERS, ("u", {"id": 1, "note": "b"}))
    sink = bench.sink()
    await sink.committed_offsets([topic.name])
    await sink.apply(topic.slice())

    bench.clock = SimulatedClock(int((time.time() + LONG_AGO_S) * 1_000))  # of Iceberg's snapshots
    said = await bench.sink().maintain()

    removed = 1 if kind == "delta" else 3  # what named it, too
    assert said == [f"public.orders: {removed} files removed that no version needs"]
    assert data_files(bench) == {each.path for each in state_of(bench).files}
    assert [row["note"] for row in by_id(await bench.rows("public.orders"))] == ["a", "b", "a", "a"]


async def test_a_table_that_is_not_there_cannot_be_cared_for(
    topic: ScriptedTopic, tmp_path: Path
) -> None:
    bench = await filled(tmp_path, "delta", topic)

    with pytest.raises(ConfigError, match=r"there is public\.orders"):
        await bench.sink().maintain(["public.order"])

    assert await bench.sink().maintain(["orders"]) == []


@pytest.mark.slow
@KINDS
async def test_a_copy_that_waits_for_its_swap_keeps_its_files(
    kind: str, topic: ScriptedTopic, tmp_path: Path
) -> None:
    bench = await filled(tmp_path, kind, topic)
    shadow = await bench.sink().shadow(RebuildRecipe(TABLE))
    await shadow.committed_offsets([topic.name])
    await shadow.apply(topic.slice(start={0: 0}))
    age_all(bench)

    assert await bench.sink().maintain() == []

    await bench.sink().swap(TABLE)
    assert state_of(bench).generation == 2
    assert len(await bench.rows("public.orders")) == 4


@pytest.mark.slow
async def test_the_log_of_a_delta_table_does_not_grow_for_ever(
    topic: ScriptedTopic, tmp_path: Path
) -> None:
    bench = lake(tmp_path, "delta")
    sink = bench.sink()
    await sink.committed_offsets([topic.name])
    for number in range(CHECKPOINT_EVERY + 3):
        topic.append(ORDERS, ("u", {"id": 1, "note": str(number)}))
        await sink.apply(topic.slice())
    for each in files(bench, "_delta_log/*"):
        age(each, by_s=MONTHS_S)

    await bench.sink().maintain()
    topic.append(ORDERS, ("u", {"id": 2, "note": "last"}))
    await applied(bench, topic)

    kept = sorted(int(each.stem) for each in files(bench, "_delta_log/*.json"))
    assert kept == list(range(CHECKPOINT_EVERY, CHECKPOINT_EVERY + 4))
    notes = [row["note"] for row in by_id(await bench.rows("public.orders"))]
    assert notes == ["a", str(CHECKPOINT_EVERY + 2), "last", "a"]


@pytest.mark.slow
async def test_metadata_of_expired_iceberg_versions_goes(
    topic: ScriptedTopic, tmp_path: Path
) -> None:
    bench = lake(tmp_path, "iceberg")
    bench.clock = SimulatedClock(NOW_MS)
    sink = bench.sink()
    await sink.committed_offsets([topic.name])
    for number in range(5):
        topic.append(ORDERS, ("u", {"id": 1, "note": str(number)}))
        await sink.apply(topic.slice())
    before = files(bench, "metadata/*.avro")
    for each in before:
        age(each)

    bench.clock = SimulatedClock(int((time.time() + LONG_AGO_S) * 1_000))  # of Iceberg's snapshots
    await bench.sink().maintain()
    topic.append(ORDERS, ("u", {"id": 2, "note": "last"}))
    await applied(bench, topic)

    assert len(before) >= 10, "two for every version at least"
    assert len(before & files(bench, "metadata/*.avro")) <= 3
    notes = [row["note"] for row in by_id(await bench.rows("public.orders"))]
    assert notes == ["a", "4", "last", "a"]
