"""What is asked for in words becomes stretches of the log, whoever wrote them."""

import asyncio
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from time import sleep, time
from typing import Any

import pyarrow as pa
import pytest

from headwater.core_log.foundation.errors import ConfigError, PositionLost
from headwater.pipelines.spark_source import read_plan
from headwater.pipelines.spark_source.options import read_options
from tests.served_log import ServedLog, served_log
from tests.slices import changes_of, schema_of

SCHEMA = schema_of(id=pa.int64())
NOON_US = 1_700_000_000_000_000 // 3_600_000_000 * 3_600_000_000
HOUR_US = 3_600_000_000


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedLog]:
    """Three transactions, an hour apart, of one pipeline, and as many of another. Each ends with
    its marker."""
    with served_log(tmp_path_factory.mktemp("log")) as served:
        for pipeline, rows in (("shop", 2), ("farm", 5)):
            for number in range(3):  # one by one, so that each is a transaction of the log too
                changes = changes_of(
                    SCHEMA,
                    *[("c", {"id": rows * number + key}) for key in range(rows)],
                    committed_us=NOON_US + number * HOUR_US,
                )
                served.write([replace(changes, commits=str(number))], pipeline=pipeline)
        yield served


def stretches(served: ServedLog, **options: str) -> dict[str, tuple[int, int]]:
    given = {"bootstrap": ",".join(served.log.bootstrap), "topic": "shop.public.orders"}
    parts = asyncio.run(read_plan.batch(read_options(given | options)))
    splits = [part.split for part in parts]
    return {each.partition.topic: (each.start, each.end) for each in splits}


@pytest.mark.slow
def test_a_batch_lies_between_two_positions_of_the_source(served: ServedLog) -> None:
    whole = stretches(served)
    first = stretches(served, end="stream=1")
    second = stretches(served, start="stream=1", asOf="stream=2")
    rest = stretches(served, start="stream=2")

    assert first == stretches(served, asOf="stream=1") == {"shop.public.orders": (0, 3)}
    assert second == {"shop.public.orders": (3, 6)}
    assert rest == {"shop.public.orders": (6, whole["shop.public.orders"][1])}
    assert stretches(served, start="stream=0") == whole
    with pytest.raises(ConfigError, match="has not reached this source position"):
        stretches(served, start="stream=99")


@pytest.mark.parametrize(
    ("given", "is_state"),
    [
        ({"end": "stream=1"}, True),
        ({"asOf": "stream=1"}, True),
        ({"asOf": "3"}, True),
        ({"end": "3"}, False),
        ({"end": "10m"}, False),
        ({}, False),
    ],
)
def test_compaction_may_not_pass_the_position_at_which_a_batch_ends(
    served: ServedLog, given: dict[str, str], is_state: bool
) -> None:
    options = {"bootstrap": ",".join(served.log.bootstrap), "topic": "shop.public.orders"}

    parts = asyncio.run(read_plan.batch(read_options(options | given)))

    assert {part.is_state for part in parts} <= {is_state}


@pytest.mark.slow
def test_a_batch_that_ends_before_it_begins_is_refused(served: ServedLog) -> None:
    assert stretches(served, start="stream=2", end="stream=2") == {}
    with pytest.raises(ConfigError, match="end of the range is before its beginning"):
        stretches(served, start="stream=2", end="stream=1")


def test_topics_of_several_pipelines_end_at_one_moment(served: ServedLog) -> None:
    both = "shop.public.orders,farm.public.orders"

    found = stretches(served, topic=both, columns="raw", asOf="2023-11-14T22:30")

    assert found == {"shop.public.orders": (0, 3), "farm.public.orders": (0, 6)}
    with pytest.raises(ConfigError, match="of one topic"):
        stretches(served, topic=both, columns="raw", asOf="0:1")


def test_a_topic_that_no_pipeline_writes_is_of_no_moment(served: ServedLog) -> None:
    with pytest.raises(ConfigError, match="no source time"):
        stretches(served, topic="__headwater_commits", columns="raw", asOf="2023-11-14T22:30")


def test_the_logs_own_topics_are_read_raw(served: ServedLog) -> None:
    found = stretches(served, topic="__headwater_commits", columns="raw")

    assert found.keys() == {"__headwater_commits"}


@pytest.mark.parametrize(
    ("lost", "said"),
    [
        ({"is_state": True, "end": -1}, "compaction has passed that point in time"),
        ({"start": -1, "deletes_dropped_to": -1}, "removed deletes before"),
    ],
)
def test_records_lost_while_a_query_reads_end_the_query(
    served: ServedLog, lost: dict[str, Any], said: str
) -> None:
    """As if compaction, which has come to offset zero, had gone on since the parts were planned."""
    options = read_options(
        {"bootstrap": ",".join(served.log.bootstrap), "topic": "shop.public.orders"}
    )
    [part] = asyncio.run(read_plan.batch(options))

    asyncio.run(read_plan.check_was_whole(options, part))
    with pytest.raises(PositionLost, match=said):
        asyncio.run(read_plan.check_was_whole(options, replace(part, **lost)))


@pytest.mark.slow
def test_a_query_notices_a_log_that_was_restored_from_an_older_copy(tmp_path: Path) -> None:
    """Though the log has grown past the offsets of the query's checkpoint."""

    def write(data: str, count: int) -> tuple[dict[str, Any], Any]:
        with served_log(tmp_path / data) as served:
            for key in range(count):
                served.write([changes_of(SCHEMA, ("c", {"id": key}))])
            given = {"bootstrap": ",".join(served.log.bootstrap), "topic": "shop.public.orders"}
            options = read_options(given)
            newest = asyncio.run(read_plan.newest_offsets(options))
            if not checkpoint:
                return newest, None
            try:
                return newest, asyncio.run(read_plan.plan_between(options, checkpoint, newest))
            except PositionLost as error:
                return newest, error

    checkpoint: dict[str, Any] = {}
    write("log", 2)
    shutil.copytree(tmp_path / "log", tmp_path / "copy")
    checkpoint, _ = write("log", 2)
    _, goes_on = write("log", 1)
    begun_s = int(time())
    while int(time()) == begun_s:  # leader epochs are seconds
        sleep(0.01)

    _, refused = write("copy", 5)

    assert len(goes_on) == 1
    assert isinstance(refused, PositionLost) and "older than what the query has read" in str(
        refused
    )
