"""The plan of a pipeline before it runs: topics, tables, and what hinders it."""

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from headwater.connectors.source import Replacing, Source, SourcePlanning
from headwater.core_log.foundation.clock import Clock
from headwater.core_log.foundation.errors import ConfigError, Cure, SchemaRefused, failure_of
from headwater.core_log.foundation.name_patterns import Pattern
from headwater.core_log.model.log import Log
from headwater.core_log.model.table_schema import TableId, TableSchema
from headwater.core_log.rows.settings import WireSettings
from headwater.pipelines.file.loader import LoadedPipeline
from headwater.pipelines.journal.commits import load_positions
from headwater.pipelines.journal.generations import NONE, Generations, load_generations
from headwater.pipelines.journal.replacements import replacements_of
from headwater.pipelines.journal.schemas import StoredSchema, every_topic_of
from headwater.pipelines.loops.assembly import (
    make_sink,
    make_source,
    row_estimates,
    topic_rules,
    wire_of,
)
from headwater.pipelines.loops.ingest.table_topics import TopicRules, partitions_for
from headwater.pipelines.transforms.after_log import RowTransforms
from headwater.pipelines.transforms.before_log import MasksAndDrops, salt_of
from headwater.pipelines.transforms.masks import is_stricter
from headwater.pipelines.transforms.rows import RuleTables

logger = logging.getLogger(__name__)

KEY = "key"
"""The kind of a difference in the key."""


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
    hindrance: str = ""
    """Why the new records cannot be made of those that are there."""


@dataclass(frozen=True, slots=True)
class TopicPlan:
    topic: str
    table: str
    key: tuple[str, ...]
    partitions: int
    cleanup: str
    is_new: bool


@dataclass(frozen=True, slots=True)
class TableFailure:
    """A table that cannot be planned, in the log or in one sink; the others can."""

    table: str
    where: str
    """`transform`, `the log`, or the sink's name."""
    problem: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that a run would begin with."""

    pipeline: str
    topics: tuple[TopicPlan, ...]
    statements: Mapping[str, Sequence[str]]
    """Per sink what it would create or alter."""
    at_source: tuple[str, ...] = ()
    """Objects that would be made there: a publication, a slot."""
    failures: tuple[TableFailure, ...] = ()
    differences: tuple[Difference, ...] = ()
    moves: Mapping[str, str] = field(default_factory=dict)
    """Topics that `run --migrate` would fill anew, and what the next one is called."""
    remarks: tuple[str, ...] = field(default=())


async def plan_of(loaded: LoadedPipeline, log: Log | None, *, clock: Clock) -> Plan:
    """`log` is None when there is none yet."""
    source = make_source(loaded, clock=clock)
    every = {} if log is None else await every_topic_of(log, loaded.name)
    before_log, failures = before_log_of(loaded, every.values()), list[TableFailure]()
    in_log: list[TableSchema] = []
    for schema in await source.discover():
        with _failing_alone(schema.table, "transform", into=failures):
            in_log.append(before_log.schema(schema))
    generations = NONE
    if log is not None:
        generations = await load_generations(log, loaded.name, every)
    rules = topic_rules(loaded, generations)
    stored = {topic: each for topic, each in every.items() if topic not in generations.hidden}
    in_log = _with_topics(in_log, rules, stored, into=failures)
    topics = []
    is_new = any(rules.name_of(schema.table) not in stored for schema in in_log)
    rows = await row_estimates(source) if is_new and rules.partitions is None else {}
    for schema in in_log:
        topic = rules.topic_of(schema, partitions=partitions_for(rows.get(schema.table)))
        topics.append(
            TopicPlan(
                topic=topic.name,
                table=str(schema.table),
                key=schema.key,
                partitions=await log.partition_count(topic.name)
                if log is not None and topic.keeps_partitions and topic.name in stored
                else topic.partitions,
                cleanup=topic.config["cleanup.policy"],
                is_new=topic.name not in stored,
            )
        )
    after_log = RowTransforms(loaded.spec.transform, loaded.spec.route, directory=loaded.directory)
    targets: list[TableSchema] = []
    for schema in in_log:
        with _failing_alone(schema.table, "transform", into=failures):
            targets.append(after_log.schema(schema))
    found = (
        []
        if log is None
        else await differences(loaded, in_log, stored, log, generations, source=source)
    )
    is_rekeyed = any(each.what == KEY for each in found)
    statements: dict[str, Sequence[str]] = {}
    for part in loaded.sinks:
        sink = make_sink(loaded, part, clock=clock)
        told: list[str] = []
        try:
            for schema in targets:
                with _failing_alone(schema.table, part.name, into=failures):
                    try:
                        told += await sink.plan([schema])
                    except SchemaRefused as error:
                        if not is_rekeyed:
                            raise
                        told.append(f"-- {error.problem}: {error.hint}")
        finally:
            await sink.close()
        statements[part.name] = list(dict.fromkeys(told))
    return Plan(
        pipeline=loaded.name,
        topics=tuple(topics),
        statements=statements,
        at_source=tuple(await source.plan()) if isinstance(source, SourcePlanning) else (),
        failures=tuple(failures),
        differences=tuple(found),
        moves=_moves(found, generations),
        remarks=(
            *_remarks(in_log),
            *_of_divided(topics, rows),
            *_of_former(loaded.name, generations, every),
        ),
    )


@contextmanager
def _failing_alone(table: TableId, where: str, *, into: list[TableFailure]) -> Iterator[None]:
    """A dependency that does not answer fails for all tables, and ends the command."""
    try:
        yield
    except Exception as bug:
        error = failure_of(bug)
        if error.cure is Cure.TIME:
            raise
        if error is not bug:
            logger.error("%s cannot be planned in %s", table, where, exc_info=bug)
        into.append(TableFailure(str(table), where, str(error)))


def before_log_of(loaded: LoadedPipeline, stored: Iterable[StoredSchema] = ()) -> MasksAndDrops:
    """`stored`: of the topics that are there, whose hidden columns rules follow."""
    found = MasksAndDrops(loaded.spec.transform, salt=salt_of(loaded.spec.pipeline))
    for each in stored:
        found.follow(each.schema)
    return found


async def differences(
    loaded: LoadedPipeline,
    schemas: Sequence[TableSchema],
    stored: Mapping[str, StoredSchema],
    log: Log,
    generations: Generations = NONE,
    *,
    source: Source,
) -> list[Difference]:
    """Returns the changes that an edited file asks of topics that are there already."""
    rules, wire, found = topic_rules(loaded, generations), wire_of(loaded), []
    pending = replacements_of(await load_positions(log, loaded.name))
    droppings = [(RuleTables(rule), rule) for rule in loaded.spec.transform if rule.drop]
    for schema in schemas:
        topic = rules.topic_of(schema)
        before = stored.get(topic.name)
        if before is None:
            continue
        partitions = await log.partition_count(topic.name)
        if partitions != topic.partitions and not topic.keeps_partitions:
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
            is_followed = replaces(source, loaded, schema.table) or schema.table in pending
            found.append(
                Difference(
                    topic.name,
                    KEY,
                    ", ".join(before.schema.key) or "none",
                    ", ".join(schema.key) or "none",
                    needs_migration=not is_followed,
                    hindrance="" if is_followed else _key_hindrance(before.schema, schema.key),
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
        gone = {
            name
            for tables, rule in droppings
            if tables.match(schema.table)
            for name in {*rule.drop} & {*before.schema.names}
        }
        found += [
            Difference(topic.name, f"drop of {name}", "kept", "dropped", needs_migration=True)
            for name in sorted(gone)
        ]
        columns, before_columns = _unmask(schema), _unmask(before.schema, without=gone)
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


def replaces(source: Source, loaded: LoadedPipeline, table: TableId) -> bool:
    """Whether the source reads the table again by itself when its key has changed there, which an
    edit of the file did not do."""
    chosen = getattr(loaded.source.settings, "keys", {})
    is_chosen = any(Pattern(text).matches(str(table)) for text in chosen)
    return not is_chosen and isinstance(source, Replacing) and source.replaces_tables()


def _key_hindrance(before: TableSchema, key: Sequence[str]) -> str:
    """Records of another key are made of the newest row of each key of before."""
    missing = [name for name in key if name not in before.names]
    if not before.key:
        return "without a key, no record shows which row it belongs to"
    if not key:
        return "without a new key, no record shows whether its row still exists"
    return f"the records have no column {missing[0]}" if missing else ""


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
                hindrance=""
                if is_stricter(wanted, than=column.mask)
                else "values behind a mask are not in the log",
            )


def _unmask(schema: TableSchema, *, without: Collection[str] = ()) -> TableSchema:
    kept = [each for each in schema.columns if each.name not in without]
    columns = tuple(replace(each, mask="") for each in kept)
    return replace(schema, columns=columns).without_ids


def check_needs_no_migration(found: Sequence[Difference]) -> None:
    """Raises ConfigError where old and new records would share a topic and must not."""
    hindering = [each for each in found if each.needs_migration]
    if hindering:
        first = hindering[0]
        raise ConfigError(
            f"the {first.what} of a topic cannot change while it has records",
            hint="headwater plan shows all changes; revert the edit, or fill the next generation "
            "of the topic: headwater run FILE --migrate",
            topic=first.topic,
            found=first.found,
            wanted=first.wanted,
            others=len(hindering) - 1,
        )


def check_can_be_made(found: Sequence[Difference]) -> None:
    """Raises ConfigError where a new generation cannot be made of what is there."""
    hindered = [each for each in found if each.hindrance]
    if hindered:
        first = hindered[0]
        raise ConfigError(
            f"the {first.what} of a topic cannot be made from its records: {first.hindrance}",
            hint="revert the edit, or give the pipeline another name, which reads the source "
            "again into new topics",
            topic=first.topic,
            found=first.found,
            wanted=first.wanted,
        )


def _moves(found: Sequence[Difference], generations: Generations) -> dict[str, str]:
    topics = {each.topic for each in found if each.needs_migration}
    topics -= {each.topic for each in found if each.hindrance}
    firsts = {topic: generations.first(topic) for topic in sorted(topics)}
    return {topic: generations.next_topic(first) for topic, first in firsts.items()}


def _of_former(
    pipeline: str, generations: Generations, every: Mapping[str, StoredSchema]
) -> Iterator[str]:
    for topic, present in sorted(generations.former.items()):
        if topic in every:
            yield (
                f"{topic} is a former generation of {present}, and stays until "
                f"headwater drop {pipeline} --generations"
            )


def _of_divided(topics: Sequence[TopicPlan], rows: Mapping[TableId, int]) -> Iterator[str]:
    estimates = {str(table): count for table, count in rows.items()}
    for each in topics:
        if each.is_new and each.partitions > 1 and each.table in estimates:
            yield (
                f"{each.table} has about {estimates[each.table]:,} rows: its topic gets "
                f"{each.partitions} partitions, unless log.partitions says how many"
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


def _with_topics(
    schemas: Sequence[TableSchema],
    rules: TopicRules,
    stored: Mapping[str, StoredSchema],
    *,
    into: list[TableFailure],
) -> list[TableSchema]:
    """Returns the tables without those whose topic has a reserved name or is another table's, by
    this plan or an earlier run."""
    owners, found = {topic: each.schema.table for topic, each in stored.items()}, []
    for schema in schemas:
        with _failing_alone(schema.table, "the log", into=into):
            topic = rules.name_of(schema.table)
            rules.check_owner(schema.table, owners.setdefault(topic, schema.table))
            found.append(schema)
    return found


def _remarks(schemas: Sequence[TableSchema]) -> list[str]:
    return [
        f"{schema.table} has no key: its topic keeps every change, and sinks can only append"
        for schema in schemas
        if not schema.key
    ]
