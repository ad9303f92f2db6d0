"""Routes of one table's page: its activity, its changes, and the transactions that made them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from starlette.requests import Request

from headwater.core_log.foundation.clock import unix_ms
from headwater.core_log.foundation.errors import ConfigError
from headwater.core_log.model.log import Log, TopicPartition
from headwater.pipelines.console import table_past, transaction_trace
from headwater.pipelines.console.console_route import API, TABLE, ConsoleContext, ConsoleRoute
from headwater.pipelines.console.hidden_columns import ShownColumn
from headwater.pipelines.console.table_past import TablePast, TopicActivity
from headwater.pipelines.console.timeline import Timeline, timeline
from headwater.pipelines.console.transaction_trace import TracedTransaction
from headwater.pipelines.journal.schemas import (
    StoredSchema,
    column_text,
    differences,
    schemas_of_topic,
)
from headwater.pipelines.terminal.quantities import parse_count
from headwater.pipelines.time_travel.history.key_history import stored_schema


async def activity(console: ConsoleContext, request: Request) -> TopicActivity:
    async with console.open_log() as log:
        stored = await _stored(log, request)
        return await table_past.activity(log, stored.topic, now_ms=unix_ms())


async def changes(console: ConsoleContext, request: Request) -> TablePast:
    key = request.query_params.get("key")
    async with console.open_log() as log:
        stored = await _stored(log, request)
        known = await console.hidden.known_schemas(log, stored.pipeline)
        shown = console.hidden.view(stored.pipeline, stored.schema, known)
        if key is None:
            return await table_past.recent_changes(log, stored, shown)
        return await table_past.changes_of_key(log, stored, shown, key)


async def transaction(console: ConsoleContext, request: Request) -> TracedTransaction:
    given = request.path_params
    appended_ms = parse_count(request.query_params.get("appended_ms", ""))
    if appended_ms is None:
        raise ConfigError("appended_ms is not a number", hint="take it from the change")
    pipeline = given["pipeline"]
    async with console.open_log() as log:
        return await transaction_trace.trace(
            log,
            pipeline,
            TopicPartition(given["topic"], given["partition"]),
            given["offset"],
            appended_ms=appended_ms,
            hidden=console.hidden,
            tasks=console.live.now["pipelines"].get(pipeline, {}).get("tasks", {}),
        )


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """One difference from the schema before."""

    what: str
    """added, dropped, altered, key, format or order."""
    column: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """One schema that the table has had."""

    id: int
    recorded_ms: int
    positions: dict[str, str]
    key: list[str]
    columns: list[ShownColumn]
    changes: list[SchemaChange]


@dataclass(frozen=True, slots=True)
class TargetVersion:
    """One version of a table in a target."""

    sink: str
    table: str
    """The target's table."""
    version: str
    offsets: str
    committed: str | None
    position: str | None
    problem: str


async def schema(console: ConsoleContext, request: Request) -> list[SchemaVersion]:
    async with console.open_log() as log:
        stored = await _stored(log, request)
        found = await schemas_of_topic(log, stored.pipeline, stored.topic)
    changes = [[], *(differences(*pair) for pair in pairwise(found))]
    return [
        SchemaVersion(
            each.id,
            each.recorded_ms,
            console.hidden.positions(stored.pipeline, each.positions),
            list(each.schema.key),
            [ShownColumn(one.name, column_text(one)) for one in each.schema.columns],
            [SchemaChange(**change) for change in of_it],
        )
        for each, of_it in zip(found, changes, strict=True)
    ]


async def target(console: ConsoleContext, request: Request) -> list[TargetVersion]:
    """A command asks the targets, so that no driver of theirs is loaded into this process."""
    pipeline = request.path_params["pipeline"]
    async with console.open_log() as log:
        table = (await _stored(log, request)).schema.table
    answer = await console.runs.ask(["status", pipeline, "--positions"])
    found = target_versions(answer.get("positions", {}).get(pipeline, {}), str(table))
    return [replace(each, position=_shown(console, pipeline, each.position)) for each in found]


def _shown(console: ConsoleContext, pipeline: str, position: str | None) -> str | None:
    return None if position is None else console.hidden.positions(pipeline, {"": position})[""]


def target_versions(positions: Mapping[str, Any], table: str) -> list[TargetVersion]:
    """Versions of the target tables that a table of the source goes to."""
    sources: Mapping[str, list[str]] = positions.get("sources", {})
    return [
        TargetVersion(
            sink,
            name,
            str(each.get("version", "")),
            str(each.get("offsets", "")),
            each.get("committed"),
            each.get("position"),
            str(each.get("problem", "")),
        )
        for sink, tables in positions.get("versions", {}).items()
        for name, versions in tables.items()
        if table in sources.get(name, ())
        for each in versions
    ]


async def happenings(console: ConsoleContext, request: Request) -> Timeline:
    """Returns the events of a pipeline, or of one of its tables."""
    given = request.path_params
    pipeline = given["pipeline"]
    tables = console.live.now["pipelines"].get(pipeline, {}).get("tables", {})
    verified = {table: of.get("verified") for table, of in tables.items()}
    async with console.open_log() as log:
        return await timeline(log, pipeline, given.get("table", ""), verified=verified)


async def _stored(log: Log, request: Request) -> StoredSchema:
    return await stored_schema(log, request.path_params["pipeline"], request.path_params["table"])


ROUTES = (
    ConsoleRoute(
        "GET",
        TABLE + "/activity",
        activity,
        "How many records were appended in each of 120 slots, by the time index alone.",
        TopicActivity,
    ),
    ConsoleRoute(
        "GET",
        TABLE + "/changes",
        changes,
        "The newest changes of the 60 keys that changed last, or of one key; `visible_ms` is the "
        "first moment as of which a change shows. Values are text.",
        TablePast,
        {"key": "Only this key, written as for the command `rows`."},
    ),
    ConsoleRoute(
        "GET",
        API + "/pipelines/{pipeline}/transactions/{topic}/{partition:count}/{offset:count}",
        transaction,
        "All rows of the source's transaction that holds this change, and the sinks that have "
        "applied it.",
        TracedTransaction,
        {"appended_ms": "When the change was appended, which says where to look."},
    ),
    ConsoleRoute(
        "GET",
        TABLE + "/schema",
        schema,
        "The schemas that the table has had, the oldest first, with the changes of each.",
        list[SchemaVersion],
    ),
    ConsoleRoute(
        "GET",
        TABLE + "/target",
        target,
        "The newest versions of the table in targets that keep some, such as a lake.",
        list[TargetVersion],
    ),
    *(
        ConsoleRoute(
            "GET",
            path + "/timeline",
            happenings,
            f"Events of {whose}, newest first: schemas, comparisons, commands and the dead "
            "letters that are left.",
            Timeline,
        )
        for path, whose in (
            (API + "/pipelines/{pipeline}", "a pipeline and its tables"),
            (TABLE, "a table"),
        )
    ),
)
