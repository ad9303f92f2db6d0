"""Routes of the HTTP API: status, metrics, reports as they come, and signals for the log."""

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route, Router

from headwater.core_log.foundation.endpoint import VIA_HEADER
from headwater.core_log.foundation.errors import (
    ConfigError,
    Cure,
    DirectoryInUse,
    Fenced,
    HeadwaterError,
    LogRejected,
)
from headwater.core_log.model.log import Log, TopicPartition
from headwater.pipelines.journal.audit import audit
from headwater.pipelines.journal.commits import load_positions
from headwater.pipelines.journal.control import RESTART, Signal, pause_signal, write_control
from headwater.pipelines.journal.generations import source_parts
from headwater.pipelines.terminal.control_writer import find_table
from headwater.pipelines.watching.http_api import RequestAnswer
from headwater.pipelines.watching.http_guard import App, AsgiSend, Receive, Scope
from headwater.pipelines.watching.metrics import exposition
from headwater.pipelines.watching.task_status import SOURCE

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker

logger = logging.getLogger(__name__)

BODY_BYTES_MAX = 16 << 20
"""Room for a directory of a thousand pipeline files that are larger than most."""
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}

RouteHandler = Callable[[Request], Awaitable[Response]]


class NotFound(HeadwaterError):
    """The request is about a pipeline that is not here."""


class TooLarge(HeadwaterError):
    """The request is larger than any that could be meant."""


STATUS_BY_ERROR: dict[type[HeadwaterError], int] = {
    NotFound: 404,
    TooLarge: 413,
    DirectoryInUse: 409,
    Fenced: 409,
}


NOT_SERVED = {404: "the address has no page", 405: "the address is served by another method"}


class HttpRoute(NamedTuple):
    """One route; `docs/http-api.md` is this table."""

    method: str
    path: str
    handler: str
    meaning: str


CONTROLS = {
    "pause": "Pause the pipeline, or one of its tables, until it is resumed; over restarts, too.",
    "resume": "Resume it. A quarantine of it ends.",
    "restart": "Restart it at its offsets. A quarantine of it ends.",
}
ROUTES = (
    HttpRoute(
        "GET",
        "/healthz",
        "healthz",
        'Without a token: `{"ok": true}` for as long as the process answers.',
    ),
    HttpRoute(
        "GET",
        "/readyz",
        "readyz",
        'Without a token: `{"ok": true}`, or 503 and `{"ok": false}` while the log cannot be used'
        " or the process stops. Tables and tasks that have failed are for alerts, not for this.",
    ),
    HttpRoute(
        "GET",
        "/status",
        "status",
        "Running pipelines, their lag, snapshots and problems: the fields of [status](status.md).",
    ),
    HttpRoute("GET", "/metrics", "metrics", "[Metrics](metrics.md) in Prometheus' text format."),
    HttpRoute(
        "GET",
        "/events",
        "events",
        "Reports of the pipelines as lines of JSON, from now on; `?pipeline=NAME` for one of them."
        " An empty line now and then shows that the connection lives. A slow reader gets"
        ' `{"kind": "Missed", "count": 7}` for reports that it missed.',
    ),
    HttpRoute(
        "GET",
        "/pipelines/{pipeline}/offsets",
        "offsets",
        "The source's position in the log, and the sinks' last reported offsets.",
    ),
    HttpRoute(
        "GET",
        "/pipelines/{pipeline}/rows/{table}/{key:path}",
        "row",
        "The newest state of one key in the log; `row` is null if it was deleted. The table has "
        "its source name, the key is written as for the command `rows`; 404 if the log has never "
        "had the key.",
    ),
    *(
        HttpRoute("POST", f"/pipelines/{{pipeline}}/{verb}{table}", "signal", meaning)
        for verb, meaning in CONTROLS.items()
        for table in ("", "/{table:path}")
    ),
    HttpRoute(
        "POST",
        "/run",
        "run",
        "Hand over pipelines, as a second `headwater run` does; between Headwater's own processes.",
    ),
    HttpRoute(
        "POST",
        "/backup",
        "hold",
        "Hold the files of the log as of now, for a backup; between Headwater's own processes.",
    ),
    HttpRoute("POST", "/backup/end", "release", "Release them."),
)


def routes_of(answering: RequestAnswer, *, paths: Sequence[str] = ()) -> App:
    """An ASGI application without a guard of its own, with some of the paths or all."""
    routes = _Routes(answering)
    router = Router(
        [
            Route(each.path, answered_safely(getattr(routes, each.handler)), methods=[each.method])
            for each in ROUTES
            if not paths or each.path in paths
        ]
    )

    async def app(scope: Scope, receive: Receive, send: AsgiSend) -> None:
        try:
            await router({**scope, "app": app}, receive, send)  # or it answers by itself, in text
        except HTTPException as error:
            told = describe_error(
                "NotFound", NOT_SERVED[error.status_code], hint="docs/http-api.md"
            )
            response = json_response(told, status=error.status_code)
            response.headers.update(error.headers or {})
            await response(scope, receive, send)

    return app


class _Routes:
    """One method per route; what they raise becomes an answer elsewhere."""

    def __init__(self, answering: RequestAnswer) -> None:
        self._to = answering

    async def healthz(self, request: Request) -> Response:
        return json_response({"ok": True})

    async def readyz(self, request: Request) -> Response:
        is_ready = self._to.board.is_ready
        return json_response({"ok": is_ready}, status=200 if is_ready else 503)

    async def status(self, request: Request) -> Response:
        return json_response(await self._snapshot())

    async def metrics(self, request: Request) -> Response:
        content = exposition(await self._snapshot(of_all=False))
        return Response(content, media_type=METRICS_TYPE, headers=HEADERS)

    async def events(self, request: Request) -> Response:
        """Reports as lines of JSON, from now on, of one `?pipeline=` or of all."""
        if self._to.stream.is_full:
            raise TooLarge("the endpoint has too many listeners", hint="end one of them")
        pipeline = request.query_params.get("pipeline")

        async def lines() -> AsyncIterator[bytes]:
            with self._to.stream.listening(pipeline) as listener:
                async for line in listener.lines():
                    yield line

        return StreamingResponse(lines(), media_type="application/x-ndjson", headers=HEADERS)

    async def offsets(self, request: Request) -> Response:
        """The source's position as the log has it, and where the sinks said they stand."""
        pipeline = self._pipeline(request)
        tasks = self._to.board.snapshot()["pipelines"][pipeline]["tasks"]
        return json_response(
            {
                "pipeline": pipeline,
                "source": source_parts(await load_positions(self._to.log, pipeline)),
                "sinks": {
                    name: task["positions"] for name, task in tasks.items() if name != SOURCE
                },
            }
        )

    async def row(self, request: Request) -> Response:
        """One key of a table, searched for from the end of its partition."""
        from headwater.pipelines.time_travel.history.key_history import (
            change_facts,
            key_bytes,
            newest_change,
            stored_schema,
        )

        pipeline = self._pipeline(request)
        stored = await stored_schema(self._to.log, pipeline, request.path_params["table"])
        keys = await key_bytes(self._to.log, stored, request.path_params["key"])
        found = await newest_change(self._to.log, stored.topic, keys, ends=None)
        if found is None:
            raise NotFound("the log has never had this key", table=str(stored.schema.table))
        return json_response({"table": str(stored.schema.table)} | change_facts(found))

    async def signal(self, request: Request) -> Response:
        """Writes to the log what is wanted; the pipeline follows it, now or when it is next run."""
        await read_body(request)
        pipeline, verb = self._pipeline(request), request.url.path.split("/")[3]
        table = request.path_params.get("table")
        if table == "":
            raise ConfigError("the path has no table", hint="take the last slash away for all")
        if table is not None:
            table = find_table(table, self._to.board.tables(pipeline), pipeline=pipeline)
        id = secrets.token_hex(8)
        signal = (
            Signal(RESTART, table or "", id)
            if verb == "restart"
            else pause_signal(table=table or "", is_paused=verb == "pause", id=id)
        )
        target = pipeline if table is None else f"{pipeline}/{table}"
        via = request.headers.get(VIA_HEADER, "http")
        async with audit(self._to.log, verb, target, via=via):
            await write_control(self._to.log, pipeline, [signal], now_ms=self._to.clock.now_ms())
        answer = {"pipeline": pipeline, "table": table, "signal": verb, "id": id}
        return json_response(answer, status=202)

    async def run(self, request: Request) -> Response:
        """Hands the body to the owner of the pipelines."""
        return json_response(await self._to.hand_over(await read_body(request)))

    async def hold(self, request: Request) -> Response:
        from headwater.pipelines.backup.held_files import encode_held, hold_files

        await read_body(request)
        held = await hold_files(self._broker())
        return Response(encode_held(held), media_type="application/json", headers=HEADERS)

    async def release(self, request: Request) -> Response:
        from headwater.core_log.broker.held_log import release

        await read_body(request)
        broker = self._broker()
        await asyncio.to_thread(release, broker.store.files, broker.settings.data)
        return json_response({"ok": True})

    def _broker(self) -> "Broker":
        if self._to.broker is None:
            raise ConfigError(
                "the process does not have the log",
                hint="back up the Kafka cluster of `log:` by its own means",
            )
        return self._to.broker

    async def _snapshot(self, *, of_all: bool = True) -> Mapping[str, object]:
        """`of_all` members that share the log, or of this process alone."""
        board = self._to.board
        try:
            board.know_ends(await read_ends(self._to.log, board.partitions()))
        except HeadwaterError as error:  # a screen with a hole is better than none
            logger.debug("the ends of the log are not known now: %s", error)
        return board.snapshot() if of_all else board.own_snapshot()

    def _pipeline(self, request: Request) -> str:
        name = str(request.path_params["pipeline"])
        running = self._to.board.pipelines()
        if name not in running:
            raise NotFound(
                "the pipeline is not running here",
                hint=f"running pipelines: {', '.join(sorted(running)) or 'none'}",
                pipeline=name,
            )
        return name


def answered_safely(handler: RouteHandler) -> RouteHandler:
    """Expected failures are answered with their words; a bug only with the fact, since its words
    may quote anything."""

    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except HeadwaterError as error:
            return json_response(
                describe_error(
                    type(error).__name__, error.problem, hint=error.hint, facts=error.facts
                ),
                status=_status_of(error),
            )
        except Exception:
            logger.exception("%s %s failed", request.method, request.url.path)
            hint = "the log of the process that runs the pipelines has its traceback"
            return json_response(
                describe_error("InternalError", "internal error, a bug of Headwater", hint=hint),
                status=500,
            )

    return answer


def describe_error(
    kind: str, problem: str, *, hint: str, facts: Mapping[str, object] | None = None
) -> Mapping[str, object]:
    answer = {"kind": kind, "problem": problem, "hint": hint or None, "facts": facts or {}}
    return {"error": answer}


def _status_of(error: HeadwaterError) -> int:
    for kind in type(error).__mro__:
        if kind in STATUS_BY_ERROR:
            return STATUS_BY_ERROR[kind]
    return 503 if error.cure is Cure.TIME else 400


def json_response(content: object, *, status: int = 200) -> Response:
    body = orjson.dumps(content, default=str)
    return Response(body, status, media_type="application/json", headers=HEADERS)


async def read_body(request: Request) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY_BYTES_MAX:
            raise TooLarge("the request is too large", bytes_max=BODY_BYTES_MAX)
    return bytes(body)


async def read_ends(log: Log, partitions: Iterable[str]) -> Mapping[str, int]:
    """Decided ends, by `topic-partition`; our own bookkeeping is nobody's backlog."""
    named = {name: _partition(name) for name in partitions if not name.startswith("__")}
    wanted = {name: found for name, found in named.items() if found is not None}
    if not wanted:
        return {}
    try:
        bounds = await log.bounds(wanted.values())
    except LogRejected:  # a former topic of a table is gone
        there = [part for part in wanted.values() if await _is_there(log, part)]
        bounds = await log.bounds(there)
        wanted = {name: part for name, part in wanted.items() if part in bounds}
    return {name: bounds[partition].stable for name, partition in wanted.items()}


async def _is_there(log: Log, partition: TopicPartition) -> bool:
    with suppress(LogRejected):
        return bool(await log.topic_id(partition.topic))
    return False


def _partition(name: str) -> TopicPartition | None:
    topic, _, number = name.rpartition("-")
    return TopicPartition(topic, int(number)) if topic and number.isdigit() else None
