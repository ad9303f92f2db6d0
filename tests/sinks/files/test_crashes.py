"""Wherever the sink ends between two steps, the next run makes every change count exactly once."""

import asyncio
from itertools import count
from pathlib import Path
from unittest.mock import patch

import pytest

from headwater.core_log.foundation.errors import Fenced, SinkRejected, SinkUnavailable
from headwater.core_log.objects.bucket import BucketStore
from headwater.core_log.objects.directory import DirectoryStore
from headwater.core_log.objects.settings import S3Settings
from headwater.core_log.objects.store import SINK_ERRORS, ObjectStore, names_below
from headwater.sinks.files import formats
from headwater.sinks.files import sink as files_sink
from headwater.sinks.files.staged_files import discard_scratch
from headwater.sinks.sink import AppliedOffset, Sink, Slice
from tests.contract.sink_suite import AUDIT, ORDERS
from tests.moto_server import client_of
from tests.sinks.files.targets import BreakingStore, FilesBench, altered
from tests.slices import ScriptedTopic, together

STEPS_MAX = 40
PARTITIONED = {"tables": {"*.orders": {"partition_by": "note"}}, "roll": {"rows": 2}}

_numbers = count(1)


def history() -> tuple[ScriptedTopic, ScriptedTopic]:
    return ScriptedTopic(), ScriptedTopic("shop.public.audit", "topic-2")


def first_slice(orders: ScriptedTopic, audit: ScriptedTopic) -> Slice:
    rows = [{"id": number, "note": "ab"[number % 2]} for number in range(7)]
    orders.append(ORDERS, *(("c", row) for row in rows))
    audit.append(AUDIT, ("c", {"at": 1, "what": "x"}))
    return together(orders.slice(), audit.slice())


async def applied_from(sink: Sink, orders: ScriptedTopic) -> int:
    offsets = await sink.committed_offsets([orders.name])
    assert offsets is not None
    return offsets[orders._at(0)].next_offset if offsets else 0


def committed_names(bench: FilesBench) -> set[str]:
    return {
        name
        for table in ("public.orders", "public.audit")
        for name in formats.files(bench.path, table, s3=bench.s3)
    }


def data_files(store: ObjectStore) -> set[str]:
    return {store.address(name) for name in names_below(store) if name.endswith(".parquet")}


async def break_at_every_step(bench: FilesBench, store: ObjectStore, *, step: int) -> bool:
    """A slice that breaks off at this step, then a run that goes on; whether it did break off.
    The run after it gets a longer slice, as when more has come in the meantime."""
    orders, audit = history()
    part = first_slice(orders, audit)
    broken = BreakingStore(store, step)

    def discard(scratch: Path) -> None:
        """A process that is gone discards nothing."""
        if not broken.is_broken:
            discard_scratch(scratch)

    with patch.object(files_sink, "discard_scratch", discard):
        try:
            await bench.sink(broken).apply(part)
        except SinkUnavailable:
            assert broken.is_broken

    fresh = bench.sink(store)
    start = await applied_from(fresh, orders)
    orders.append(ORDERS, ("u", {"id": 0, "note": "c"}))
    if start:
        await fresh.apply(orders.slice())
    else:
        await fresh.apply(together(orders.slice(start={0: 0}), audit.slice(start={0: 0})))

    ids = sorted(row["id"] for row in await bench.rows("public.orders"))
    assert ids == [0, 0, 1, 2, 3, 4, 5, 6]
    assert await bench.rows("public.audit") == [{"at": 1, "what": "x"}]
    assert data_files(store) == committed_names(bench), "nothing is left of what never counted"
    return broken.is_broken


@pytest.mark.slow
async def test_any_step_in_a_directory_may_be_the_last(tmp_path: Path) -> None:
    steps = 0
    for step in range(1, STEPS_MAX):
        bench = FilesBench(str(tmp_path / str(step)), chosen=PARTITIONED)
        store = DirectoryStore(Path(bench.path), SINK_ERRORS)
        if not await break_at_every_step(bench, store, step=step):
            break
        steps = step

    assert 10 <= steps < STEPS_MAX - 1, "every step has been the last one once"


async def test_steps_in_a_bucket_may_be_the_last(s3: S3Settings) -> None:
    for step in (5, 9):
        bucket = f"crash-{next(_numbers)}"
        client_of(s3).create_bucket(Bucket=bucket)
        bench = FilesBench(f"s3://{bucket}", s3, PARTITIONED)

        await break_at_every_step(bench, BucketStore(bucket, "", s3, SINK_ERRORS), step=step)


async def test_the_same_slice_again_takes_the_same_names(tmp_path: Path) -> None:
    bench = FilesBench(str(tmp_path / "out"), chosen=PARTITIONED)
    store = DirectoryStore(Path(bench.path), SINK_ERRORS)
    orders, audit = history()
    part = first_slice(orders, audit)
    broken = BreakingStore(store, 7)
    with pytest.raises(SinkUnavailable):
        await bench.sink(broken).apply(part)
    left = {name for name in data_files(store) if "_headwater/scratch/" not in name}

    await bench.sink(store).apply(part)

    assert left
    assert left < data_files(store) == committed_names(bench)


async def test_a_run_that_was_overtaken_takes_its_files_back(tmp_path: Path) -> None:
    bench = FilesBench(str(tmp_path / "out"))
    store = DirectoryStore(Path(bench.path), SINK_ERRORS)
    orders, audit = history()
    part = first_slice(orders, audit)
    orders.append(ORDERS, ("c", {"id": 7, "note": "b"}))
    longer = together(orders.slice(start={0: 0}), audit.slice(start={0: 0}))

    def overtake(name: str, content: bytes) -> bool:
        if "/commits/" in name:
            asyncio.run(bench.sink(store).apply(longer))
        return store.create(name, content)

    with pytest.raises(Fenced):
        await bench.sink(altered(store, create=overtake)).apply(part)

    ids = sorted(row["id"] for row in await bench.rows("public.orders"))
    assert ids == list(range(8))
    assert data_files(store) == committed_names(bench)


async def test_a_run_that_goes_on_after_it_was_overtaken_takes_its_files_back(
    tmp_path: Path,
) -> None:
    bench = FilesBench(str(tmp_path / "out"))
    store = DirectoryStore(Path(bench.path), SINK_ERRORS)
    orders, audit = history()
    part = first_slice(orders, audit)
    orders.append(ORDERS, ("c", {"id": 7, "note": "b"}))
    longer = together(orders.slice(start={0: 0}), audit.slice(start={0: 0}))
    overtakers = [bench.sink(store)]

    def upload(name: str, path: Path) -> None:
        if overtakers:
            asyncio.run(overtakers.pop().apply(longer))
        store.upload(name, path)

    elsewhere = altered(store, upload=upload, local_root=None)  # nobody can remove its scratch
    with pytest.raises(Fenced):
        await bench.sink(elsewhere).apply(part)

    assert len(await bench.rows("public.orders")) == 8
    assert data_files(store) == committed_names(bench)


async def test_a_commit_whose_answer_got_lost_counts_once(tmp_path: Path) -> None:
    bench = FilesBench(str(tmp_path / "out"))
    orders, audit = history()
    part = first_slice(orders, audit)
    store = DirectoryStore(Path(bench.path), SINK_ERRORS)

    def create(name: str, content: bytes) -> bool:
        return store.create(name, content) and "/commits/" not in name

    sink = bench.sink(altered(store, create=create))

    await sink.apply(part)

    assert len(await bench.rows("public.orders")) == 7
    offsets = await sink.committed_offsets([orders.name])
    assert offsets == {orders._at(0): AppliedOffset(orders.topic_id, 8)}


async def test_a_table_of_another_pipeline_is_left_alone(tmp_path: Path) -> None:
    orders, audit = history()
    part = first_slice(orders, audit)
    await FilesBench(str(tmp_path)).sink().apply(part)

    with pytest.raises(SinkRejected, match="belongs to another sink"):
        await FilesBench(str(tmp_path), pipeline="other").sink().apply(part)

    assert len(await FilesBench(str(tmp_path)).rows("public.orders")) == 7
