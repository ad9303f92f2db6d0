"""Reads a partition as far as it was written when asked, transactions still open included."""

from collections.abc import AsyncIterator

from headwater.core_log.foundation.errors import PositionLost
from headwater.core_log.model.log import FetchLimit, Isolation, Log, TopicPartition
from headwater.core_log.records import arrow_codec
from headwater.core_log.records.record_views import RecordColumns
from headwater.pipelines.journal.internal_topics import PARTITIONS

LIMIT = FetchLimit()


async def read_decided(
    log: Log, partition: TopicPartition, *, from_offset: int = 0, end: int | None = None
) -> AsyncIterator[RecordColumns]:
    """Committed records only, but waits for what is open now to be decided. Ends at the batch that
    reaches `end`, where one is given: who has a transaction open there would wait for himself.

    Stopping at the last stable offset instead would hide our own committed records behind somebody
    else's open transaction. Records that age out meanwhile are passed over, as if they had
    before."""
    bounds = (await log.bounds([partition]))[partition]
    offset = max(from_offset, bounds.start)
    end = bounds.end if end is None else min(end, bounds.end)
    while offset < end:
        try:
            parts = await log.fetch({partition: offset}, limit=LIMIT, isolation=Isolation.COMMITTED)
        except PositionLost:
            start = (await log.bounds([partition]))[partition].start
            if start <= offset:
                raise
            offset = start
            continue
        for part in parts:
            columns = arrow_codec.decode(part.data, from_offset=offset, partition=partition)
            offset = part.next_offset
            yield columns


async def filled_partitions(log: Log, topic: str) -> list[TopicPartition]:
    """Those of one of our own topics that hold anything, in their order, by one question."""
    bounds = await log.bounds([TopicPartition(topic, each) for each in range(PARTITIONS)])
    return sorted(each for each, found in bounds.items() if found.end > found.start)
