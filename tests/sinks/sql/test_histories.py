"""However a history is sliced, a table of a database ends in the same rows, our columns too."""

from random import Random

import pytest

from tests.sinks.histories import KEPT, Truth, append_chance, check_versions, settings_of, shown
from tests.sinks.sql.databases import SqlBench
from tests.slices import ScriptedTopic


@pytest.mark.parametrize("chunk_rows", [7, 50_000])
@pytest.mark.parametrize("kept", KEPT)
async def test_a_history_ends_in_the_same_rows_however_it_is_sliced(
    bench: SqlBench, kept: str, chunk_rows: int
) -> None:
    chance = Random(f"{kept} {chunk_rows}")
    topic, truth = ScriptedTopic(), Truth(kept)
    sink = bench.sink(chunk_rows=chunk_rows, **settings_of(kept))
    await sink.committed_offsets([topic.name])

    for at in range(25):
        append_chance(topic, truth, chance, at=at)
        if chance.random() < 0.2:
            await sink.apply(topic.slice())
    await sink.apply(topic.slice())
    await sink.close()

    assert shown(kept, bench.all_rows("orders")) == truth.rows()


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.3, 1])
async def test_versions_follow_each_other_whatever_the_clock_of_the_source_does(
    bench: SqlBench, share: float
) -> None:
    chance = Random(f"clock {share}")
    topic, truth = ScriptedTopic(), Truth("scd2")
    sink = bench.sink(chunk_rows=7, **settings_of("scd2"))
    await sink.committed_offsets([topic.name])

    for at in range(60):
        append_chance(topic, truth, chance, at=at, is_clock_wrong=True)
        if chance.random() < share:
            await sink.apply(topic.slice())
    await sink.apply(topic.slice())
    await sink.close()

    check_versions(shown("scd2", bench.all_rows("orders")), truth)
