"""How many partitions a topic has is chosen once, by how many rows its table has just then."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from headwater.core_log.foundation.settings import TopicSettings
from headwater.core_log.model.table_schema import TableId
from headwater.core_log.records.compression import Compression
from headwater.core_log.rows.settings import WireSettings
from headwater.pipelines.file.loader import LoadedPipeline, load
from headwater.pipelines.journal.internal_topics import internal_topics
from headwater.pipelines.journal.schemas import SchemaStore, encode_schema, schemas_home
from headwater.pipelines.loops.assembly import make_source, topic_rules, wire_of
from headwater.pipelines.loops.ingest.encoder import Encoder
from headwater.pipelines.loops.ingest.table_topics import partitions_for
from headwater.pipelines.preview.plan import Plan, plan_of
from tests.fakes import SimulatedClock
from tests.memory_log import Fuse, MemoryLog
from tests.pipelines.pipeline_in_memory import PIPELINE, Untouched, World, changes_of

SMALL, LARGE, HUGE = TableId("public", "a"), TableId("public", "b"), TableId("public", "c")
MILLION = 1_000_000
FILE = """
pipeline: shop
source: {{type: generator, mode: wide, size: {size}}}
sink: {{type: console}}
log: {{{log}}}
"""


class Estimates:
    """What a source says, and how often it was asked."""

    def __init__(self, rows: Mapping[TableId, int]) -> None:
        self.rows, self.asked = rows, 0

    async def __call__(self) -> Mapping[TableId, int]:
        self.asked += 1
        return self.rows


async def world() -> World:
    made = World([])
    made.log.fuse = Fuse()
    for topic in internal_topics(history_ms=1_000):
        await made.log.ensure_topic(topic)
    return made


async def write(made: World, estimates: Estimates, *tables: TableId) -> None:
    """A row of each table, by a run of its own."""
    encoder = Encoder(
        made.log,
        topics=replace(made.rules, partitions=None),
        wire=WireSettings(),
        before_log=Untouched(),
        compression=Compression.NONE,
        row_estimates=estimates,
    )
    for table in tables:
        changes = changes_of(table.name, [(table.name, "c", 1, "x")], commit=1)
        async for portions in encoder.encode(changes, now_ms=0):
            for portion in portions:
                await made.log.append(portion.partition, portion.batch)


async def counts(made: World) -> dict[str, int]:
    prefix = f"{PIPELINE}.public."
    topics = [name for name in made.log.topics if name.startswith(prefix)]
    return {each.removeprefix(prefix): await made.log.partition_count(each) for each in topics}


@pytest.mark.parametrize(
    ("rows", "count"),
    [(None, 1), (0, 1), (10 * MILLION, 1), (10 * MILLION + 1, 2), (80 * MILLION, 8), (1 << 60, 8)],
)
def test_a_topic_has_one_partition_for_each_ten_million_rows_and_at_most_eight(
    rows: int | None, count: int
) -> None:
    assert partitions_for(rows) == count


async def test_each_table_gets_what_it_needs_and_the_source_is_asked_once() -> None:
    made, estimates = await world(), Estimates({LARGE: 25 * MILLION, HUGE: 900 * MILLION})

    await write(made, estimates, LARGE, SMALL, HUGE)

    assert await counts(made) == {"a": 1, "b": 3, "c": 8}
    assert estimates.asked == 2  # and again for the table that it did not name


async def test_a_topic_keeps_its_partitions_however_its_table_grows() -> None:
    made = await world()
    await write(made, Estimates({LARGE: 15 * MILLION}), LARGE)
    grown = Estimates({LARGE: 500 * MILLION})

    await write(made, grown, LARGE)

    assert await counts(made) == {"b": 2}
    assert not grown.asked, "what exists needs no estimate"


async def test_a_topic_that_a_run_made_and_did_not_write_to_is_taken_as_it_is() -> None:
    made = await world()
    await made.log.ensure_topic(TopicSettings(name=f"{PIPELINE}.public.b", partitions=3))

    await write(made, Estimates({LARGE: 45 * MILLION}), LARGE)

    assert await counts(made) == {"b": 3}


def loaded_with(directory: Path, *, size: int, log: str = "") -> LoadedPipeline:
    path = directory / "pipeline.yaml"
    path.write_text(FILE.format(size=size, log=log))
    [loaded] = load(path, environment={})
    return loaded


async def planned(loaded: LoadedPipeline, log: MemoryLog | None = None) -> Plan:
    return await plan_of(loaded, log, clock=SimulatedClock())


async def test_the_plan_says_how_many_a_new_topic_gets_and_why(tmp_path: Path) -> None:
    large = await planned(loaded_with(tmp_path, size=25 * MILLION))
    small = await planned(loaded_with(tmp_path, size=10_000))
    told = await planned(loaded_with(tmp_path, size=25 * MILLION, log="partitions: 2"))

    assert [each.topics[0].partitions for each in (large, small, told)] == [3, 1, 2]
    assert "about 25,000,000 rows: its topic gets 3 partitions" in large.remarks[0]
    assert not small.remarks and not told.remarks


async def test_a_topic_that_is_there_is_planned_as_it_is_and_only_a_number_asks_for_another(
    tmp_path: Path,
) -> None:
    made = await world()
    loaded = loaded_with(tmp_path, size=25 * MILLION)
    await made_before(made.log, loaded, partitions=4)

    left_alone = await planned(loaded, made.log)
    asked = await planned(loaded_with(tmp_path, size=25 * MILLION, log="partitions: 2"), made.log)

    assert left_alone.topics[0].partitions == 4
    assert not left_alone.differences and not left_alone.remarks
    assert [(each.what, each.found, each.wanted) for each in asked.differences] == [
        ("partitions", "4", "2")
    ]


async def made_before(log: MemoryLog, loaded: LoadedPipeline, *, partitions: int) -> None:
    """The topic of the only table, with its schema, as an earlier run left it."""
    [schema] = await make_source(loaded, clock=SimulatedClock()).discover()
    topic = topic_rules(loaded).name_of(schema.table)
    await log.ensure_topic(TopicSettings(name=topic, partitions=partitions))
    stored, _ = await SchemaStore(log, loaded.name).current(
        topic, schema, wire_of(loaded), positions=dict, now_ms=0
    )
    await log.append(schemas_home(topic), encode_schema(stored))
