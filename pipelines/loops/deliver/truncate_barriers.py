"""Where a table was truncated, for topics whose partitions must agree about it."""

from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.model.log import Log, TopicPartition
from headwater.core_log.records import arrow_codec
from headwater.core_log.records.record_headers import header_column
from headwater.core_log.rows.codec import OPERATION_HEADER, TRUNCATE_KEY
from headwater.pipelines.loops.deliver.byte_search import batches_with

KEY = pa.scalar(TRUNCATE_KEY, pa.binary())

Barrier = Mapping[TopicPartition, int]
"""One truncate: the offset of its marker in every partition."""


@dataclass(frozen=True, slots=True)
class TruncateRange:
    """A stretch of one partition."""

    start: int
    end: int


async def find_barriers(
    log: Log, ranges: Mapping[TopicPartition, TruncateRange]
) -> Sequence[Barrier]:
    """The truncates in the partitions of one topic, oldest first.

    A truncate stands in every partition. Were they read one after the other and each of its markers
    obeyed, the second would empty the table of rows that came after the first.

    Compaction can have taken older markers from some of the partitions, never the newest: so they
    are matched from the end. What cannot be matched is followed by one that can.
    """
    markers = {partition: await _markers(log, partition, ranges[partition]) for partition in ranges}
    count = min(len(found) for found in markers.values())
    return [
        {partition: found[len(found) - count + number] for partition, found in markers.items()}
        for number in range(count)
    ]


async def _markers(log: Log, partition: TopicPartition, stretch: TruncateRange) -> list[int]:
    found = list[int]()
    searched = batches_with(log, partition, [TRUNCATE_KEY], start=stretch.start, end=stretch.end)
    async with aclosing(searched) as batches:
        async for batch in batches:
            columns = arrow_codec.decode(batch, from_offset=stretch.start, partition=partition)
            places = np.flatnonzero(np.asarray(pc.equal(columns.keys, KEY).fill_null(False)))
            for place in places.tolist():
                at = int(columns.offsets[place])
                operation = header_column(columns.headers[place : place + 1], OPERATION_HEADER)
                if at < stretch.end and operation[0].as_py() == b"truncate":
                    found.append(at)
    return found
