"""Fills the next generation of a topic from the former one, and moves the pipeline to it."""

import hashlib
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import orjson

from headwater.core_log.foundation.clock import Clock
from headwater.core_log.foundation.errors import ConfigError
from headwater.core_log.foundation.settings import TopicSettings
from headwater.core_log.model.log import (
    Bounds,
    FetchLimit,
    Isolation,
    Log,
    TopicPartition,
    Writer,
    generation_name,
)
from headwater.core_log.model.table_schema import TableSchema
from headwater.core_log.records import arrow_codec
from headwater.core_log.records.record_views import RecordColumns
from headwater.core_log.rows.schema_text import schema_to_json
from headwater.core_log.rows.settings import WireSettings
from headwater.pipelines.journal.commits import (
    Commit,
    OffsetRange,
    commits_home,
    decode_commits,
    encode_commit,
    encode_positions,
    load_positions,
    positions_home,
)
from headwater.pipelines.journal.generations import (
    Generations,
    MigrationProgress,
    TopicLineage,
    TopicSwitch,
    filled_part,
    line_part,
)
from headwater.pipelines.journal.internal_topics import read_decided
from headwater.pipelines.journal.schemas import (
    StoredSchema,
    encode_schema,
    read_schemas,
    schemas_home,
)
from headwater.pipelines.loops.deliver.truncate_barriers import TruncateRange, find_barriers
from headwater.pipelines.loops.migration.recode import (
    Recoder,
    RecordMasker,
    RecordRun,
    RepartitionedRecords,
    pick_records,
    runs,
    slice_records,
)
from headwater.pipelines.loops.migration.rekey import Newest, check_tells_apart, newest_rows
from headwater.pipelines.loops.thread_offload import run_in_thread
from headwater.pipelines.reports import ReadProgress, Reporter

logger = logging.getLogger(__name__)

SOURCE = "source"
LIMIT = FetchLimit(bytes_max=4 << 20)
"""Bytes of the former topic that are copied in one transaction."""
DIGEST_DIGITS = 32


@dataclass(frozen=True, slots=True)
class TopicMove:
    """A table that needs another topic, and that topic's form."""

    first: str
    """The table's first topic."""
    former: str
    settings: TopicSettings
    """Settings of the next topic, without its name."""
    schema: TableSchema
    """The table's schema in the log now."""

    def to_signal(self, wire: WireSettings, former_ends: Mapping[int, int]) -> str:
        """Returns the signal for the source.

        `former_ends`: the former topic's ends, if only its newest rows are copied: copied rows that
        changed since would otherwise stay.
        """
        said: list[object] = [self.settings.partitions, schema_to_json(self.schema, wire)]
        said += [sorted(former_ends.items())] if former_ends else []
        return hashlib.sha256(orjson.dumps(said)).hexdigest()[:DIGEST_DIGITS]


@dataclass(frozen=True, slots=True)
class MigrationRules:
    wire: WireSettings
    masks: RecordMasker
    compression: int


async def migrate(
    pipeline: str,
    log: Log,
    moves: Sequence[TopicMove],
    rules: MigrationRules,
    *,
    clock: Clock,
    report: Reporter,
) -> None:
    """Migrates one table after the other; steps finished before a crash are not repeated.

    Opening the source's writer fences every other writer, so the former topics end here.
    """
    writer = await log.writer(f"headwater.{pipeline}")
    await log.writer(f"headwater.{pipeline}.repair")
    movings = [_Moving(pipeline, log, writer, move, rules, clock, report) for move in moves]
    for moving in movings:
        await moving.check_possible()
    for moving in movings:
        await moving.run(Generations.of(await load_positions(log, pipeline)))


@dataclass(slots=True)
class _Moving:
    pipeline: str
    log: Log
    writer: Writer
    move: TopicMove
    rules: MigrationRules
    clock: Clock
    report: Reporter
    newest: Newest | None = None
    """Newest records to copy if the table gets another key. Deletes and replaced rows have no new
    key."""

    former_ends: Mapping[int, int] = field(default_factory=dict)
    """Offsets up to which newest records were searched, by partition."""

    async def check_possible(self) -> None:
        """Raises ConfigError, before any change, if the new key is not possible."""
        schemas = await self._schemas()
        if schemas[max(schemas)].schema.key != self.move.schema.key:
            self.newest = await self._newest(schemas)

    async def run(self, generations: Generations) -> None:
        move = self.move
        line = generations.lines.get(move.first, TopicLineage())
        filled = generations.filled.get(move.first)
        schemas = await self._schemas()
        while True:
            if filled is not None and filled.wanted != move.to_signal(
                self.rules.wire, self.former_ends
            ):
                line, filled = _give_up(line, filled), None
            filled = await self._begin(line, filled, schemas)
            recoder = self._recoder(filled.topic)
            filled = await self._fill(filled, recoder, schemas)
            if await self._is_whole(filled, recoder, schemas):
                break
            logger.warning(
                "compaction has overtaken the filling of %s: it starts again", filled.topic
            )
            line, filled = _give_up(line, filled), None
        await self._switch(line, filled)
        logger.info(
            "%s continues in %s; %s stays until headwater drop %s --generations",
            move.schema.table, filled.topic, move.former, self.pipeline,
        )  # fmt: skip

    def _recoder(self, topic: str) -> Recoder:
        key = None if self.newest is None else self.move.schema.key
        return Recoder(self.move.former, topic, self.rules.wire, self.rules.masks, key=key)

    async def _newest(self, schemas: Mapping[int, StoredSchema]) -> Newest:
        """Finds the newest records by reading everything twice before any change.

        Compaction may continue meanwhile: it removes a delete only after the rows before it, and
        these are then missing during the copy.
        """
        topic = self.move.former
        logger.info("checking the rows of %s for duplicates of the new key", topic)
        bounds = await self.log.bounds(await self._partitions())
        starts = {part.partition: bound.start for part, bound in bounds.items()}
        ends = {part: bound.end for part, bound in bounds.items()}
        newest = await newest_rows(self._read_parts(starts, ends), schemas, topic=topic)
        self.former_ends = {part.partition: bound.end for part, bound in bounds.items()}
        rules, key = self.rules, self.move.schema.key
        recoder = Recoder(topic, topic, rules.wire, rules.masks, key=key)
        await check_tells_apart(self._read_parts(starts, ends), newest, schemas, recoder, key=key)
        return newest

    async def _schemas(self) -> dict[int, StoredSchema]:
        home = schemas_home(self.move.former)
        found = [each async for each in read_schemas(self.log, home)]
        return {each.id: each for each in found if each.topic == self.move.former}

    async def _partitions(self) -> list[TopicPartition]:
        count = await self.log.partition_count(self.move.former)
        return [TopicPartition(self.move.former, each) for each in range(count)]

    async def _begin(
        self,
        line: TopicLineage,
        filled: MigrationProgress | None,
        schemas: Mapping[int, StoredSchema],
    ) -> MigrationProgress:
        """Creates the topic with its schemas, and the record of its contents."""
        if filled is None:
            bounds = await self.log.bounds(await self._partitions())
            number = len(line.switches) + len(line.given_up) + 2
            filled = MigrationProgress(
                topic=generation_name(self.move.first, number),
                wanted=self.move.to_signal(self.rules.wire, self.former_ends),
                read={part.partition: bound.start for part, bound in bounds.items()},
                cleaned_to=_number(bounds, "cleaned_to"),
                deletes_dropped_to=_number(bounds, "deletes_dropped_to"),
            )
        recoder = self._recoder(filled.topic)
        self._check_possible(filled, recoder, schemas)
        await self.log.ensure_topic(self.move.settings.model_copy(update={"name": filled.topic}))
        logger.info("%s is filled from %s", filled.topic, self.move.former)
        async with self.writer.transaction() as transaction:
            for stored in filter(recoder.has_key, schemas.values()):
                await transaction.append(
                    schemas_home(filled.topic), encode_schema(recoder.schema(stored))
                )
            parts = line_part(self.move.first, line) | filled_part(self.move.first, filled)
            await transaction.append(
                positions_home(self.pipeline),
                encode_positions(self.pipeline, parts, now_ms=self.clock.now_ms()),
            )
        return filled

    def _check_possible(
        self, filled: MigrationProgress, recoder: Recoder, schemas: Mapping[int, StoredSchema]
    ) -> None:
        is_told = all(offset >= 0 for offset in filled.cleaned_to.values())
        is_compacted = "compact" in self.move.settings.config.get("cleanup.policy", "")
        if self.newest is not None:
            return
        if is_compacted and not is_told and not all(map(recoder.keeps_keys, schemas.values())):
            raise ConfigError(
                "the log does not report compaction, which a topic with other keys needs",
                hint="revert the change, or give the pipeline another name, which fills new topics",
                topic=self.move.former,
            )

    async def _fill(
        self, filled: MigrationProgress, recoder: Recoder, schemas: Mapping[int, StoredSchema]
    ) -> MigrationProgress:
        partitions = await self._partitions()
        bounds = await self.log.bounds(partitions)
        ends = {part: bound.end for part, bound in bounds.items()}
        total = sum(bound.end - bound.start for bound in bounds.values())
        has_marks = len(partitions) == 1 and self.newest is None
        records_of = RepartitionedRecords(
            recoder, self.move.settings.partitions, self.rules.compression
        )
        stops: list[Mapping[TopicPartition, int]] = [ends]
        if not has_marks and self.newest is None:
            ranges = {
                part: TruncateRange(filled.read[part.partition], end) for part, end in ends.items()
            }
            stops = [*await find_barriers(self.log, ranges), ends]
        for stop in stops:
            async for partition, columns in self._read_parts(filled.read, stop):
                wanted = columns
                if self.newest is not None:
                    wanted = pick_records(columns, self.newest[partition.partition])
                found = runs(wanted, schemas, topic=self.move.former, has_marks=has_marks)
                filled = await self._append(filled, records_of, {partition: columns}, list(found))
                read = sum(filled.read.values()) - sum(bound.start for bound in bounds.values())
                self._report(read, total, filled)
            if stop is not ends:
                markers = {part: await self._record_at(part, at) for part, at in stop.items()}
                first = next(iter(markers.values()))
                marker = list(runs(first, schemas, topic=self.move.former))
                filled = await self._append(filled, records_of, markers, marker)
        self._report(total, total, filled, is_done=True)
        return filled

    async def _read_parts(
        self, read: Mapping[int, int], stop: Mapping[TopicPartition, int]
    ) -> AsyncIterator[tuple[TopicPartition, RecordColumns]]:
        """Yields each fetch; waits for undecided records.

        With several partitions, truncates lie between the stops: one marker of each stands for all.
        """
        for partition, end in stop.items():
            offset, decided = read[partition.partition], 0
            while offset < end:
                fetched = await self.log.fetch(
                    {partition: offset}, limit=LIMIT, isolation=Isolation.COMMITTED
                )
                if not fetched:
                    if decided >= end:  # before it was fetched
                        break  # compaction has removed all that was left
                    decided = (await self.log.bounds([partition]))[partition].stable
                    continue
                columns = arrow_codec.decode(
                    fetched[0].data, from_offset=offset, partition=partition
                )
                offset = fetched[0].next_offset
                columns = slice_records(columns, 0, int(np.searchsorted(columns.offsets, end)))
                if len(columns):
                    yield partition, columns

    async def _record_at(self, partition: TopicPartition, offset: int) -> RecordColumns:
        limit = FetchLimit(bytes_max=1)
        fetched = await self.log.fetch(
            {partition: offset}, limit=limit, isolation=Isolation.COMMITTED
        )
        return slice_records(
            arrow_codec.decode(fetched[0].data, from_offset=offset, partition=partition), 0, 1
        )

    async def _append(
        self,
        filled: MigrationProgress,
        records_of: RepartitionedRecords,
        read: Mapping[TopicPartition, RecordColumns],
        found: Sequence[RecordRun],
    ) -> MigrationProgress:
        """Appends a part of the topic, and the progress in the former one, in one transaction."""
        now_us, newest_ms = self.clock.now_ms() * 1_000, filled.newest_ms
        made = await run_in_thread(
            partial(records_of.make, found, newest_ms=newest_ms, now_us=now_us),
            sum(columns.values.nbytes for columns, _, _ in found),
        )
        ends, counts, sizes = dict(filled.ends), dict(filled.records), dict(filled.bytes)
        now_read = dict(filled.read)
        for part, columns in read.items():
            now_read[part.partition] = int(columns.offsets[-1]) + 1
        was_cleaned = any(
            int(columns.offsets[0]) < filled.cleaned_to[part.partition]
            for part, columns in read.items()
        )
        async with self.writer.transaction() as transaction:
            for number, batch in made.batches:
                first = await transaction.append(TopicPartition(filled.topic, number), batch)
                ends[number] = first + batch.record_count
                counts[number] = counts.get(number, 0) + batch.record_count
                sizes[number] = sizes.get(number, 0) + len(batch.data)
            filled = replace(
                filled, read=now_read, ends=ends, records=counts, bytes=sizes,
                newest_ms=made.newest_ms,
                marks=dict(ends) if was_cleaned else filled.marks,
                has_truncates=filled.has_truncates or any(each.is_truncate for each in found),
            )  # fmt: skip
            part_of_it = filled_part(self.move.first, filled)
            await transaction.append(
                positions_home(self.pipeline),
                encode_positions(self.pipeline, part_of_it, now_ms=self.clock.now_ms()),
            )
        return filled

    async def _is_whole(
        self, filled: MigrationProgress, recoder: Recoder, schemas: Mapping[int, StoredSchema]
    ) -> bool:
        """Returns whether compaction removed no unread record that is needed: deletes after rows
        already read, and tombstones with the key's old bytes."""
        if self.newest is not None:
            return True
        bounds = await self.log.bounds(await self._partitions())
        if _number(bounds, "deletes_dropped_to") != filled.deletes_dropped_to:
            return False
        if all(map(recoder.keeps_keys, schemas.values())):
            return True
        return _number(bounds, "cleaned_to") == filled.cleaned_to

    async def _switch(self, line: TopicLineage, filled: MigrationProgress) -> None:
        """Makes the next topic the table's topic."""
        bounds = await self.log.bounds(await self._partitions())
        numbers = range(self.move.settings.partitions)
        ends = {number: filled.ends.get(number, 0) for number in numbers}
        is_in_order = len(bounds) == 1 and self.newest is None
        is_known = _number(bounds, "cleaned_to") == filled.cleaned_to
        marks = filled.marks if is_in_order and is_known else ends
        switch = TopicSwitch(self.move.former, filled.topic, filled.read, ends, marks)
        parts = line_part(self.move.first, replace(line, switches=(*line.switches, switch)))
        commit = Commit(
            pipeline=self.pipeline,
            committed_ms=await self._newest_commit_ms(),
            positions={},
            touched={
                TopicPartition(filled.topic, number): OffsetRange(
                    0, end, filled.records[number], filled.bytes[number]
                )
                for number, end in filled.ends.items()
            },
            topic_ids={filled.topic: await self.log.topic_id(filled.topic)},
            truncated=frozenset({filled.topic} if filled.has_truncates else ()),
            switched=frozenset({filled.topic}),
        )
        now_ms = self.clock.now_ms()
        async with self.writer.transaction() as transaction:
            parts |= filled_part(self.move.first, None)
            await transaction.append(
                positions_home(self.pipeline), encode_positions(self.pipeline, parts, now_ms=now_ms)
            )
            await transaction.append(
                commits_home(self.pipeline), encode_commit(commit, now_ms=now_ms)
            )

    async def _newest_commit_ms(self) -> int:
        """Returns the source's newest commit time, so that boundaries stay in its order."""
        newest_ms = 0
        async for columns in read_decided(self.log, commits_home(self.pipeline)):
            for _, commit in decode_commits(columns, self.pipeline):
                newest_ms = max(newest_ms, commit.committed_ms)
        return newest_ms

    def _report(
        self, read: int, total: int, filled: MigrationProgress, *, is_done: bool = False
    ) -> None:
        table, size = str(self.move.schema.table), sum(filled.bytes.values())
        self.report(ReadProgress(self.pipeline, SOURCE, table, read, total, size, None, is_done))


def _give_up(line: TopicLineage, filled: MigrationProgress) -> TopicLineage:
    return replace(line, given_up=(*line.given_up, filled.topic))


def _number(bounds: Mapping[TopicPartition, Bounds], name: str) -> dict[int, int]:
    return {part.partition: getattr(bound, name) for part, bound in bounds.items()}
