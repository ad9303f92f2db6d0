"""What a pipeline would make and change, before it does: topics, tables, and what hinders it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from core_log.clock import Clock
from core_log.errors import ConfigError
from core_log.log import Log
from core_log.rows.settings import WireSettings
from core_log.table_schema import TableSchema
from pipelines.file.loading import LoadedPipeline
from pipelines.journal.schemas import StoredSchema, topics_of
from pipelines.loops.build import make_sink, make_source, topic_rules, wire_of
from pipelines.transforms.after_log import AfterLog
from pipelines.transforms.before_log import BeforeLog, salt_of


@dataclass(frozen=True, slots=True)
class Difference:
    """Between what the log holds and what the pipeline file asks for."""

    topic: str
    what: str
    """`partitions`, `key`, `columns`, `value`, or another name of what differs."""
    found: str
    wanted: str
    needs_migration: bool
    """Records of both kinds cannot share a topic: it needs a new generation."""


@dataclass(frozen=True, slots=True)
class TopicPlan:
    topic: str
    table: str
    key: tuple[str, ...]
    partitions: int
    cleanup: str
    is_new: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that a run would begin with."""

    pipeline: str
    topics: tuple[TopicPlan, ...]
    statements: Mapping[str, Sequence[str]]
    """Per sink what it would create or alter."""
    differences: tuple[Difference, ...] = ()
    remarks: tuple[str, ...] = field(default=())


async def plan_of(loaded: LoadedPipeline, log: Log | None, *, clock: Clock) -> Plan:
    """`log` is None when there is none yet."""
    tables = await make_source(loaded, clock=clock).discover()
    in_log = [before_log_of(loaded).schema(schema) for schema in tables]
    rules = topic_rules(loaded)
    stored = {} if log is None else await topics_of(log, loaded.name)
    topics = []
    for schema in in_log:
        topic = rules.topic_of(schema)
        topics.append(
            TopicPlan(
                topic=topic.name,
                table=str(schema.table),
                key=schema.key,
                partitions=topic.partitions,
                cleanup=topic.config["cleanup.policy"],
                is_new=topic.name not in stored,
            )
        )
    _check_names(topics)
    after_log = AfterLog(loaded.spec.transform, loaded.spec.route, directory=loaded.directory)
    targets = [after_log.schema(schema) for schema in in_log]
    statements = {}
    for part in loaded.sinks:
        sink = make_sink(loaded, part, clock=clock)
        try:
            statements[part.name] = await sink.plan(targets)
        finally:
            await sink.close()
    return Plan(
        pipeline=loaded.name,
        topics=tuple(topics),
        statements=statements,
        differences=() if log is None else tuple(await differences(loaded, in_log, stored, log)),
        remarks=tuple(_remarks(in_log)),
    )


def before_log_of(loaded: LoadedPipeline) -> BeforeLog:
    return BeforeLog(loaded.spec.transform, salt=salt_of(loaded.spec.pipeline))


async def differences(
    loaded: LoadedPipeline,
    schemas: Sequence[TableSchema],
    stored: Mapping[str, StoredSchema],
    log: Log,
) -> list[Difference]:
    """What an edited file asks of topics that are there already."""
    rules, wire, found = topic_rules(loaded), wire_of(loaded), []
    for schema in schemas:
        topic = rules.topic_of(schema)
        before = stored.get(topic.name)
        if before is None:
            continue
        partitions = await log.partition_count(topic.name)
        if partitions != topic.partitions:
            found.append(
                Difference(
                    topic.name,
                    "partitions",
                    str(partitions),
                    str(topic.partitions),
                    needs_migration=True,
                )
            )
        if before.schema.key != schema.key:
            found.append(
                Difference(
                    topic.name,
                    "key",
                    ", ".join(before.schema.key) or "none",
                    ", ".join(schema.key) or "none",
                    needs_migration=True,
                )
            )
        if before.wire != wire:
            found.append(
                Difference(
                    topic.name,
                    "value",
                    wire_text(before.wire, wire),
                    wire_text(wire, before.wire),
                    needs_migration=True,
                )
            )
        found += _mask_differences(topic.name, before.schema, schema)
        columns, before_columns = _unmasked(schema), _unmasked(before.schema)
        if before_columns.columns != columns.columns:
            found.append(
                Difference(
                    topic.name,
                    "columns",
                    _only(before_columns, columns) or "as they were",
                    _only(columns, before_columns) or "fewer",
                    needs_migration=False,
                )
            )
    return found


def _mask_differences(topic: str, before: TableSchema, schema: TableSchema) -> Iterator[Difference]:
    """Masked and unmasked values of one column cannot share a topic."""
    masks = {column.name: column.mask for column in schema.columns}
    for column in before.columns:
        wanted = masks.get(column.name, column.mask)
        if wanted != column.mask:
            yield Difference(
                topic,
                f"mask of {column.name}",
                column.mask or "none",
                wanted or "none",
                needs_migration=True,
            )


def _unmasked(schema: TableSchema) -> TableSchema:
    return replace(schema, columns=tuple(replace(each, mask="") for each in schema.columns))


def check_needs_no_migration(found: Sequence[Difference]) -> None:
    """Raises ConfigError where old and new records would share a topic and must not."""
    hindering = [each for each in found if each.needs_migration]
    if hindering:
        first = hindering[0]
        raise ConfigError(
            f"the {first.what} of a topic cannot change while it holds records",
            hint="headwater plan shows all of it; take the edit back, or give the pipeline another "
            "name, which fills new topics",
            topic=first.topic,
            found=first.found,
            wanted=first.wanted,
            others=len(hindering) - 1,
        )


def wire_text(wire: WireSettings, other: WireSettings) -> str:
    """The choices in which it is not like the other."""
    ours, theirs = wire.model_dump(), other.model_dump()
    return ", ".join(f"{name}={ours[name]}" for name in ours if ours[name] != theirs[name])


def _only(schema: TableSchema, other: TableSchema) -> str:
    known = set(map(repr, other.columns))
    return ", ".join(
        f"{column.name} {column.type}" for column in schema.columns if repr(column) not in known
    )


def _check_names(topics: Sequence[TopicPlan]) -> None:
    owners: dict[str, str] = {}
    for each in topics:
        owner = owners.setdefault(each.topic, each.table)
        if owner != each.table:
            raise ConfigError(
                "two tables would share one topic, since topics allow fewer characters",
                hint="capture only one of them, or give log.topic another form",
                topic=each.topic,
                tables=[owner, each.table],
            )


def _remarks(schemas: Sequence[TableSchema]) -> list[str]:
    return [
        f"{schema.table} has no key: its topic keeps every change, and sinks can only append"
        for schema in schemas
        if not schema.key
    ]
