"""Routes of one table's page: its activity, its changes, and the transactions that made them."""

import time

from starlette.requests import Request

from headwater.core_log.foundation.errors import ConfigError
from headwater.core_log.model.log import Log, TopicPartition
from headwater.pipelines.console import table_past, transaction_trace
from headwater.pipelines.console.console_context import ConsoleContext
from headwater.pipelines.console.console_route import API, TABLE, ConsoleRoute
from headwater.pipelines.console.table_past import TablePast, TopicActivity
from headwater.pipelines.console.transaction_trace import TracedTransaction
from headwater.pipelines.journal.schemas import StoredSchema
from headwater.pipelines.time_travel.history.key_history import stored_schema


async def activity(console: ConsoleContext, request: Request) -> TopicActivity:
    async with console.open_log() as log:
        stored = await _stored(log, request)
        return await table_past.activity(log, stored.topic, now_ms=time.time_ns() // 1_000_000)


async def changes(console: ConsoleContext, request: Request) -> TablePast:
    key = request.query_params.get("key")
    async with console.open_log() as log:
        stored = await _stored(log, request)
        shown = console.hidden.view(stored.pipeline, stored.schema)
        if key is None:
            return await table_past.recent_changes(log, stored, shown)
        return await table_past.changes_of_key(log, stored, shown, key)


async def transaction(console: ConsoleContext, request: Request) -> TracedTransaction:
    given, appended = request.path_params, request.query_params.get("appended_ms", "")
    if not appended.isdigit():
        raise ConfigError("appended_ms is not a number", hint="take it from the change")
    pipeline = given["pipeline"]
    async with console.open_log() as log:
        return await transaction_trace.trace(
            log,
            pipeline,
            TopicPartition(given["topic"], given["partition"]),
            given["offset"],
            appended_ms=int(appended),
            hidden=console.hidden,
            tasks=console.live.now["pipelines"].get(pipeline, {}).get("tasks", {}),
        )


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
        API + "/pipelines/{pipeline}/transactions/{topic}/{partition:int}/{offset:int}",
        transaction,
        "All rows of the source's transaction that holds this change, and the sinks that have "
        "applied it.",
        TracedTransaction,
        {"appended_ms": "When the change was appended, which says where to look."},
    ),
)
