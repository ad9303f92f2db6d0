"""Source to log: the whole write path of a pipeline, in one loop."""

from collections.abc import Callable
from dataclasses import dataclass, field

from connectors.source import Source
from core_log.changes import ChangeBatch, TableChanges
from core_log.client.together import together
from core_log.clock import Clock
from core_log.log import Log, TopicPartition, Transaction
from pipelines.journal.commits import Commit, Stretch, commits_home, encode_commit
from pipelines.journal.generations import Generations, source_parts
from pipelines.journal.notices import NoticeTopics
from pipelines.journal.positions import encode_positions, load_positions, positions_home
from pipelines.letters.letters import encode_rejects
from pipelines.loops.encoding import Encoder
from pipelines.loops.read_ahead import ReadAhead, read_ahead
from pipelines.loops.relaying import Controls, relaying
from pipelines.reports import Moved, Report, Reporter, SetAside, State, StateChanged, Stood

UNIT = "source"
HELD_MS_MAX = 50
"""How long a transaction of the log stays open for what is there already, when more always is:
nobody reads a change before its transaction ends."""


@dataclass(frozen=True, slots=True)
class IngestLimits:
    """When a transaction of the log ends, as far as the source lets it."""

    batch_wait_ms: int
    """The least time between the beginnings of two commits; the first change after quiet goes at
    once."""
    transaction_bytes_max: int
    """Commit without waiting once this much has been appended."""


def writer_name(pipeline: str) -> str:
    return f"headwater.{pipeline}"


async def ingest(
    pipeline: str,
    source: Source,
    log: Log,
    *,
    new_encoder: Callable[[Generations], Encoder],
    limits: IngestLimits,
    clock: Clock,
    report: Reporter,
    controls: Controls = tuple,
) -> None:
    """Copies changes until the source ends. Data and position commit in one transaction, so that
    a crash at any line repeats nothing: the next run resumes from the last committed position.

    The writer is opened before the position is read: that fences whoever could still move it.
    """
    writer = await log.writer(writer_name(pipeline))
    positions = await load_positions(log, pipeline)
    resume_from = source_parts(positions)
    report(Stood(pipeline, UNIT, resume_from))
    report(StateChanged(pipeline, UNIT, "", State.RUNNING))
    encoder, last_commit_ms = new_encoder(Generations.of(positions)), -limits.batch_wait_ms
    notices = NoticeTopics(log, pipeline)
    async with (
        read_ahead(source.changes(resume_from)) as batches,
        relaying(source, controls, resume_from),
    ):
        while (first := await batches.next()) is not None:
            filling = _Filling(pipeline, encoder, notices, clock, limits, last_commit_ms)
            async with writer.transaction() as transaction:
                batch: ChangeBatch | None = first
                while batch is not None:
                    await filling.append(transaction, batch)
                    batch = await filling.following(batches)
                last_commit_ms = clock.monotonic_ms()
                await filling.close(transaction)
            await source.acknowledge(filling.positions)
            for each in filling.told():
                report(each)


@dataclass(slots=True)
class _Tally:
    rows: int = 0
    bytes: int = 0
    committed_ms: int = 0


@dataclass(slots=True)
class _Filling:
    """One transaction of the log while it fills; nothing of it outlives an abort."""

    pipeline: str
    encoder: Encoder
    notices: NoticeTopics
    clock: Clock
    limits: IngestLimits
    last_commit_ms: int
    positions: dict[str, str] = field(default_factory=dict)
    touched: dict[TopicPartition, Stretch] = field(default_factory=dict)
    tallies: dict[str, _Tally] = field(default_factory=dict)
    truncated: set[str] = field(default_factory=set)
    set_aside: list[SetAside] = field(default_factory=list)
    is_at_boundary: bool = False
    bytes: int = 0
    opened_ms: int = field(init=False)

    def __post_init__(self) -> None:
        self.opened_ms = self.clock.monotonic_ms()

    async def append(self, transaction: Transaction, batch: ChangeBatch) -> None:
        for changes in batch.tables:
            if len(changes):
                await self._append_table(transaction, changes)
        rejects = [*batch.rejects, *self.encoder.rejects]
        self.encoder.rejects.clear()
        if rejects:
            for partition, encoded in encode_rejects(
                self.pipeline, rejects, now_ms=self.clock.now_ms()
            ):
                await transaction.append(partition, encoded)
            self.set_aside += [
                SetAside(self.pipeline, UNIT, str(reject.table), 1, reject.problem)
                for reject in rejects
            ]
        for each in batch.notices:
            async for partition, encoded in self.notices.encode(each, now_ms=self.clock.now_ms()):
                await transaction.append(partition, encoded)
        self.positions |= batch.positions
        self.is_at_boundary = bool(batch.positions)

    async def following(self, batches: ReadAhead) -> ChangeBatch | None:
        """What else belongs into this transaction: the rest of the source's own one without
        question, what comes within `batch_wait` of the last commit, and for a moment what is there
        already."""
        if not self.is_at_boundary:
            batch = await batches.next()
            assert batch is not None, "a source ends between its transactions"
            return batch
        if self.bytes >= self.limits.transaction_bytes_max:
            return None
        now_ms = self.clock.monotonic_ms()
        left_ms = self.last_commit_ms + self.limits.batch_wait_ms - now_ms
        if left_ms <= 0 and now_ms >= self.opened_ms + HELD_MS_MAX:
            return None
        return await batches.next_within(left_ms)

    async def close(self, transaction: Transaction) -> None:
        """Position and boundary come last, so that nobody waits for them behind a long
        transaction."""
        now_ms = self.clock.now_ms()
        commit = Commit(
            pipeline=self.pipeline,
            committed_ms=max((each.committed_ms for each in self.tallies.values()), default=0),
            positions=self.positions,
            touched=self.touched,
            truncated=frozenset(self.truncated),
        )
        last = [
            *(
                (positions_home(self.pipeline), each)
                for each in encode_positions(self.pipeline, self.positions, now_ms=now_ms)
            ),
            *((commits_home(self.pipeline), each) for each in encode_commit(commit, now_ms=now_ms)),
        ]
        await together(transaction.append(home, batch) for home, batch in last)

    def told(self) -> list[Report]:
        now_ms = self.clock.now_ms()
        moved = [
            Moved(self.pipeline, UNIT, table, each.rows, each.bytes, each.committed_ms, now_ms)
            for table, each in self.tallies.items()
        ]
        return [*moved, *self.set_aside, Stood(self.pipeline, UNIT, self.positions)]

    async def _append_table(self, transaction: Transaction, changes: TableChanges) -> None:
        tally = self.tallies.setdefault(str(changes.schema.table), _Tally())
        tally.rows += len(changes)
        tally.committed_ms = changes.committed_us[len(changes) - 1].as_py() // 1_000
        async for portion in self.encoder.encode(
            changes, positions=self.positions, now_ms=self.clock.now_ms()
        ):
            batch_bytes, record_count = len(portion.batch.data), portion.batch.record_count
            first = await transaction.append(portion.partition, portion.batch)
            if not portion.is_data:
                continue
            if changes.is_truncate:
                self.truncated.add(portion.partition.topic)
            tally.bytes += batch_bytes
            self.bytes += batch_bytes
            stretch = Stretch(first, first + record_count, record_count, batch_bytes)
            earlier = self.touched.get(portion.partition)
            self.touched[portion.partition] = earlier.joined(stretch) if earlier else stretch
