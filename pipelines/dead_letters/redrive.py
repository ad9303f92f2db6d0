"""Puts dead letters back into their topics, but never an old value over a newer row."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.foundation.errors import LogUnavailable
from headwater.core_log.model.log import (
    FetchLimit,
    Isolation,
    Log,
    TopicPartition,
    Transaction,
    Writer,
)
from headwater.core_log.records import arrow_codec
from headwater.core_log.records.batch_header import Batch
from headwater.core_log.records.compression import Compression
from headwater.core_log.records.record_codec import Header, PlainRecord, encode_batch
from headwater.core_log.records.record_views import RecordColumns
from headwater.core_log.rows.codec import TRUNCATE_KEY
from headwater.pipelines.dead_letters.dead_letter import (
    DeadLetter,
    StoredDeadLetter,
    dead_letter_home,
    encode_removals,
)
from headwater.pipelines.journal.commits import (
    NO_TIME,
    Commit,
    OffsetRange,
    commits_home,
    encode_commit,
    load_positions,
)
from headwater.pipelines.journal.generations import Generations
from headwater.pipelines.journal.internal_topics import read_decided

REDRIVEN_HEADER = "headwater.redriven"
"""The offset at which the record stood first."""
BATCH_BYTES_MAX = 1 << 20
"""Keys and values of one batch; a single record may be larger."""
ATTEMPTS_MAX = 5
"""The source may append to the same keys while we look; then we look again."""


class RedriveResult(Enum):
    REDRIVEN = "redriven"
    OVERTAKEN = "left: a newer record of its key exists"
    FORMER = (
        "left: its topic is a former generation: headwater rebuild PIPELINE/TABLE --swap brings it"
    )
    ANEW = "left: its topic was deleted and recreated, so rows of the new one are newer"
    NO_RECORD = "left: it never was a record, so only its source can bring it again"


@dataclass(frozen=True, slots=True)
class Redriven:
    stored: StoredDeadLetter
    fate: RedriveResult


async def redrive(
    log: Log, pipeline: str, dead_letters: Sequence[StoredDeadLetter], *, now_ms: int
) -> list[Redriven]:
    """Appends each record again, removes its dead letter, and marks the commit boundary that lets
    sinks see it, in one transaction per batch of a partition."""
    fates, by_partition = await _sort(log, pipeline, dead_letters)
    # A name of its own: the source's writer must not be fenced.
    writer = await log.writer(f"headwater.{pipeline}.dlq") if by_partition else None
    for partition, group in by_partition.items():
        assert writer is not None, "there is a writer where there is something to write"
        back = await _redrive_partition(log, writer, pipeline, partition, group, now_ms=now_ms)
        for each in group:
            fates[each.number] = (
                RedriveResult.REDRIVEN if each.number in back else RedriveResult.OVERTAKEN
            )
    return [Redriven(each, fates[each.number]) for each in dead_letters]


async def foretell(
    log: Log, pipeline: str, dead_letters: Sequence[StoredDeadLetter]
) -> list[Redriven]:
    """Returns the effect that `redrive` would have on each now."""
    fates, by_partition = await _sort(log, pipeline, dead_letters)
    for partition, group in by_partition.items():
        seen = await _find_newest(log, partition, [each.dead_letter for each in group])
        for each in group:
            is_late = seen.overtakes(each.dead_letter)
            fates[each.number] = RedriveResult.OVERTAKEN if is_late else RedriveResult.REDRIVEN
    return [Redriven(each, fates[each.number]) for each in dead_letters]


async def _sort(
    log: Log, pipeline: str, dead_letters: Sequence[StoredDeadLetter]
) -> tuple[dict[int, RedriveResult], dict[TopicPartition, list[StoredDeadLetter]]]:
    """The fates of those that stay whatever else is in the log, and all others by partition."""
    fates = {each.number: RedriveResult.NO_RECORD for each in dead_letters}
    former = Generations.of(await load_positions(log, pipeline)).former if dead_letters else {}
    topics = {each.dead_letter.topic for each in dead_letters if each.dead_letter.topic_id}
    ids = {topic: await log.topic_id(topic) for topic in topics - former.keys()}
    by_partition: dict[TopicPartition, list[StoredDeadLetter]] = {}
    for each in dead_letters:
        if each.dead_letter.topic in former:
            # sinks that have crossed over read nothing there
            fates[each.number] = RedriveResult.FORMER
        elif each.dead_letter.topic_id and each.dead_letter.topic_id != ids[each.dead_letter.topic]:
            fates[each.number] = RedriveResult.ANEW
        elif each.dead_letter.is_record:
            place = TopicPartition(each.dead_letter.topic, each.dead_letter.partition)
            by_partition.setdefault(place, []).append(each)
    return fates, by_partition


class _Overtaken(Exception):
    """Somebody appended a newer record of one of the keys before ours."""


async def _redrive_partition(
    log: Log,
    writer: Writer,
    pipeline: str,
    partition: TopicPartition,
    group: Sequence[StoredDeadLetter],
    *,
    now_ms: int,
) -> set[int]:
    """The numbers of the dead letters that went back."""
    group = sorted(group, key=lambda each: each.dead_letter.offset)
    seen = await _find_newest(log, partition, [each.dead_letter for each in group])
    back = set[int]()
    for batch in _batches_of(group):
        back |= await _redrive_batch(log, writer, pipeline, partition, batch, seen, now_ms=now_ms)
    return back


def _batches_of(group: Sequence[StoredDeadLetter]) -> Iterator[list[StoredDeadLetter]]:
    """Together they may be larger than any batch."""
    batch: list[StoredDeadLetter] = []
    size = 0
    for each in group:
        length = len(each.dead_letter.key or b"") + len(each.dead_letter.value or b"")
        if batch and size + length > BATCH_BYTES_MAX:
            yield batch
            batch, size = [], 0
        batch.append(each)
        size += length
    if batch:
        yield batch


async def _redrive_batch(
    log: Log,
    writer: Writer,
    pipeline: str,
    partition: TopicPartition,
    wanted: Sequence[StoredDeadLetter],
    seen: "NewestRecords",
    *,
    now_ms: int,
) -> set[int]:
    for attempt in range(ATTEMPTS_MAX):
        if attempt:
            seen = await _find_newest(log, partition, [each.dead_letter for each in wanted])
        going = [each for each in wanted if not seen.overtakes(each.dead_letter)]
        if not going:
            return set()
        try:
            async with writer.transaction() as transaction:
                first, batch = await _append(transaction, partition, going, seen, now_ms)
                keys = {each.dead_letter.key for each in going}
                if await is_overtaken(log, partition, keys, start=seen.end, end=first):
                    raise _Overtaken
                for removal in encode_removals([each.dead_letter for each in going], now_ms=now_ms):
                    await transaction.append(dead_letter_home(pipeline), removal)
                count = batch.record_count
                offset_range = OffsetRange(first, first + count, count, len(batch.data))
                # Without a boundary behind them the records would wait for the next commit.
                ids = {partition.topic: await log.topic_id(partition.topic)}
                commit = Commit(pipeline, NO_TIME, {}, {partition: offset_range}, ids)
                await transaction.append(
                    commits_home(pipeline), encode_commit(commit, now_ms=now_ms)
                )
        except _Overtaken:
            continue
        return {each.number for each in going}
    raise LogUnavailable(
        "the source keeps changing the rows to redrive",
        hint="try again, or pause the source",
        topic=partition.topic,
        partition=partition.partition,
    )


@dataclass(frozen=True, slots=True)
class NewestRecords:
    """The newest record of each key, as far as the partition was looked through."""

    end: int
    newest: Mapping[bytes | None, int]
    newest_change: Mapping[bytes | None, int]
    """Tombstones left out: a tombstone belongs to the delete right before it."""
    truncated_at: int

    def overtakes(self, dead_letter: DeadLetter) -> bool:
        if self.truncated_at > dead_letter.offset:
            return True
        if dead_letter.key is None:
            return False  # rows without a key are never newer or older than each other
        return (
            self.newest_change.get(dead_letter.key, -1) > dead_letter.offset
            or self.newest.get(dead_letter.key, -1) > dead_letter.offset + 1
        )

    def is_delete(self, dead_letter: DeadLetter) -> bool:
        """Whether its own tombstone follows it."""
        is_followed = self.newest.get(dead_letter.key, -1) == dead_letter.offset + 1
        return dead_letter.key is not None and is_followed and not self.overtakes(dead_letter)


async def _find_newest(
    log: Log, partition: TopicPartition, dead_letters: Sequence[DeadLetter]
) -> NewestRecords:
    keys = {dead_letter.key for dead_letter in dead_letters if dead_letter.key is not None}
    wanted = pa.array([*keys, TRUNCATE_KEY], pa.binary())
    newest: dict[bytes | None, int] = {}
    newest_change: dict[bytes | None, int] = {}
    end = (await log.bounds([partition]))[partition].end
    start = min(dead_letter.offset for dead_letter in dead_letters) + 1
    async for columns in read_decided(log, partition, from_offset=start):
        for key, offset, is_change in records_of(columns, wanted):
            newest[key] = offset
            if is_change:
                newest_change[key] = offset
    return NewestRecords(end, newest, newest_change, newest.get(TRUNCATE_KEY, -1))


async def _append(
    transaction: Transaction,
    partition: TopicPartition,
    going: Sequence[StoredDeadLetter],
    seen: NewestRecords,
    now_ms: int,
) -> tuple[int, Batch]:
    again: list[PlainRecord] = []
    for each in going:
        dead_letter = each.dead_letter
        mark: Header = (REDRIVEN_HEADER, str(dead_letter.offset).encode())
        headers = (*(one for one in dead_letter.headers if one[0] != REDRIVEN_HEADER), mark)
        again.append(PlainRecord(dead_letter.key, dead_letter.value, headers, now_ms))
        if seen.is_delete(dead_letter):
            again.append(PlainRecord(dead_letter.key, None, headers, now_ms))
    batch = Batch(encode_batch(again, compression=Compression.ZSTD), len(again), now_ms)
    return await transaction.append(partition, batch), batch


FETCHES_MAX = 20


def records_of(columns: RecordColumns, wanted: pa.BinaryArray) -> list[tuple[bytes, int, bool]]:
    """Key, offset and whether it is more than a tombstone, of the records with these keys."""
    rows = np.flatnonzero(np.asarray(pc.is_in(columns.keys, value_set=wanted)))
    keys = columns.keys.take(pa.array(rows)).to_pylist()
    changes = np.asarray(columns.values.is_valid())[rows].tolist()
    return list(zip(keys, columns.offsets[rows].tolist(), changes, strict=True))


async def is_overtaken(
    log: Log, partition: TopicPartition, keys: Collection[bytes | None], *, start: int, end: int
) -> bool:
    """Whether anything of these keys, decided or not, stands between what we saw and ours."""
    wanted = pa.array([*(key for key in keys if key is not None), TRUNCATE_KEY], pa.binary())
    for _ in range(FETCHES_MAX):
        if start >= end:
            return False
        for part in await log.fetch(
            {partition: start}, limit=FetchLimit(), isolation=Isolation.UNCOMMITTED
        ):
            columns = arrow_codec.decode(part.data, from_offset=start, partition=partition)
            if any(offset < end for _, offset, _ in records_of(columns, wanted)):
                return True
            start = part.next_offset
    return True  # what cannot be read yet may be of one of the keys
