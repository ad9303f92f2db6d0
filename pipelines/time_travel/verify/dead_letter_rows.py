"""Rows that a target lacks because their records are its dead letters."""

from collections.abc import Mapping, Set
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.foundation.errors import LogRejected
from headwater.core_log.model.log import Log, TopicPartition
from headwater.core_log.rows.codec import TRUNCATE_KEY
from headwater.pipelines.dead_letters.dead_letter import read_dead_letters
from headwater.pipelines.journal.internal_topics import read_decided
from headwater.pipelines.loops.deliver.slice_reader import RecordOffset
from headwater.pipelines.time_travel.history.cut_points import Ends
from headwater.pipelines.time_travel.verify.keyed_diff import ComparisonResult, DifferenceKind
from headwater.pipelines.time_travel.verify.table_selection import ComparedTable

NOT_WRITTEN = (DifferenceKind.MISSING, DifferenceKind.CHANGED)


async def dead_letters_of(
    log: Log, pipeline: str, task: str, subject: ComparedTable
) -> set[RecordOffset]:
    """Returns open dead letters of this sink for a table."""
    try:
        stored = await read_dead_letters(log, pipeline)
    except LogRejected:
        return set()  # no pipeline with dead letters has run
    dead_letters = [each.dead_letter for each in stored]
    mine = [each for each in dead_letters if each.task == task and each.topic in subject.topics]
    ids = {topic: await log.topic_id(topic) for topic in {each.topic for each in mine}}
    return {
        (TopicPartition(each.topic, each.partition), each.offset)
        for each in mine
        if ids[each.topic] == each.topic_id
    }


def without_dead(
    compared: ComparisonResult, dead_letters: Set[RecordOffset]
) -> tuple[ComparisonResult, list[RecordOffset]]:
    """Returns the state without keys whose newest record is a dead letter, and these records. A row
    that exists after all, for example after a rebuild, is compared."""
    dead = {
        digest: each
        for digest, each in compared.keys.items()
        if each.kind in NOT_WRITTEN and each.place in dead_letters
    }
    counts = {
        kind: count - sum(each.kind is kind for each in dead.values())
        for kind, count in compared.counts.items()
    }
    keys = {digest: each for digest, each in compared.keys.items() if digest not in dead}
    places = sorted(each.place for each in dead.values() if each.place is not None)
    return replace(compared, counts=counts, keys=keys), places


async def still_unread(
    log: Log, skipped: Mapping[TopicPartition, Set[int]], ends: Ends
) -> list[RecordOffset]:
    """Returns those below `ends` that no later record of the key, nor a truncate, has replaced."""
    found: list[RecordOffset] = []
    for partition, offsets in sorted(skipped.items()):
        below = sorted(offset for offset in offsets if offset < ends.get(partition, 0))
        if below:
            newest = await _newest(log, partition, below, end=ends[partition])
            found += [(partition, offset) for offset in newest]
    return found


async def _newest(
    log: Log, partition: TopicPartition, offsets: list[int], *, end: int
) -> list[int]:
    unread: dict[bytes | int, int] = {}
    async for columns in read_decided(log, partition, from_offset=offsets[0]):
        is_unread = np.isin(columns.offsets, offsets)
        keys = columns.keys.filter(pa.array(is_unread)).drop_null().to_pylist()
        known = [each for each in unread if isinstance(each, bytes)]
        wanted = pa.array([*keys, *known, TRUNCATE_KEY], pa.binary())
        rows = np.flatnonzero(is_unread | np.asarray(pc.is_in(columns.keys, value_set=wanted)))
        chosen = columns.keys.take(pa.array(rows)).to_pylist()
        for row, key in zip(rows.tolist(), chosen, strict=True):
            offset = int(columns.offsets[row])
            if offset >= end:
                break
            if key == TRUNCATE_KEY:
                unread.clear()
            elif is_unread[row]:
                unread[offset if key is None else key] = offset
            else:
                unread.pop(key, None)
        if len(columns.offsets) and columns.offsets[-1] >= end:
            break
    return sorted(unread.values())
