"""Maintenance bounds how many versions an Iceberg table has, and leaves what is asked for."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.snapshots import Operation, Snapshot, Summary

from headwater.core_log.model.table_schema import TableId
from headwater.sinks.sink import RebuildRecipe
from headwater.sinks.spark.iceberg import versions
from headwater.sinks.spark.iceberg.versions import (
    AT,
    AT_ONCE,
    NEWEST,
    SPANS,
    RememberingCatalog,
    find_removable,
)
from headwater.sinks.spark.sink_state import ENTRIES_KEPT
from tests.contract.sink_suite import by_id
from tests.sinks.spark.orders import TABLE, begun, iceberg_bench, many, moved, state_of, topic_of
from tests.sinks.spark.targets import LakeBench
from tests.slices import ScriptedTopic

WEEK_MS = 7 * 86_400_000
HOUR_MS = 3_600_000
EVERY_MS = 10_000
SPAN_MS = WEEK_MS // SPANS
NOW_MS = 1_700_000_000_000


def snapshot(number: int, at_ms: int, *, swapped: bool = False) -> Snapshot:
    said = {AT: '{"swapped": true}'} if swapped else {}
    return Snapshot(
        snapshot_id=number,
        parent_snapshot_id=number - 1,
        sequence_number=number,
        timestamp_ms=at_ms,
        manifest_list=f"{number}.avro",
        summary=Summary(Operation.OVERWRITE, **said),
    )


def left(held: list[Snapshot], now_ms: int) -> list[Snapshot]:
    gone = {each.snapshot_id for each in find_removable(held, older_than_ms=WEEK_MS, now_ms=now_ms)}
    return [each for each in held if each.snapshot_id not in gone]


@pytest.mark.slow
def test_few_of_a_week_of_versions_stay_and_one_of_every_hour() -> None:
    held, number, now_ms = list[Snapshot](), 0, NOW_MS
    for _ in range(8 * 24):
        for _ in range(HOUR_MS // EVERY_MS):
            number, now_ms = number + 1, now_ms + EVERY_MS
            held.append(snapshot(number, now_ms))
        held = left(held, now_ms)
        assert len(held) <= NEWEST + SPANS + 2

    assert NEWEST > ENTRIES_KEPT, "every cut that has a name can be opened"
    assert [each.snapshot_id for each in held[-NEWEST:]] == [
        *range(number - NEWEST + 1, number + 1)
    ]
    times = [each.timestamp_ms for each in held]
    assert max(b - a for a, b in pairwise(times)) < 2 * SPAN_MS
    assert now_ms - WEEK_MS <= times[0] < now_ms - WEEK_MS + 2 * SPAN_MS


def test_the_oldest_go_first_when_too_many_are_to_be_forgotten() -> None:
    held = [snapshot(number, NOW_MS + number) for number in range(1, AT_ONCE + 101)]

    gone = find_removable(held, older_than_ms=WEEK_MS, now_ms=NOW_MS + 2 * WEEK_MS)

    assert {each.snapshot_id for each in gone} == set(range(1, AT_ONCE + 1))


def test_a_version_replaced_by_a_swap_stays_until_it_is_too_old() -> None:
    swap = 500
    held = [
        snapshot(number, NOW_MS + number * EVERY_MS, swapped=number == swap)
        for number in range(3_000)
    ]

    soon = {each.snapshot_id for each in left(held, NOW_MS + 3_000 * EVERY_MS)}
    late = {each.snapshot_id for each in left(held, NOW_MS + WEEK_MS + swap * EVERY_MS)}

    assert swap - 1 in soon
    assert swap - 1 not in late


@pytest.fixture
def bench(tmp_path: Path) -> LakeBench:
    return iceberg_bench(tmp_path)


@pytest.fixture
def topic() -> ScriptedTopic:
    return topic_of(many(0, 4))


def ids(bench: LakeBench, table: TableId = TABLE) -> list[int]:
    held, _ = state_of(bench, table).native
    return [each.sequence_number for each in held.metadata.snapshots]


@pytest.mark.slow
async def test_maintenance_leaves_few_versions_and_the_sink_goes_on(
    bench: LakeBench, topic: ScriptedTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "NEWEST", 3)
    sink = await begun(bench, topic)
    await moved(sink, topic, 8)

    before = ids(bench)
    assert await sink.maintain() == []
    after = ids(bench)
    await moved(sink, topic, 2)

    # All are of one span, or of two.
    assert before == list(range(1, 10))
    assert after[-3:] == [7, 8, 9]
    assert len(after) <= 5
    assert ids(bench) == [*after, 10, 11]
    assert [row["note"] for row in by_id(await bench.rows("public.orders"))] == ["a", "1", "a", "a"]


@pytest.mark.slow
async def test_a_tagged_version_outlives_maintenance(
    bench: LakeBench, topic: ScriptedTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "NEWEST", 1)
    sink = await begun(bench, topic)
    held, _ = state_of(bench).native
    held.manage_snapshots().create_tag(held.current_snapshot().snapshot_id, "audited").commit()
    await moved(sink, topic, 5)

    for _ in range(2):
        await sink.maintain()

    assert {1, 6} <= set(ids(bench))
    assert len(ids(bench)) <= 4


@pytest.mark.slow
async def test_maintenance_forgets_another_time_what_somebody_elses_commit_came_before(
    bench: LakeBench, topic: ScriptedTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "NEWEST", 1)
    sink = await begun(bench, topic)
    await moved(sink, topic, 5)

    def overtaken(*_: Any) -> Any:
        raise CommitFailedException("by another process")

    with monkeypatch.context() as patched:
        patched.setattr(RememberingCatalog, "commit_table", overtaken)
        assert await sink.maintain() == []
    before = ids(bench)
    await sink.maintain()

    assert len(before) == 6
    assert len(ids(bench)) <= 3


@pytest.mark.slow
async def test_the_version_before_a_swap_outlives_maintenance(
    bench: LakeBench, topic: ScriptedTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "NEWEST", 1)
    sink = await begun(bench, topic)
    await moved(sink, topic, 3)
    shadow = await sink.shadow(RebuildRecipe(TABLE))
    await shadow.committed_offsets([topic.name])
    await shadow.apply(topic.slice(start={0: 0}))
    said = await sink.swap(TABLE)
    sink = bench.sink()
    await sink.committed_offsets([topic.name])

    for _ in range(2):
        await moved(sink, topic, 3)
        await sink.maintain()

    assert said.startswith("version 4 of")
    assert ids(bench)[-1] == 11
    assert {4, 5} < set(ids(bench))
    assert len(ids(bench)) <= 5
