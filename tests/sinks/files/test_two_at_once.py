"""Of two runs at once one commits, and the other takes nothing from it."""

import asyncio
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from headwater.core_log.foundation.errors import Fenced, SinkRejected
from headwater.core_log.model.changes import TableChanges
from headwater.core_log.objects.directory import DirectoryStore
from headwater.core_log.objects.store import SINK_ERRORS, names_below
from headwater.sinks.files import formats
from headwater.sinks.files.settings import FilesSinkSettings
from headwater.sinks.files.sink import FilesSink
from headwater.sinks.sink import SinkContext, Slice
from tests.contract.sink_suite import ORDERS
from tests.fakes import SimulatedClock
from tests.sinks.files.targets import FilesBench, altered
from tests.sinks.spark.orders import many
from tests.slices import ScriptedTopic, schema_of


async def test_a_run_that_clears_up_takes_nothing_from_one_that_commits_after_all(
    tmp_path: Path,
) -> None:
    bench = FilesBench(str(tmp_path / "out"))
    store = DirectoryStore(Path(bench.path), SINK_ERRORS)
    topic = ScriptedTopic()
    topic.append(ORDERS, *many(0, 5))
    part = topic.slice()
    topic.append(ORDERS, *many(5, 1))
    longer = topic.slice(start={0: 0})

    def commits_late(name: str, content: bytes) -> bool:
        """Of the second run: the first one, between its files and its commit, wakes up."""
        if "/commits/" in name:
            resume.set()
            assert done.wait(20)
        return store.create(name, content)

    reached, resume, done = threading.Event(), threading.Event(), threading.Event()

    def stalls(name: str, content: bytes) -> bool:
        if "/commits/" in name:
            reached.set()
            assert resume.wait(20)
            try:
                return store.create(name, content)
            finally:
                done.set()
        return store.create(name, content)

    first = bench.sink(altered(store, create=stalls))
    second = bench.sink(altered(store, create=commits_late))
    slow = asyncio.create_task(first.apply(part))
    await asyncio.to_thread(reached.wait, 20)
    with pytest.raises(Fenced):
        await second.apply(longer)
    await slow  # acknowledged

    committed = set(formats.files(bench.path, "public.orders"))
    assert committed <= {f"{bench.path}/{name}" for name in names_below(store)}
    assert len(await bench.rows("public.orders")) == 5


async def test_a_run_that_wakes_up_late_and_divided_otherwise_writes_over_no_file_that_counts(
    tmp_path: Path,
) -> None:
    bench = FilesBench(str(tmp_path / "out"))
    store = DirectoryStore(Path(bench.path), SINK_ERRORS)
    topic = ScriptedTopic()
    topic.append(ORDERS, *many(0, 5))
    topic.append(ORDERS, *many(5, 1))
    part = topic.slice()
    reached, resume = threading.Event(), threading.Event()

    def stalls(name: str, path: Path) -> None:
        reached.set()
        assert resume.wait(20)
        store.upload(name, path)

    by_two = replace(bench, chosen={"roll": {"rows": 2}})
    slow = by_two.sink(altered(store, upload=stalls, local_root=None))
    late = asyncio.create_task(slow.apply(part))
    await asyncio.to_thread(reached.wait, 20)
    await bench.sink().apply(part)
    resume.set()
    with pytest.raises(Fenced):
        await late

    assert len(await bench.rows("public.orders")) == 6


async def test_two_sinks_of_a_pipeline_in_one_place_do_not_take_each_others_tables_for_theirs(
    tmp_path: Path,
) -> None:
    topic = ScriptedTopic()
    topic.append(ORDERS, *many(0, 5))

    def sink(name: str) -> FilesSink:
        settings = FilesSinkSettings(path=str(tmp_path / "out"))
        context = SinkContext("shop", tmp_path, {}, SimulatedClock(1_700_000_000_000), name)
        return FilesSink(settings, context)

    one, two = sink("one"), sink("two")
    await one.committed_offsets([topic.name])
    await one.apply(topic.slice())

    assert await two.committed_offsets([topic.name]) == {}, "it has had nothing yet"
    with pytest.raises(SinkRejected, match="belongs to another sink"):
        await two.apply(topic.slice(start={0: 0}))


async def test_two_sinks_in_one_place_do_not_remove_the_files_that_the_other_one_writes(
    tmp_path: Path,
) -> None:
    orders, items = ScriptedTopic(), ScriptedTopic("shop.public.items", "topic-2")
    orders.append(ORDERS, *many(0, 5))
    items.append(schema_of("public.items", id=pa.int64()), ("c", {"id": 1}))
    part, begun, go_on = orders.slice(), asyncio.Event(), asyncio.Event()

    async def stalls(given: Slice) -> AsyncIterator[TableChanges]:
        async for changes in part.read(given):
            yield changes
        begun.set()
        await go_on.wait()

    one, two = (replace(FilesBench(str(tmp_path / "out")), pipeline=each) for each in ("a", "b"))
    slow = asyncio.create_task(one.sink().apply(replace(part, read=stalls)))
    await begun.wait()
    await two.sink().apply(items.slice())
    go_on.set()
    await slow

    assert len(await one.rows("public.orders")) == 5
    assert len(await two.rows("public.items")) == 1
