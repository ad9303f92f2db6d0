"""A copy that is put in place as of a moment gets everything that has happened since."""

from dataclasses import replace
from pathlib import Path

import pytest

from headwater.core_log.model.log import TopicPartition
from headwater.sinks.sink import AppliedOffset, RebuildRecipe
from tests.contract.sink_suite import ORDERS
from tests.sinks.spark.orders import TABLE, bench_of, many
from tests.slices import ScriptedTopic


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
async def test_a_table_put_back_to_a_moment_gets_all_that_has_happened_since(
    kind: str, tmp_path: Path
) -> None:
    bench, topic = bench_of(tmp_path, format=kind), ScriptedTopic()
    topic.append(ORDERS, *many(0, 3))
    early = topic.slice()
    sink = bench.sink()
    await sink.committed_offsets([topic.name])
    await sink.apply(early)
    topic.append(ORDERS, *many(3, 3))
    await sink.apply(topic.slice())
    # A range in which a filter leaves nothing of the table: only the state log hears of it.
    topic.append(ORDERS, *many(100, 1))
    nothing = topic.slice()
    offset = topic.slice().end[TopicPartition(topic.name, 0)].next_offset
    await sink.apply(replace(nothing, read=topic._part({0: offset}, {0: 0}, ()).read))

    # rebuild --as-of (the end of the first slice) --swap, as a rebuild does it
    other = bench.sink()
    shadow = await other.shadow(RebuildRecipe(TABLE))
    await shadow.committed_offsets([topic.name])
    await shadow.apply(topic._part({0: 0}, {0: 4}, ()))
    await other.swap(TABLE)

    # resume: the sink begins anew where its target says that it stands
    again = bench.sink()
    offsets = await again.committed_offsets([topic.name])
    assert offsets == {TopicPartition(topic.name, 0): AppliedOffset(topic.topic_id, 4)}
