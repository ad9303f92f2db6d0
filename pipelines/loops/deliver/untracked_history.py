"""How far each partition reaches back beyond the oldest commit boundary that is remembered."""

from collections.abc import Mapping

from headwater.core_log.model.log import Log, TopicPartition
from headwater.pipelines.journal.commits import commits_home, decode_commits
from headwater.pipelines.journal.read_to_end import read_decided


async def prehistory_ends(
    log: Log, pipeline: str, ends: Mapping[TopicPartition, int]
) -> Mapping[TopicPartition, int]:
    """Per partition where the first remembered commit touched it; `ends` where none did.

    Below these offsets a slice may end anywhere: nobody knows any more what belonged together.
    """
    first: dict[TopicPartition, int] = {}
    async for columns in read_decided(log, commits_home(pipeline)):
        for _, commit in decode_commits(columns, pipeline):
            for partition, stretch in commit.touched.items():
                first.setdefault(partition, stretch.first)
    return {partition: first.get(partition, end) for partition, end in ends.items()}
