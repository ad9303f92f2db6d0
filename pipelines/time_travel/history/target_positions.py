"""Offsets at which targets stand, as positions and times of the source."""

from collections.abc import Mapping
from dataclasses import dataclass

from headwater.core_log.model.changes import Positions
from headwater.core_log.model.log import Log, TopicPartition
from headwater.pipelines.time_travel.history.commit_index import CommitIndex

LOOKED_AT = 20_000
"""Of so many of the newest commits it is known where they end; older ones are not looked for."""


@dataclass(frozen=True, slots=True)
class ReportedOffsets:
    """What of the source a partition has below an offset."""

    committed_ms: int
    positions: Positions


async def told_below(
    log: Log, pipeline: str, offsets: Mapping[TopicPartition, int]
) -> Mapping[TopicPartition, ReportedOffsets]:
    """For each partition, in the order of the commits, the last one that is wholly below the
    offset; nothing where the log remembers none."""
    found: dict[TopicPartition, ReportedOffsets] = {}
    positions: dict[str, str] = {}
    async for commit in CommitIndex(log, pipeline).newest(LOOKED_AT):
        positions |= commit.positions
        for partition, stretch in commit.touched.items():
            if partition in offsets and stretch.end <= offsets[partition]:
                found.pop(partition, None)
                found[partition] = ReportedOffsets(commit.committed_ms, dict(positions))
    return found
