"""Compaction goes on while the log is read: what comes out of it is right, or refused in words."""

import os
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.core_log.embedded import EmbeddedLog
from headwater.core_log.foundation.errors import PositionLost
from headwater.core_log.foundation.settings import TopicSettings
from headwater.core_log.model.changes import Operation
from headwater.core_log.model.log import Fetched, FetchLimit, Isolation, Offsets, TopicPartition
from headwater.pipelines.file.loaded_parts import sink_elsewhere
from headwater.pipelines.file.loader import load
from headwater.pipelines.file.spec import TransformRule
from headwater.pipelines.loops.assembly import make_sink, topic_config
from headwater.pipelines.loops.deliver.slice_reader import SliceReader
from headwater.pipelines.time_travel.history.cut_points import CutPoint
from headwater.pipelines.time_travel.history.key_history import (
    change_as_of,
    key_bytes,
    stored_schema,
)
from headwater.pipelines.time_travel.rebuild import replay as replay_module
from headwater.pipelines.time_travel.rebuild.rebuild import (
    RebuildOptions,
    TableRebuild,
    find_rebuilding,
    rebuild_elsewhere,
)
from headwater.pipelines.time_travel.rebuild.replay import replay
from headwater.pipelines.time_travel.verify.result import ComparedSides, TableVerdict
from headwater.pipelines.time_travel.verify.verify import Verifier
from headwater.pipelines.transforms.after_log import RowTransforms
from headwater.sinks.sink import Slice
from tests.pipelines.time_travel.world import World, tell
from tests.served_log import ServedLog, offsets_of, served_log
from tests.slices import changes_of, schema_of

PIPELINE = """
pipeline: copy
source:
  {type: generator, mode: wide, size: 1000, total: TOTAL, rate: 0, updates: 0.95, deletes: 0.02,
    batch_rows: 100, batch_wait: 0ms}
sink: {type: sql, url: "sqlite:///target.db", commit_every: 0s}
limits: {transaction_size: 8KiB, fetch_size: 16KiB}
"""
TABLE, TOPIC = "shop.wide", "copy.shop.wide"
PLACE = TopicPartition(TOPIC, 0)
AGES_MS = "9000000000000"
SMALL = {"segment.bytes": "4000", "min.cleanable.dirty.ratio": "0.01"}


class CompactingLog:
    """As it is; but when a topic has been fetched from for the first time, its cleaner runs."""

    def __init__(self, log: EmbeddedLog, topic: str) -> None:
        self._log, self._topic = log, topic
        self.is_compacted = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    async def fetch(
        self, wanted: Offsets, *, limit: FetchLimit, isolation: Isolation
    ) -> Sequence[Fetched]:
        found = await self._log.fetch(wanted, limit=limit, isolation=isolation)
        if not self.is_compacted and self._topic in {each.topic for each in wanted}:
            self.is_compacted = True
            await self._log.topics.alter(self._topic, set_to={"min.compaction.lag.ms": "0"})
            running = self._log.running
            await running.housekeeping.cleaner.clean_what_is_due(running.broker.clock.now_ms())
        return found


async def lagging(world: World, directory: Path) -> World:
    """A target that has the first half of what the log holds by now."""
    config = topic_config(world.loaded.spec.log) | SMALL
    await world.log.ensure_topic(TopicSettings(name=TOPIC, config=config))
    await world.run()
    path = directory / "pipeline.yaml"
    path.write_text(PIPELINE.replace("TOTAL", "5000"))
    [loaded] = load(path, environment=os.environ)
    more = World(loaded, world.log)
    await more.run("source")
    return more


def compacting(world: World) -> Any:
    return CompactingLog(world.log, TOPIC)


async def verified(world: World, log: Any) -> TableVerdict:
    verifier = Verifier(world.loaded, log, clock=world.clock, is_running=False)
    [verdict] = await verifier.verify([await world.subject(TABLE)], ComparedSides(source=False))
    return verdict


@pytest.mark.slow
def test_a_target_behind_what_compaction_takes_is_not_said_to_differ(tmp_path: Path) -> None:
    async def story(world: World) -> Any:
        world = await lagging(world, tmp_path)
        before = await verified(world, world.log)
        log = compacting(world)
        return before, await verified(world, log), (await log.bounds([PLACE]))[PLACE]

    before, after, bounds = tell(tmp_path, PIPELINE.replace("TOTAL", "2500"), story)

    assert before.is_equal
    assert bounds.cleaned_to > before.cut_point.ends[PLACE], "compaction has really passed it"
    assert "compaction has passed this point in time" in after.problem
    assert not after.compared.differing, "so that nothing is mended that is not broken"


@pytest.mark.slow
def test_a_rebuild_that_compaction_overtakes_is_refused_and_one_of_now_is_equal(
    tmp_path: Path,
) -> None:
    async def rebuilt(world: World, log: Any, into: str, as_of: CutPoint | None) -> Any:
        found = await find_rebuilding(world.loaded, world.log, table=TABLE, sink=None)
        part = sink_elsewhere(found.part, f"sqlite:///{into}.db")
        rebuilding = TableRebuild(world.loaded, part, found.subject)
        wanted = RebuildOptions(verifies=True, as_of=as_of)
        return await rebuild_elsewhere(rebuilding, log, wanted, clock=world.clock)

    async def story(world: World) -> Any:
        world = await lagging(world, tmp_path)
        middle = CutPoint({PLACE: 2_000}, "offset 2000")
        whole = await rebuilt(world, world.log, "whole", middle)
        with pytest.raises(PositionLost) as refused:
            await rebuilt(world, compacting(world), "torn", middle)
        return whole, refused.value, await rebuilt(world, compacting(world), "now", None)

    whole, refused, now = tell(tmp_path, PIPELINE.replace("TOTAL", "2500"), story)

    assert whole.verdict.is_equal and now.verdict.is_equal
    assert "compaction has passed this point in time" in refused.problem
    assert "the oldest possible is" in refused.hint


@pytest.mark.slow
def test_a_row_of_a_moment_that_compaction_overtakes_is_refused(tmp_path: Path) -> None:
    async def story(world: World) -> Any:
        world = await lagging(world, tmp_path)
        stored = await stored_schema(world.log, "copy", TABLE)
        keys = await key_bytes(world.log, stored, "7")
        middle = CutPoint({PLACE: 2_000}, "offset 2000")
        whole = await change_as_of(world.log, stored, keys, middle)
        with pytest.raises(PositionLost) as refused:
            await change_as_of(compacting(world), stored, keys, middle)
        return whole, refused.value

    whole, refused = tell(tmp_path, PIPELINE.replace("TOTAL", "2500"), story)

    assert whole.offset < 2_000
    assert "compaction has passed this point in time" in refused.problem


@pytest.mark.slow
def test_a_replay_to_a_moment_that_compaction_overtakes_is_refused(tmp_path: Path) -> None:
    async def story(world: World) -> Any:
        world = await lagging(world, tmp_path)
        part = sink_elsewhere(world.loaded.sinks[0], "sqlite:///past.db")
        sink = make_sink(world.loaded, part, clock=world.clock)
        middle = CutPoint({PLACE: 2_000}, "offset 2000")
        try:
            with pytest.raises(PositionLost) as refused:
                await replay(
                    world.loaded, part, sink, compacting(world),
                    start={PLACE: 0}, end=middle.ends, clock=world.clock, as_of=middle,
                )  # fmt: skip
        finally:
            await sink.close()
        return refused.value

    refused = tell(tmp_path, PIPELINE.replace("TOTAL", "2500"), story)

    assert "compaction has passed this point in time" in refused.problem


class SleepingSink:
    """As it is; but after its first slice the log removes deletes."""

    def __init__(self, sink: Any, sleep: Callable[[], Awaitable[None]]) -> None:
        self._sink, self._sleep, self._is_rested = sink, sleep, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sink, name)

    async def apply(self, part: Slice) -> None:
        await self._sink.apply(part)
        if not self._is_rested:
            self._is_rested = True
            await self._sleep()


async def drop_deletes(world: World, directory: Path) -> None:
    """The first pass finds that nothing needs the deletes; a later one removes them."""
    config = topic_config(world.loaded.spec.log)
    keeps_nothing = {"min.compaction.lag.ms": "0", "delete.retention.ms": "0"}
    running = world.log.running
    for total, later_ms in (("2600", 0), ("5000", 60_000)):
        (directory / "pipeline.yaml").write_text(PIPELINE.replace("TOTAL", total))
        [more] = load(directory / "pipeline.yaml", environment=os.environ)
        await World(more, world.log).run("source")
        await world.log.topics.alter(TOPIC, set_to=keeps_nothing)
        now_ms = running.broker.clock.now_ms() + later_ms
        await running.housekeeping.cleaner.clean_what_is_due(now_ms)
        await world.log.topics.alter(TOPIC, set_to={name: config[name] for name in keeps_nothing})
    assert (await world.log.bounds([PLACE]))[PLACE].deletes_dropped_to > 1_000


@pytest.mark.slow
@pytest.mark.parametrize("is_broken_off", [True, False])
def test_a_replay_whose_next_deletes_are_gone_is_refused(
    is_broken_off: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were removed after it was broken off, or between two of its slices."""
    monkeypatch.setattr(replay_module, "SLICE_RECORDS", 1_000)

    async def story(world: World) -> Any:
        config = topic_config(world.loaded.spec.log) | SMALL
        await world.log.ensure_topic(TopicSettings(name=TOPIC, config=config))
        await world.run("source")
        part = sink_elsewhere(world.loaded.sinks[0], "sqlite:///copy.db")
        sink = make_sink(world.loaded, part, clock=world.clock)

        async def replayed(end: int, sink: Any) -> int:
            return await replay(
                world.loaded, part, sink, world.log,
                start={PLACE: 0}, end={PLACE: end}, clock=world.clock,
            )  # fmt: skip

        try:
            if is_broken_off:
                await replayed(1_000, sink)
                await drop_deletes(world, tmp_path)
            sleeping = SleepingSink(sink, partial(drop_deletes, world, tmp_path))
            with pytest.raises(PositionLost) as refused:
                await replayed(2_000, sink if is_broken_off else sleeping)
            reached = await sink.committed_offsets([TOPIC])
            assert reached is not None and await replayed(1_000, sink) == 0, "it is there already"
        finally:
            await sink.close()
        return refused.value, reached[PLACE]

    refused, reached = tell(tmp_path, PIPELINE.replace("TOTAL", "2500"), story)

    assert refused.problem == "the log has removed deletes that the target has not applied"
    assert "--into" in refused.hint
    assert reached.next_offset == 1_000 and reached.leader_epoch >= 0


SCHEMA = schema_of(id=pa.int64(), amount=pa.int64())
LARGE = TransformRule.model_validate({"table": "public.orders", "filter": "amount > 1000"})


@pytest.mark.slow
def test_a_row_that_left_and_came_back_too_small_is_not_kept_for_want_of_its_delete(
    tmp_path: Path,
) -> None:
    """The reader has its first life already; of the rest compaction leaves only that it is there
    again, as a row that does not pass the filter."""
    topic = "shop.public.orders"
    with served_log(tmp_path) as served:
        config = {"cleanup.policy": "compact", "min.compaction.lag.ms": AGES_MS, **SMALL}
        served.run(lambda: served.log.ensure_topic(TopicSettings(name=topic, config=config)))
        transactions = [("c", {"id": 1, "amount": 5_000}), ("d", {"id": 1})]
        transactions += [("c", {"id": 1, "amount": 5})]
        transactions += [("c", {"id": 2 + at, "amount": at * 10}) for at in range(200)]
        served.write(*([changes_of(SCHEMA, each)] for each in transactions))
        log = CompactingLog(served.log, topic)

        found = served.run(lambda: mirrored(served, log, topic))
        bounds = served.run(lambda: served.log.bounds([TopicPartition(topic, 0)]))

    assert bounds[TopicPartition(topic, 0)].cleaned_to > 3, "compaction has taken its delete"
    assert found == {2 + at: at * 10 for at in range(200) if at * 10 > 1_000}


async def mirrored(served: ServedLog, log: Any, topic: str) -> dict[int, int]:
    """What a table is that takes the changes in as they come."""
    after_log = RowTransforms([LARGE], [])
    reader = SliceReader(log, after_log=after_log, fetch_bytes=1, skipped=dict)
    start = await offsets_of(served.log, topic, at_end=False)
    end = await offsets_of(served.log, topic, at_end=True)
    part = Slice(log=log, start=start, end=end, cut=None, read=reader.read)
    rows: dict[int, int] = {}
    async for changes in part.changes():
        for row, operation in zip(
            changes.rows.to_pylist(), changes.operations.to_pylist(), strict=True
        ):
            rows.pop(row["id"], None)
            if operation != Operation.DELETE:
                rows[row["id"]] = row["amount"]
    return rows
