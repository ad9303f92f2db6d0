"""Builds the parts of `ingest` and `deliver` from a loaded pipeline."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial

from headwater.connectors.source import (
    FormCheck,
    Gauge,
    NewTableCheck,
    Remark,
    Retaining,
    RowEstimating,
    Source,
    SourceContext,
    SourceReport,
    anything_goes,
    nothing_renamed,
)
from headwater.core_log.client import KafkaLog, KafkaSettings
from headwater.core_log.foundation.clock import Clock
from headwater.core_log.foundation.errors import HeadwaterError
from headwater.core_log.foundation.name_patterns import Pattern
from headwater.core_log.foundation.speed import Preloading
from headwater.core_log.model.log import Log, TopicPartition
from headwater.core_log.model.table_schema import TableId, TableSchema
from headwater.core_log.records.compression import Compression
from headwater.core_log.rows.settings import WireSettings
from headwater.pipelines.dead_letters.dead_letter import dead_letter_topic
from headwater.pipelines.file.loader import LoadedPart, LoadedPipeline
from headwater.pipelines.file.log_settings import LogSettings
from headwater.pipelines.journal.generations import NONE, Generations
from headwater.pipelines.journal.internal_topics import internal_topics
from headwater.pipelines.loops.deliver.dead_letters import RejectedRecords
from headwater.pipelines.loops.deliver.deliver import Delivery, RebuildsNeeded, deliver
from headwater.pipelines.loops.deliver.quarantine import Quarantine
from headwater.pipelines.loops.deliver.slice_reader import Skipped, SliceReader
from headwater.pipelines.loops.deliver.slicer import SliceLimits, Slicer
from headwater.pipelines.loops.deliver.split_reader import LogSplitReader
from headwater.pipelines.loops.ingest.encoder import Encoder
from headwater.pipelines.loops.ingest.ingest import SOURCE, IngestLimits, ingest
from headwater.pipelines.loops.ingest.signals import free_space, unless_paused
from headwater.pipelines.loops.ingest.table_topics import TopicRules
from headwater.pipelines.loops.ingest.unserializable_rows import RECORD_BYTES_MAX
from headwater.pipelines.reports import GaugesRead, ReadProgress, RemarksMade, Reporter, TaskRun
from headwater.pipelines.transforms.after_log import RowTransforms
from headwater.pipelines.transforms.before_log import MasksAndDrops, salt_of
from headwater.pipelines.transforms.rows import RuleTables
from headwater.sinks.sink import Sink, SinkContext, SplitReader, TableHealth


async def run_task(
    task: TaskRun,
    *,
    has_topics: bool = False,
    rebuilds: RebuildsNeeded | None = None,
    quarantine: Quarantine | None = None,
    beginnings: Mapping[TopicPartition, int] | None = None,
) -> None:
    """Runs one task, the source or the named sink, until it ends or fails.

    `has_topics`: the log's own topics are known to exist. `quarantine`: of the sink's last life.
    `beginnings`: where a new table begins, if not at offset 0.
    """
    loaded = task.loaded
    if task.name == SOURCE:
        if not has_topics:
            await ensure_topics(loaded, task.log)
        await unless_paused(
            lambda: _run_source(task),
            pipeline=loaded.name,
            task=SOURCE,
            desired=task.desired,
            report=task.report,
            watch=lambda: watch_source(task),
        )
        return
    part = next(part for part in loaded.sinks if part.name == task.name)
    health_reporter = _health_reporter(loaded, part, task.report)
    sink = make_sink(loaded, part, clock=task.clock, report=health_reporter)
    try:
        if isinstance(sink, Preloading):
            sink.prepare()
        await ensure_topics(loaded, task.log)
        delivery = delivery_of(
            task, part, sink, beginnings=beginnings, rebuilds=rebuilds, quarantine=quarantine
        )
        await deliver(delivery, until_end=task.until_end)
    finally:
        await sink.close()


async def ensure_topics(loaded: LoadedPipeline, log: Log) -> None:
    """Creates the log's own topics, which every task needs."""
    topics = internal_topics(history_ms=loaded.spec.log.history_ms)
    await log.ensure_topic(*topics, dead_letter_topic(loaded.name))


def make_source(
    loaded: LoadedPipeline,
    *,
    clock: Clock,
    report: Callable[[SourceReport], None] = lambda _: None,
    until_end: bool = False,
    refusal: FormCheck = anything_goes,
    refusal_of_new: NewTableCheck = nothing_renamed,
) -> Source:
    changes = loaded.spec.schema_changes
    context = SourceContext(
        loaded.name,
        loaded.directory,
        clock,
        report,
        schema_changes=changes.policies,
        settle_ms=changes.settle_ms,
        free_space=partial(free_space, loaded),
        until_end=until_end,
        follows_columns=partial(follows_columns, loaded),
        refusal=refusal,
        refusal_of_new=refusal_of_new,
    )
    source: Source = loaded.source.component(loaded.source.settings, context)
    return source


def follows_columns(loaded: LoadedPipeline, table: TableId, names: Collection[str]) -> bool:
    """Returns whether columns that get these names change no value of older rows.

    Merged tables are not altered alike, a function of the user may read any column, and a column
    that gets the name of a rule is hidden from then on.
    """
    rules = [rule for rule in loaded.spec.transform if RuleTables(rule).match(table)]
    if any(rule.python or {*rule.mask, *rule.drop}.intersection(names) for rule in rules):
        return False
    routes = [rule for rule in loaded.spec.route if Pattern(rule.source).matches(str(table))]
    return not any(rule.add_key for rule in routes)


def make_sink(
    loaded: LoadedPipeline,
    part: LoadedPart,
    *,
    clock: Clock,
    report: Callable[[TableHealth], None] = lambda _: None,
) -> Sink:
    policies = loaded.spec.schema_changes.policies
    context = SinkContext(
        loaded.name, loaded.directory, policies, clock, name=part.name, report=report
    )
    sink: Sink = part.component(part.settings, context)
    return sink


def _health_reporter(
    loaded: LoadedPipeline, part: LoadedPart, report: Reporter
) -> Callable[[TableHealth], None]:
    def pass_on(health: TableHealth) -> None:
        name = f"small_files {health.table}"
        report(GaugesRead(loaded.name, part.name, name, health.small_files, health.files))

    return pass_on


def topic_rules(loaded: LoadedPipeline, generations: Generations = NONE) -> TopicRules:
    """Returns the rules of the pipeline's topics, and their present generations."""
    log = loaded.spec.log
    return TopicRules(
        pipeline=loaded.name,
        template=log.topic,
        partitions=None if log.partitions == "auto" else log.partitions,
        config=topic_config(log),
        generations=generations,
    )


async def row_estimates(source: Source) -> Mapping[TableId, int]:
    """Returns approximate row counts of the source's tables; empty if the source does not know
    them."""
    return await source.row_estimates() if isinstance(source, RowEstimating) else {}


def topic_config(log: LogSettings) -> dict[str, str]:
    retention = log.retention
    return {
        "cleanup.policy": log.cleanup,
        "max.message.bytes": str(RECORD_BYTES_MAX),
        "min.compaction.lag.ms": str(log.history_ms),
        "delete.retention.ms": str(log.delete_retention_ms),
        "retention.ms": str(-1 if retention.time_ms is None else retention.time_ms),
        "retention.bytes": str(-1 if retention.size_bytes is None else retention.size_bytes),
    }


def wire_of(loaded: LoadedPipeline) -> WireSettings:
    """Returns the value format's options; a source may declare how some types are written."""
    log, source = loaded.spec.log, loaded.source.settings
    choices = {
        name: getattr(source, name)
        for name in ("decimal", "time", "binary")
        if hasattr(source, name)
    }
    return WireSettings(
        value=log.value, has_schemas=log.has_schemas, registry=log.registry, **choices
    )


async def watch_source(task: TaskRun) -> None:
    """While the source is paused or quarantined."""
    source = make_source(task.loaded, clock=task.clock, report=_source_reporter(task))
    if isinstance(source, Retaining):
        await source.watch_retained()


def _source_reporter(task: TaskRun) -> Callable[[SourceReport], None]:
    loaded, report = task.loaded, task.report

    def pass_on(progress: SourceReport) -> None:
        if isinstance(progress, Gauge):
            report(GaugesRead(loaded.name, SOURCE, progress.name, progress.value, progress.limit))
            return
        if isinstance(progress, Remark):
            finding = progress.finding
            report(
                RemarksMade(loaded.name, SOURCE, progress.name, "", "")
                if finding is None
                else RemarksMade(
                    loaded.name,
                    SOURCE,
                    progress.name,
                    finding.problem,
                    finding.hint,
                    finding.left_out,
                )
            )
            return
        report(
            ReadProgress(
                loaded.name,
                SOURCE,
                str(progress.table),
                progress.rows,
                progress.rows_expected,
                progress.bytes,
                progress.bytes_expected,
                progress.is_done,
            )
        )

    return pass_on


async def _run_source(task: TaskRun) -> None:
    loaded, log, report = task.loaded, task.log, task.report
    encoders = list[Encoder]()

    async def refusal(schema: TableSchema, *, is_next: bool = False) -> HeadwaterError | None:
        return await encoders[-1].refusal(schema, is_next=is_next)

    async def refusal_of_new(
        schema: TableSchema,
        *,
        may_be: Callable[[TableId], bool],
        is_gone: Callable[[TableId], bool],
    ) -> HeadwaterError | None:
        return await encoders[-1].refusal_of_new(schema, may_be=may_be, is_gone=is_gone)

    source = make_source(
        loaded,
        clock=task.clock,
        report=_source_reporter(task),
        until_end=task.until_end,
        refusal=refusal,
        refusal_of_new=refusal_of_new,
    )

    def new_encoder(generations: Generations) -> Encoder:
        encoder = Encoder(
            log,
            topics=topic_rules(loaded, generations),
            wire=wire_of(loaded),
            before_log=MasksAndDrops(loaded.spec.transform, salt=salt_of(loaded.spec.pipeline)),
            compression=Compression[loaded.spec.log.compression.upper()],
            row_estimates=partial(row_estimates, source),
        )
        encoders.append(encoder)
        return encoder

    await ingest(
        loaded.name,
        source,
        log,
        new_encoder=new_encoder,
        limits=IngestLimits(
            batch_wait_ms=loaded.source.task_setting("batch_wait_ms"),
            transaction_bytes_max=loaded.spec.limits.transaction_size_bytes,
        ),
        clock=task.clock,
        report=report,
        controls=lambda: task.desired().controls(),
        stop_after=loaded.spec.errors.dead_letter.stop_after,
    )


def delivery_of(
    task: TaskRun,
    part: LoadedPart,
    sink: Sink,
    *,
    topics: Collection[str] | None = None,
    beginnings: Mapping[TopicPartition, int] | None = None,
    rebuilds: RebuildsNeeded | None = None,
    quarantine: Quarantine | None = None,
    before_dead_letters: Callable[[], Awaitable[None]] | None = None,
) -> Delivery:
    """Returns a sink's delivery of all topics, or of some.

    `beginnings`: where a new table begins, if not at offset 0. `rebuilds` receives tables that need
    a rebuild. `before_dead_letters` raises if rejected records are not to blame.
    """
    loaded, log, clock, report = task.loaded, task.log, task.clock, task.report
    limits = loaded.spec.limits
    rejected = RejectedRecords(
        log,
        loaded.name,
        part.name,
        stop_after=loaded.spec.errors.dead_letter.stop_after,
        clock=clock,
        report=report,
        check=before_dead_letters,
    )
    after_log = RowTransforms(loaded.spec.transform, loaded.spec.route, directory=loaded.directory)
    reader = SliceReader(
        log,
        after_log=after_log,
        fetch_bytes=limits.fetch_size_bytes,
        skipped=rejected.skipped_offsets,
    )
    slicer = Slicer(
        log,
        loaded.name,
        limits=SliceLimits(
            records=getattr(part.settings, "slice_rows", limits.slice_rows),
            bytes=getattr(part.settings, "slice_size_bytes", limits.slice_size_bytes),
            wait_ms=part.task_setting("commit_every_ms"),
        ),
        read=reader.read,
        clock=clock,
        topics=topics,
        split_reader=split_reader_of(loaded, log, skipped=rejected.skipped_offsets),
        beginnings=beginnings,
        names_mixed_tables=getattr(part.settings, "consistent_cut", False),
    )
    return Delivery(
        pipeline=loaded.name,
        task=part.name,
        sink=sink,
        log=log,
        slicer=slicer,
        reader=reader,
        rejected=rejected,
        topic_of=topic_rules(loaded).first_name_of,
        desired=task.desired,
        isolates_tables=topics is None and loaded.spec.errors.isolate == "table",
        keeps_group=topics is None,
        clock=clock,
        report=report,
        is_traced=topics is None and bool(loaded.spec.otel.endpoint),
        keeps_rows=lambda schema: keeps_rows(part, after_log.schema(schema)),
        rebuilds=rebuilds or RebuildsNeeded(),
        quarantine=quarantine or Quarantine(),
    )


def keeps_rows(part: LoadedPart, target: TableSchema) -> bool:
    """Returns whether a table of the target can be rebuilt from the log as it is now.

    It can if it keeps rows, but not every version of them. Without a key the log keeps every
    change.
    """
    chosen = part.table_settings(target.table)
    return bool(target.key and chosen and chosen.mode in ("mirror", "soft_delete"))


def split_reader_of(
    loaded: LoadedPipeline, log: Log, *, skipped: Callable[[], Skipped]
) -> SplitReader | None:
    """Returns the reader; None if only this process can reach the log."""
    if not isinstance(log, KafkaLog):
        return None
    return LogSplitReader(
        settings=KafkaSettings(
            bootstrap=list(log.bootstrap),
            security=log.security,
            client_id=f"headwater-{loaded.name}",
        ),
        rules=loaded.spec.transform,
        routes=loaded.spec.route,
        directory=loaded.directory,
        fetch_bytes=loaded.spec.limits.fetch_size_bytes,
        skipped=skipped,
    )
