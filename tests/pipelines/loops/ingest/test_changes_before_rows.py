"""Changes are readable before rows that were read beside them: these take longer."""

from collections.abc import Sequence

from headwater.core_log.records import arrow_codec
from headwater.pipelines.journal.commits import commits_home, decode_commits
from headwater.pipelines.journal.internal_topics import internal_topics
from tests.memory_log import Fuse
from tests.pipelines.pipeline_in_memory import PIPELINE, Change, World

SCRIPT: list[list[Sequence[Change]]] = [
    [[("orders", "c", 1, "x")]],
    [[("orders", "u", 1, "y")]],
    [[("items", "r", number, "x") for number in range(50)]],
    [[("items", "r", number, "x") for number in range(50, 100)]],
    [[("orders", "u", 1, "z")]],
]
"""Batches that are all there at once."""


async def commits_of(world: World) -> list[set[str]]:
    """The tables of each transaction of the log."""
    for topic in internal_topics(history_ms=1_000):
        await world.log.ensure_topic(topic)
    await world.ingest(Fuse())
    return [
        {place.topic.rpartition(".")[2] for place in commit.touched}
        for entry in world.log.partitions[commits_home(PIPELINE)].entries
        if entry.data
        for _, commit in decode_commits(arrow_codec.decode(entry.data), PIPELINE)
    ]


async def test_a_transaction_with_changes_ends_before_rows_that_were_read() -> None:
    found = await commits_of(World(SCRIPT))

    assert found == [{"orders"}, {"items", "orders"}]


async def test_rows_that_were_read_share_a_transaction() -> None:
    found = await commits_of(World(SCRIPT[2:4]))

    assert found == [{"items"}]
