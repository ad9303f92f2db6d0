"""Checks made once before a source runs: whether its topics can take what the file asks."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.core_log.foundation.clock import Clock, SystemClock
from headwater.core_log.foundation.errors import ConfigError
from headwater.core_log.foundation.speed import Preloading
from headwater.core_log.model.log import Log
from headwater.core_log.model.table_schema import TableSchema
from headwater.core_log.records.compression import Compression
from headwater.pipelines.journal.control import check_not_dropping
from headwater.pipelines.journal.generations import NONE, Generations, load_generations
from headwater.pipelines.journal.schemas import topics_of
from headwater.pipelines.loops.assembly import (
    ensure_topics,
    make_source,
    run_task,
    topic_rules,
    wire_of,
)
from headwater.pipelines.loops.ingest.ingest import writer_name
from headwater.pipelines.preview.plan import (
    KEY,
    Difference,
    before_log_of,
    check_can_be_made,
    check_needs_no_migration,
    differences,
)
from headwater.pipelines.reports import VERIFY, Reporter, TaskRun
from headwater.pipelines.running.migration_approval import is_approved
from headwater.pipelines.running.sink_task import run_sink
from headwater.pipelines.running.tasks import SOURCE, RunTask
from headwater.pipelines.transforms.before_log import MasksAndDrops, salt_of

if TYPE_CHECKING:
    from headwater.pipelines.file.loader import LoadedPipeline
    from headwater.pipelines.lineage.sink_lineage import SinkLineages


def prepare_source(loaded: "LoadedPipeline", task: str) -> None:
    """Sinks prepare themselves, each in its own life."""
    if task == SOURCE:
        source = make_source(loaded, clock=SystemClock())
        if isinstance(source, Preloading):
            source.prepare()


def checked_first() -> RunTask:
    """`run_task`, but a source whose changes may not share topics with the records that lie there
    does not begin before these have a next generation, or somebody agrees to that."""
    checked: set[bytes] = set()
    lineages: SinkLineages | None = None

    async def run(task: TaskRun) -> None:
        nonlocal lineages
        loaded, log, clock = task.loaded, task.log, task.clock
        has_topics = False
        if task.name == SOURCE and (wire := loaded.to_wire()) not in checked:
            # A killed process may have left a transaction with schemas open, for whose timeout the
            # checks would wait. Opening its writer ends it.
            await log.writer(writer_name(loaded.name))
            await check_not_dropping(log, loaded.name)
            asked = await asked_of_topics(loaded, log, clock=clock)
            if is_approved(loaded, task.desired()) and asked.needs_migration:
                await _migrate(loaded, log, asked, clock=clock, report=task.report)
                asked = await asked_of_topics(loaded, log, clock=clock)
            check_needs_no_migration(asked.differences)
            checked.add(wire)
            has_topics = True
        if task.name == VERIFY:
            # Late, since most pipelines have no such task.
            from headwater.pipelines.time_travel.verify.schedule import run_verifying

            await run_verifying(task)
        elif task.name != SOURCE:
            await check_not_dropping(log, loaded.name)
            if loaded.spec.openlineage.url:
                from headwater.pipelines.lineage.sink_lineage import SinkLineages

                lineages = lineages or SinkLineages()
                await lineages.run(task, run_sink)
            else:
                await run_sink(task)
        else:
            await run_task(task, has_topics=has_topics)

    return run


@dataclass(frozen=True, slots=True)
class FirstCheckQuestion:
    """The demands of the file on the topics that are there."""

    differences: Sequence[Difference] = ()
    schemas: Sequence[TableSchema] = ()
    """The schemas of all tables of the source, as they enter the log."""
    generations: Generations = NONE

    @property
    def needs_migration(self) -> bool:
        return any(each.needs_migration for each in self.differences)


async def asked_of_topics(
    loaded: "LoadedPipeline", log: Log, *, clock: Clock
) -> FirstCheckQuestion:
    await ensure_topics(loaded, log)
    stored = await topics_of(log, loaded.name)
    if not stored:
        return FirstCheckQuestion()
    generations = await load_generations(log, loaded.name, stored)
    source = make_source(loaded, clock=clock)
    schemas = await source.discover()
    before_log = before_log_of(loaded, stored.values())
    in_log = list(_captured_schemas(schemas, before_log))
    found = await differences(loaded, in_log, stored, log, generations, source=source)
    return FirstCheckQuestion(found, in_log, generations)


def _captured_schemas(
    schemas: Iterable[TableSchema], before_log: MasksAndDrops
) -> Iterator[TableSchema]:
    """Those of which a rule does not fit are left out by the source, and nothing is asked of their
    topics."""
    for schema in schemas:
        with suppress(ConfigError):
            yield before_log.schema(schema)


async def refuse_migration(loaded: "LoadedPipeline", log: Log, *, clock: Clock) -> None:
    """Raises `ConfigError` when the file asks for another key, value format or number of
    partitions than a topic that it would write to has."""
    check_needs_no_migration((await asked_of_topics(loaded, log, clock=clock)).differences)


async def refuse_impossible(loaded: "LoadedPipeline", log: Log, *, clock: Clock) -> None:
    """Raises `ConfigError` when new records cannot be made of those that are there."""
    check_can_be_made((await asked_of_topics(loaded, log, clock=clock)).differences)


async def _migrate(
    loaded: "LoadedPipeline", log: Log, asked: FirstCheckQuestion, *, clock: Clock, report: Reporter
) -> None:
    from headwater.pipelines.loops.migration.migrate import MigrationRules, TopicMove, migrate

    check_can_be_made(asked.differences)
    if any(each.what == KEY for each in asked.differences):
        await _check_source_tells_key(loaded, clock=clock)
    topics = {each.topic for each in asked.differences if each.needs_migration}
    names = topic_rules(loaded, asked.generations)
    moves = []
    for schema in asked.schemas:
        if (former := names.name_of(schema.table)) in topics:
            topic = names.topic_of(schema, partitions=await log.partition_count(former))
            moves.append(TopicMove(names.first_name_of(schema.table), former, topic, schema))
    masks = MasksAndDrops(loaded.spec.transform, salt=salt_of(loaded.spec.pipeline), is_again=True)
    rules = MigrationRules(wire_of(loaded), masks, Compression[loaded.spec.log.compression.upper()])
    await migrate(loaded.name, log, moves, rules, clock=clock, report=report)


async def _check_source_tells_key(loaded: "LoadedPipeline", *, clock: Clock) -> None:
    """Before anything is changed: a delete, say, has to bring the columns that are the key now."""
    scrub = loaded.redaction.scrub
    for each in await make_source(loaded, clock=clock).examine():
        if each.is_fatal:
            raise ConfigError(
                f"the source cannot continue with another key: {scrub(each.problem)}",
                hint=scrub(each.hint),
            )
