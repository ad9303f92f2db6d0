"""Tables that the source reads again: what the log keeps of it, from beginning to end."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from headwater.core_log.model.changes import ChangeBatch, Phase
from headwater.core_log.model.log import Log, TopicPartition
from headwater.core_log.model.table_schema import TableId, TableSchema
from headwater.pipelines.journal.commits import commits_home, decode_commits
from headwater.pipelines.journal.generations import Generations, TopicSwitch, line_part
from headwater.pipelines.journal.internal_topics import read_decided
from headwater.pipelines.journal.replacements import (
    MixedTopic,
    StoredReplacement,
    give_up,
    last_replacements,
    replacements_of,
)
from headwater.pipelines.loops.ingest.encoder import Encoder, PartitionBatch
from headwater.pipelines.loops.ingest.speculative_commit import Touched
from headwater.pipelines.reports import Reporter, StateChanged, TaskState

logger = logging.getLogger(__name__)


class TakenKeys(NamedTuple):
    """Contents of a transaction for the re-reads that begin in it."""

    parts: Mapping[str, str | None]
    """Parts of the position."""
    switched: frozenset[str] = frozenset()
    """New topics of tables from here on."""
    schemas: Sequence[PartitionBatch] = ()
    """The first schemas of these topics."""


@dataclass(slots=True)
class Replacements:
    """Re-reads of one pipeline; `stored` are those that have not ended."""

    pipeline: str
    log: Log
    encoder: Encoder
    stored: dict[TableId, StoredReplacement]
    ended: dict[TableId, StoredReplacement]
    """The last finished re-read of each table."""
    generations: Generations

    @classmethod
    def of(
        cls, pipeline: str, log: Log, encoder: Encoder, positions: Mapping[str, str]
    ) -> "Replacements":
        last = last_replacements(positions)
        ended = {table: each for table, each in last.items() if each.has_ended}
        generations = Generations.of(positions)
        return cls(pipeline, log, encoder, replacements_of(positions), ended, generations)

    @property
    def complete(self) -> Sequence[StoredReplacement]:
        """Returns re-reads that only lack their deletes."""
        return [each for each in self.stored.values() if each.phase is Phase.COMPLETE]

    async def take(self, batch: ChangeBatch, touched: Touched, *, now_ms: int) -> TakenKeys:
        """Takes the re-reads that a batch begins. Everything appended before it is in the log;
        `touched` is the part in the same transaction."""
        found, switched, schemas = dict[str, str | None](), set[str](), list[PartitionBatch]()
        for each in batch.replacements:
            if each.phase is Phase.COMPLETE:
                continue
            if each.phase is Phase.GONE:
                found |= await self._give_up(each.schema.table)
                continue
            has_other_key = await self._has_other_key(each.schema)
            if each.phase is Phase.STARTED and has_other_key:
                part, schema = await self._switch(each.schema, touched, now_ms=now_ms)
                found |= part
                switched.add(self.encoder.topics.name_of(each.schema.table))
                schemas.append(schema)
            if each.phase is Phase.PENDING and has_other_key:
                partitions = await self._present_partitions(each.schema)
            else:
                partitions = await self.encoder.partitions_of(each.schema)
            bounds = await self.log.bounds(partitions)
            ends = {part.partition: bounds[part].end for part in partitions}
            topic_id = await self.log.topic_id(partitions[0].topic)
            before = self.stored.get(each.schema.table)
            last = before or self.ended.get(each.schema.table)
            mixed, former = MixedTopic(ends, {}), tuple[MixedTopic, ...]()
            whole_from: Mapping[int, int] = {}
            if last is not None:
                mixed, former = last.start(topic_id, ends)
                whole_from = last.beginning if last.topic_id == topic_id else {}
            stored = StoredReplacement(
                each.schema.table,
                partitions[0].topic,
                topic_id,
                each.phase,
                each.why,
                now_ms if before is None else before.since_ms,
                ends if each.phase is Phase.STARTED else {},
                mixed=mixed,
                former=former,
                whole_from=whole_from,
            )
            self.stored[stored.table] = stored
            found[stored.part] = stored.text()
        return TakenKeys(found, frozenset(switched), schemas)

    async def _give_up(self, table: TableId) -> dict[str, str | None]:
        """Ends a re-read of a table that nobody reads any more. PostgreSQL's source knows only the
        whole name of such a table."""
        named = [each for each in self.stored if str(each) == str(table)]
        if not named:
            return {}
        stored = self.stored.pop(named[0])
        logger.warning("%s is not captured any more, and is not read again", table)
        if (ended := await give_up(self.log, stored)) is None:
            return {stored.part: None}
        self.ended[stored.table] = ended
        return {stored.part: ended.text()}

    async def _has_other_key(self, schema: TableSchema) -> bool:
        stored = await self.encoder.newest_form(schema)
        return stored is not None and not stored.has_key_of(self.encoder.stored_form(schema))

    async def _switch(
        self, schema: TableSchema, touched: Touched, *, now_ms: int
    ) -> tuple[dict[str, str | None], PartitionBatch]:
        """Moves records with another key to another topic, which the source fills completely."""
        topics = self.encoder.topics
        first, former = topics.first_name_of(schema.table), topics.name_of(schema.table)
        ends = await self._ends(await self._present_partitions(schema))
        ends |= {part.partition: each.end for part, each in touched.items() if part.topic == former}
        next_topic = self.generations.next_topic(first)
        switch = TopicSwitch(former, next_topic, ends, {}, {}, is_filled=False)
        self.generations = self.generations.add_switch(first, switch)
        stored = await self.encoder.switch(schema, self.generations, now_ms=now_ms)
        logger.info("%s continues in %s, because it has another key", schema.table, next_topic)
        return line_part(first, self.generations.lines[first]), stored

    async def _present_partitions(self, schema: TableSchema) -> list[TopicPartition]:
        topic = self.encoder.topics.name_of(schema.table)
        count = await self.log.partition_count(topic)
        return [TopicPartition(topic, each) for each in range(count)]

    async def _ends(self, partitions: Sequence[TopicPartition]) -> dict[int, int]:
        """Returns the ends of committed records, behind the last marker."""
        bounds = await self.log.bounds(partitions)
        ends = {part.partition: max(bound.end - 1, 0) for part, bound in bounds.items()}
        async for columns in read_decided(self.log, commits_home(self.pipeline)):
            for _, commit in decode_commits(columns, self.pipeline):
                ends |= {
                    part.partition: each.end
                    for part, each in commit.touched.items()
                    if part in bounds
                }
        return ends

    def end(self, batch: ChangeBatch) -> dict[str, str | None]:
        """Returns the same for what is complete after it."""
        found: dict[str, str | None] = {}
        for each in batch.replacements:
            stored = self.stored.get(each.schema.table)
            if each.phase is Phase.COMPLETE and stored is not None:
                self.stored[stored.table] = stored.complete(each)
                found[stored.part] = self.stored[stored.table].text()
        return found

    def end_at(self, done: StoredReplacement, ends: Mapping[int, int]) -> dict[str, str]:
        """Ends a re-read whose deletes, with everything else, are in the log before `ends`."""
        del self.stored[done.table]
        ended = self.ended[done.table] = done.end_at(ends)
        return {done.part: ended.text()}


@dataclass(slots=True)
class ReplacementStates:
    """Progress reports of re-reads during one run of a source."""

    pipeline: str
    task: str
    report: Reporter
    reported: dict[TableId, str] = field(default_factory=dict)

    def report_changes(self, stored: Mapping[TableId, StoredReplacement]) -> None:
        """Logs what is new since the last call."""
        for table, each in stored.items():
            reason = reason_of(each)
            if self.reported.get(table) == reason:
                continue
            is_quarantined = each.phase is Phase.QUARANTINED
            if is_quarantined:
                logger.error("%s: %s is quarantined: %s", self.pipeline, table, each.why)
            elif table not in self.reported:
                logger.info("%s: %s is read again: %s", self.pipeline, table, each.why)
            self.reported[table] = reason
            self._state(
                table, TaskState.QUARANTINED if is_quarantined else TaskState.REREADING, reason
            )
        for table in self.reported.keys() - stored.keys():
            logger.info("%s: the re-read of %s has ended", self.pipeline, table)
            del self.reported[table]
            self._state(table, TaskState.RUNNING)

    def _state(self, table: TableId, state: TaskState, reason: str = "") -> None:
        self.report(StateChanged(self.pipeline, self.task, str(table), state, reason))


def reason_of(stored: StoredReplacement) -> str:
    if stored.phase is Phase.PENDING:
        return f"{stored.why}; its rows wait to be read again"
    return stored.why
