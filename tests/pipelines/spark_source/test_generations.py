"""A query that names a topic reads its table, whichever topic the table's changes go to by now."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.core_log.foundation.clock import SystemClock
from headwater.core_log.foundation.errors import PositionLost
from headwater.core_log.foundation.settings import TopicSettings
from headwater.core_log.records.compression import Compression
from headwater.core_log.rows.settings import WireSettings
from headwater.pipelines.journal.commits import load_positions
from headwater.pipelines.journal.generations import Generations
from headwater.pipelines.loops.migration.migrate import MigrationRules, TopicMove, migrate
from headwater.pipelines.spark_source import read_plan
from headwater.pipelines.spark_source.options import ReadOptions, read_options
from headwater.pipelines.spark_source.source import raw_batches
from headwater.pipelines.spark_source.typed import typed_batches
from tests.pipelines.loops.migration.migrations import Nothing
from tests.pipelines.pipeline_in_memory import PIPELINE
from tests.served_log import ServedLog, served_log
from tests.slices import changes_of, schema_of

pytestmark = pytest.mark.slow

TOPIC = "shop.public.orders"
SCHEMA = schema_of(id=pa.int64(), note=pa.string())


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServedLog]:
    with served_log(tmp_path) as served:
        yield served


def write(served: ServedLog, *keys: int, partitions: int = 1) -> None:
    changes = changes_of(SCHEMA, *[("c", {"id": key, "note": "é"}) for key in keys])
    served.write([changes], partitions=partitions)


def next_generation(served: ServedLog, *, partitions: int) -> None:
    async def work() -> None:
        generations = Generations.of(await load_positions(served.log, PIPELINE))
        config = {"cleanup.policy": "compact"}
        settings = TopicSettings(name="next", partitions=partitions, config=config)
        move = TopicMove(TOPIC, generations.present(TOPIC), settings, SCHEMA)
        rules = MigrationRules(WireSettings(), Nothing(), Compression.ZSTD)
        clock = SystemClock()
        await migrate(PIPELINE, served.log, [move], rules, clock=clock, report=lambda _: None)

    served.run(work)


def options_of(served: ServedLog, **given: str) -> ReadOptions:
    return read_options({"bootstrap": ",".join(served.log.bootstrap), "topic": TOPIC, **given})


def newest(options: ReadOptions) -> dict[str, Any]:
    return asyncio.run(read_plan.newest_offsets(options))


def read(options: ReadOptions, parts: list[read_plan.ReadSplit]) -> list[tuple[str, int]]:
    """The topic and the key of every change."""
    schema = asyncio.run(read_plan.columns(options))
    return sorted(
        (row["topic"].removeprefix(TOPIC), row["after"]["id"])
        for part in parts
        for batch in typed_batches(options, schema, part.split)
        for row in batch.to_pylist()
    )


def between(options: ReadOptions, start: Any, end: Any) -> list[tuple[str, int]]:
    return read(options, asyncio.run(read_plan.plan_between(options, start, end)))


@pytest.mark.parametrize("named", [TOPIC, f"{TOPIC}.g2"])
def test_a_batch_is_read_from_the_topic_that_the_table_has_now(
    served: ServedLog, named: str
) -> None:
    write(served, 1, 2)
    next_generation(served, partitions=2)
    write(served, 3, partitions=2)
    options = options_of(served, topic=named)

    found = read(options, asyncio.run(read_plan.batch(options)))

    assert found == [(".g2", 1), (".g2", 2), (".g2", 3)]


def test_a_raw_read_is_of_the_very_topic_that_was_named(served: ServedLog) -> None:
    write(served, 1, 2)
    next_generation(served, partitions=2)
    write(served, 3, partitions=2)
    options = options_of(served, columns="raw")

    parts = asyncio.run(read_plan.batch(options))

    batches = [batch for part in parts for batch in raw_batches(options, part.split)]
    keys = [key for batch in batches for key in batch[0]]
    assert [key.as_py() for key in keys] == [b'{"id":1}', b'{"id":2}']


def test_a_stream_ends_the_former_topic_and_goes_on_behind_what_was_filled_in(
    served: ServedLog,
) -> None:
    write(served, 1, 2)
    options = options_of(served)
    begun, first = asyncio.run(read_plan.first_offsets(options)), newest(options)
    write(served, 3)
    next_generation(served, partitions=2)
    write(served, 4, 5, partitions=2)
    second = newest(options)
    write(served, 6, partitions=2)

    assert between(options, begun, first) == [("", 1), ("", 2)]
    assert between(options, first, second) == [("", 3), (".g2", 4), (".g2", 5)]
    assert between(options, second, newest(options)) == [(".g2", 6)]


def test_a_stream_that_slept_over_two_of_them_has_every_change_once(served: ServedLog) -> None:
    write(served, 1)
    options = options_of(served)
    first = newest(options)
    write(served, 2)
    next_generation(served, partitions=2)
    write(served, 3, partitions=2)
    next_generation(served, partitions=3)
    write(served, 4, partitions=3)

    found = between(options, first, newest(options))

    assert found == [("", 2), (".g2", 3), (".g3", 4)]


def test_a_stream_begins_with_all_that_the_present_topic_holds(served: ServedLog) -> None:
    write(served, 1)
    next_generation(served, partitions=1)
    write(served, 2)
    options = options_of(served)

    found = between(options, asyncio.run(read_plan.first_offsets(options)), newest(options))

    assert found == [(".g2", 1), (".g2", 2)]


@pytest.mark.parametrize("is_finished", [True, False])
def test_a_former_topic_may_go_once_the_stream_is_through_with_it(
    served: ServedLog, is_finished: bool
) -> None:
    write(served, 1)
    options = options_of(served)
    offsets = newest(options)
    if not is_finished:
        write(served, 2)
    next_generation(served, partitions=1)
    write(served, 3)
    served.run(lambda: served.log.topics.delete(TOPIC))

    if is_finished:
        assert between(options, offsets, newest(options)) == [(".g2", 3)]
    else:
        with pytest.raises(PositionLost, match="dropped before the query reached its end"):
            between(options, offsets, newest(options))
