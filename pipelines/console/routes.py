"""What the console answers: its page, the live status, the past of tables, and signals."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import Route, Router

from headwater.core_log.foundation.errors import ConfigError, LogUnavailable
from headwater.core_log.model.log import Log, TopicPartition
from headwater.pipelines.console import table_past, transaction_trace
from headwater.pipelines.console.live_status import LISTENERS_MAX, LiveStatus
from headwater.pipelines.journal.schemas import StoredSchema
from headwater.pipelines.time_travel.history.key_history import stored_schema
from headwater.pipelines.watching.http_guard import PROBES, App, AsgiSend, Receive, Scope
from headwater.pipelines.watching.http_routes import (
    CONTROLS,
    NOT_SERVED,
    HttpRoute,
    TooLarge,
    answered_safely,
    describe_error,
    json_response,
)

WEB = (Path(__file__).parent / "web").resolve()
TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
}
API = "/api/v1"
PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "font-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
TABLE = API + "/pipelines/{pipeline}/tables/{table}"

OpenLog = Callable[[], AbstractAsyncContextManager[Log]]
"""Opens the log for one look; over a directory at rest it is owned that long, and no longer."""

LOOKS = (
    HttpRoute("GET", API + "/session", "session", "Whether signals may be sent here."),
    HttpRoute(
        "GET",
        API + "/live",
        "live",
        "Server-sent events: `past` once (rates and lags of the last ten minutes), then `status` "
        "each second, with the fields of [status](status.md).",
    ),
    HttpRoute(
        "GET",
        TABLE + "/activity",
        "activity",
        "How many records were appended in each of 120 slots, by the time index alone.",
    ),
    HttpRoute(
        "GET",
        TABLE + "/changes",
        "changes",
        "The newest changes of the 60 keys that changed last, or of one `?key=`; `visible_ms` is "
        "the first moment as of which a change shows. Values are text.",
    ),
    HttpRoute(
        "GET",
        API + "/pipelines/{pipeline}/transactions/{topic}/{partition:int}/{offset:int}",
        "transaction",
        "All rows of the source's transaction that holds this change, and the sinks that have "
        "applied it; `?appended_ms=` of the change says where to look.",
    ),
)
SIGNALS = tuple(
    HttpRoute("POST", f"{API}/pipelines/{{pipeline}}/{verb}{table}", "signal", meaning)
    for verb, meaning in CONTROLS.items()
    for table in ("", "/{table:path}")
)


def console_app(live: LiveStatus, open_log: OpenLog, *, is_read_only: bool) -> App:
    """An ASGI application without a guard of its own; of a read-only one no signal has a route."""
    handlers = _Handlers(live, open_log, is_read_only=is_read_only)
    served = LOOKS if is_read_only else (*LOOKS, *SIGNALS)
    router = Router(
        [
            *(
                Route(
                    each.path,
                    answered_safely(getattr(handlers, each.handler)),
                    methods=[each.method],
                )
                for each in served
            ),
            *(Route(path, handlers.probe, methods=["GET"]) for path in PROBES),
            Route("/static/{path:path}", handlers.file, methods=["GET"]),
            Route("/", handlers.page, methods=["GET"]),
            Route("/pipelines/{path:path}", handlers.page, methods=["GET"]),
        ]
    )

    async def app(scope: Scope, receive: Receive, send: AsgiSend) -> None:
        try:
            await router({**scope, "app": app}, receive, send)
        except HTTPException as error:
            told = describe_error("NotFound", NOT_SERVED[error.status_code], hint="docs/console.md")
            response = json_response(told, status=error.status_code)
            response.headers.update(error.headers or {})
            await response(scope, receive, send)

    return app


def needs_token(path: str) -> bool:
    """The page and its files are the same for everybody."""
    return path.startswith("/api/")


class _Handlers:
    """One method per route."""

    def __init__(self, live: LiveStatus, open_log: OpenLog, *, is_read_only: bool) -> None:
        self._live, self._open_log, self._is_read_only = live, open_log, is_read_only

    async def probe(self, request: Request) -> Response:
        return json_response({"ok": True})

    async def page(self, request: Request) -> Response:
        return _file("index.html")

    async def file(self, request: Request) -> Response:
        return _file(request.path_params["path"])

    async def session(self, request: Request) -> Response:
        return json_response({"is_read_only": self._is_read_only})

    async def live(self, request: Request) -> Response:
        if self._live.listeners >= LISTENERS_MAX:
            raise TooLarge("the console has too many listeners", hint="close a page of it")

        async def events() -> AsyncIterator[bytes]:
            async for event in self._live.events():
                yield event

        return StreamingResponse(
            events(), media_type="text/event-stream", headers={"Cache-Control": "no-store"}
        )

    async def activity(self, request: Request) -> Response:
        async with self._open_log() as log:
            stored = await self._stored(log, request)
            return json_response(
                await table_past.activity(log, stored, now_ms=time.time_ns() // 1_000_000)
            )

    async def changes(self, request: Request) -> Response:
        key = request.query_params.get("key")
        async with self._open_log() as log:
            stored = await self._stored(log, request)
            if key is None:
                return json_response(await table_past.recent_changes(log, stored))
            return json_response(await table_past.changes_of_key(log, stored, key))

    async def transaction(self, request: Request) -> Response:
        given, appended = request.path_params, request.query_params.get("appended_ms", "")
        if not appended.isdigit():
            raise ConfigError("appended_ms is not a number", hint="take it from the change")
        place = TopicPartition(given["topic"], given["partition"])
        async with self._open_log() as log:
            found = await transaction_trace.trace(
                log, given["pipeline"], place, given["offset"], appended_ms=int(appended)
            )
        pipeline = self._live.now["pipelines"].get(given["pipeline"], {})
        sinks = transaction_trace.applied_by(pipeline.get("tasks", {}), found["changes"])
        return json_response(found | {"sinks": sinks})

    async def signal(self, request: Request) -> Response:
        """Hands the signal to the process that runs the pipeline, which writes it to the log."""
        owner = await self._live.owner()
        if owner is None:
            raise LogUnavailable("no pipeline is running on this log", hint="headwater run")
        verb = request.url.path.removeprefix(API).split("/")[3]
        wanted = ["pipelines", request.path_params["pipeline"], verb]
        if "table" in request.path_params:
            wanted.append(request.path_params["table"])
        path = "".join(f"/{quote(part, safe='')}" for part in wanted)
        return json_response(await asyncio.to_thread(owner.ask, "POST", path), status=202)

    async def _stored(self, log: Log, request: Request) -> StoredSchema:
        return await stored_schema(
            log, request.path_params["pipeline"], request.path_params["table"]
        )


def _file(name: str) -> Response:
    path = (WEB / name).resolve()
    kind = TYPES.get(path.suffix)
    if kind is None or not path.is_relative_to(WEB) or not path.is_file():
        raise HTTPException(404)
    return FileResponse(path, media_type=kind, headers=PAGE_HEADERS)
