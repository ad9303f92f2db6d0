"""What is put back by a redrive is no commit of the source, and tells of its topic as all else."""

import pytest

from headwater.core_log.foundation.errors import PositionLost
from headwater.pipelines.dead_letters.dead_letter import (
    append_dead_letters,
    dead_letter_topic,
    read_dead_letters,
)
from headwater.pipelines.dead_letters.redrive import RedriveResult, redrive
from headwater.pipelines.journal.internal_topics import internal_topics
from headwater.pipelines.time_travel.history.as_of import parse_as_of
from tests.memory_log import Fuse
from tests.pipelines.dead_letters.test_redrive import letters_at
from tests.pipelines.pipeline_in_memory import PIPELINE, World
from tests.pipelines.time_travel.history.test_cut_points import NOW_MS, TABLE, at, differing

SCRIPT = [[[(TABLE, "c", number, f"{number}")]] for number in range(6)]


async def test_a_moment_after_a_redrive_counts_the_sources_commits_only() -> None:
    world = World(SCRIPT[:3])
    await world.log.ensure_topic(dead_letter_topic(PIPELINE))
    world.log.fuse = Fuse()
    for topic in internal_topics(history_ms=1_000):
        await world.log.ensure_topic(topic)
    await world.ingest(Fuse())
    await append_dead_letters(world.log, PIPELINE, await letters_at(world, {0}), now_ms=1)
    dead_letters = await read_dead_letters(world.log, PIPELINE)
    # The source lags: by the clock it is 5.8 s, and what was committed since 3 s is still to come.
    fates = [each.fate for each in await redrive(world.log, PIPELINE, dead_letters, now_ms=5_800)]
    assert fates == [RedriveResult.REDRIVEN]
    world.script = SCRIPT
    await world.ingest(Fuse())

    cut_points = [
        await at(world, parse_as_of(f"1970-01-01T00:00:0{n}.500", now_ms=NOW_MS))
        for n in range(2, 6)
    ]

    assert (
        await differing(world, [(m, SCRIPT[: n + 1]) for n, m in enumerate(cut_points, 2)])
        == [0] * 4
    )


@pytest.mark.parametrize("is_redriven", [False, True])
async def test_a_moment_before_a_redrive_is_not_told_by_the_topic_made_since(
    is_redriven: bool,
) -> None:
    world = World(SCRIPT[:2])
    await world.log.ensure_topic(dead_letter_topic(PIPELINE))
    world.log.fuse = Fuse()
    for topic in internal_topics(history_ms=1_000):
        await world.log.ensure_topic(topic)
    await world.ingest(Fuse())
    if is_redriven:
        await append_dead_letters(world.log, PIPELINE, await letters_at(world, {0}), now_ms=1)
        dead_letters = await read_dead_letters(world.log, PIPELINE)
        await redrive(world.log, PIPELINE, dead_letters, now_ms=1_500)
    settings, _ = world.log.topics["shop.public.orders"]
    world.log.delete_topic("shop.public.orders")
    await world.log.ensure_topic(settings)
    world.script = SCRIPT
    await world.ingest(Fuse())

    with pytest.raises(PositionLost) as lost:
        await at(world, parse_as_of("1970-01-01T00:00:01.200", now_ms=NOW_MS))

    assert "recreated" in lost.value.problem
