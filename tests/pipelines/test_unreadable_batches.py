"""A batch of a table's topic that cannot be read holds that table alone, until it is made anew."""

import re
from pathlib import Path
from typing import Any

import pytest

from headwater.core_log.model.log import TopicPartition
from headwater.core_log.records.batch_header import Batch
from headwater.pipelines.terminal import exit_codes
from tests.core_log.records.test_record_codec import other_inside
from tests.pipelines.running.owner import owning
from tests.pipelines.test_failed_tables import TABLES, make_tables, outcome_of, pipeline, run_told
from tests.pipelines.time_travel.verify.test_verify import execute
from tests.pipelines.time_travel.world import World, tell

GZIP = 1


async def spoil(world: World, topic: str) -> str:
    """As a client can that sends nonsense while the topic is not compacted. Returns the place."""
    await world.log.topics.alter(topic, set_to={"cleanup.policy": "delete"})
    batch = Batch(bytearray(other_inside(0, GZIP)), record_count=3)
    offset = await world.log.append(TopicPartition(topic, 0), batch)
    await world.log.topics.alter(topic, set_to={"cleanup.policy": "compact"})
    return f"topic={topic!r}, partition=0, offset={offset}, last_offset={offset + 2}"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sql", "spark"])
def test_a_batch_that_cannot_be_read_holds_its_table_until_that_is_made_anew(
    kind: str, tmp_path: Path, headwater: Any
) -> None:
    source, file = tmp_path / "source.db", tmp_path / "pipeline.yaml"

    async def first(world: World) -> Any:
        make_tables(source)
        await world.run()
        place = await spoil(world, "copy.a")
        execute(source, *(f"UPDATE {table} SET v = 'new' WHERE id = 2" for table in TABLES))
        await world.run("source")
        return place, await run_told(world, kind)

    place, held = tell(tmp_path, pipeline(kind), first)
    verified = headwater("verify", "copy", "--json", "-f", file)
    rows = headwater("rows", "copy/a", "2", "-f", file)
    rebuilt = headwater("rebuild", "copy/a", "-f", file)
    dropped = headwater("drop", "copy/a", "--data", "--yes", "-f", file)

    async def again(world: World) -> Any:
        await world.run()
        return await world.verified()

    verdicts = tell(tmp_path, pipeline(kind), again)

    assert list(held) == ["a"] and "compressed records are damaged" in held["a"]
    assert place in held["a"] and "headwater drop copy/a --data" in held["a"]
    assert verified.code == exit_codes.DIFFERENT
    found = outcome_of(verified)
    assert found["a", kind] == "failed"
    assert {found[table, kind] for table in "bc"} == {"equal"}
    assert rows.code != 0 and place in rows.remarks
    assert rebuilt.code != 0 and place in rebuilt.remarks
    assert dropped.code == exit_codes.OK
    assert all(each.is_equal for each in verdicts.values()), verdicts


@pytest.mark.slow
def test_tail_shows_what_stands_before_a_batch_that_it_cannot_read_and_how_to_go_on(
    tmp_path: Path, headwater: Any
) -> None:
    async def story(world: World) -> Any:
        make_tables(tmp_path / "source.db")
        await world.run()
        await spoil(world, "copy.a")
        execute(tmp_path / "source.db", "UPDATE a SET v = 'new' WHERE id = 2")
        await world.run("source")

    tell(tmp_path, pipeline(), story)
    options = ("--no-follow", "--data", tmp_path / "data")
    with owning(tmp_path / "data", has_pipelines=False):
        whole = headwater("tail", "copy.a", "--from", "earliest", *options)
        [command] = re.findall("headwater (tail copy.a .*)", whole.remarks)
        behind = headwater(*command.split(), *options)

    assert whole.code == exit_codes.DIFFERENT and '{"id": 3}' in whole.data
    assert behind.code == exit_codes.OK and '"new"' in behind.data
