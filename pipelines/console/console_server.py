"""The HTTP server of the console: its page and files, its API, and Kafka Connect's."""

import asyncio
import base64
import binascii
import secrets
from contextlib import suppress
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route, Router

from headwater.pipelines.console import (
    letter_routes,
    log_routes,
    pipeline_routes,
    table_routes,
)
from headwater.pipelines.console.command_runs import CommandRuns
from headwater.pipelines.console.connect_routes import CONNECT, connect_app, is_connect
from headwater.pipelines.console.console_route import (
    ConsoleContext,
    ConsoleRoute,
    ConsoleSources,
    SharedLog,
)
from headwater.pipelines.console.live_status import LiveStatus
from headwater.pipelines.file.http_settings import HttpSettings
from headwater.pipelines.watching.http_api import HttpListener
from headwater.pipelines.watching.http_guard import PROBES, App, AsgiSend, Receive, Scope
from headwater.pipelines.watching.http_routes import (
    NOT_SERVED,
    RouteHandler,
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
PAGES = (
    "/",
    *(
        f"/{page}{rest}"
        for page in ("pipelines", "log", "letters", "verification", "audit", "cluster")
        for rest in ("", "/{path:path}")
    ),
)
"""Addresses of pages; the script finds the page by the address."""
ROUTES: tuple[ConsoleRoute, ...] = (
    *pipeline_routes.ROUTES,
    *table_routes.ROUTES,
    *log_routes.ROUTES,
    *letter_routes.ROUTES,
)
BASIC = b"basic "


class ConsoleServer:
    """Serves until it is stopped; its token is new with every start, unless a file has it."""

    def __init__(self, settings: HttpSettings) -> None:
        self._listener = HttpListener(settings)
        self.token = self._listener.token or secrets.token_urlsafe(24)
        self._own_token = "" if self._listener.token else self.token
        self.port = self._listener.port

    @property
    def link(self) -> str:
        """The address of the page, with the token in its fragment, which no request carries."""
        return f"{self._listener.address}/#{self.token}"

    async def serve(self, sources: ConsoleSources) -> None:
        """Runs until it is cancelled."""
        live = LiveStatus(sources.find_owner, sources.hidden)
        following = asyncio.get_running_loop().create_task(live.follow())
        runs = CommandRuns(sources.arguments, file=sources.file, hidden=sources.hidden)
        console = ConsoleContext(live, sources, SharedLog(sources.open_log).open, runs)
        guard = self._listener.guard(
            console_app(console, worker=self._listener.address.partition("://")[2]),
            token=self._own_token,
            needs_token=needs_token,
        )
        try:
            await self._listener.start(
                await asyncio.to_thread(
                    self._listener.make_server, BasicLogin(guard, prefix=CONNECT)
                )
            )
            await following
        finally:
            following.cancel()
            with suppress(asyncio.CancelledError):
                await following
            await runs.close()
            await self._listener.stop()


class BasicLogin:
    """HTTP Basic for tools that know no other way. It stands before the guard, and hands it the
    password of some paths as the token, whatever the user."""

    def __init__(self, app: App, *, prefix: str) -> None:
        self._app, self._prefix = app, prefix

    async def __call__(self, scope: Scope, receive: Receive, send: AsgiSend) -> None:
        if scope["type"] == "http" and scope["path"].startswith(self._prefix):
            headers = [(name, _as_bearer(name, value)) for name, value in scope["headers"]]
            scope = {**scope, "headers": headers}
        await self._app(scope, receive, send)


def _as_bearer(name: bytes, value: bytes) -> bytes:
    if name.lower() != b"authorization" or not value.lower().startswith(BASIC):
        return value
    try:
        _, _, password = base64.b64decode(value[len(BASIC) :], validate=True).partition(b":")
    except binascii.Error:
        return value
    return b"Bearer " + password


def console_app(console: ConsoleContext, *, worker: str) -> App:
    """An ASGI application without a guard of its own; a read-only one has no route that acts."""
    served = [each for each in ROUTES if each.is_look or not console.sources.is_read_only]
    router = Router(
        [
            *(
                Route(each.path, answered_safely(_handler(console, each)), methods=[each.method])
                for each in served
            ),
            *(Route(path, _probe, methods=["GET"]) for path in PROBES),
            Route("/static/{path:path}", _static, methods=["GET"]),
            *(Route(path, _page, methods=["GET"]) for path in PAGES),
        ]
    )

    connect = connect_app(console, worker=worker)

    async def app(scope: Scope, receive: Receive, send: AsgiSend) -> None:
        if console.sources.has_connect and is_connect(scope["path"]):
            await connect(scope, receive, send)
            return
        try:
            await router({**scope, "app": app}, receive, send)
        except HTTPException as error:
            told = describe_error("NotFound", NOT_SERVED[error.status_code], hint="docs/console.md")
            response = json_response(told, status=error.status_code)
            response.headers.update(error.headers or {})
            await response(scope, receive, send)

    return app


def _handler(console: ConsoleContext, route: ConsoleRoute) -> RouteHandler:
    async def answer(request: Request) -> Response:
        found = await route.handler(console, request)
        return found if isinstance(found, Response) else json_response(found, status=route.status)

    return answer


def needs_token(path: str) -> bool:
    """The page and its files are the same for everybody."""
    return path.startswith("/api/") or is_connect(path)


async def _probe(request: Request) -> Response:
    return json_response({"ok": True})


async def _page(request: Request) -> Response:
    return _file("index.html")


async def _static(request: Request) -> Response:
    return _file(request.path_params["path"])


def _file(name: str) -> Response:
    try:
        path = (WEB / name).resolve()
        is_served = path.suffix in TYPES and path.is_relative_to(WEB) and path.is_file()
    except (OSError, ValueError):  # too long for a name of a file, or a null byte in it
        is_served = False
    if not is_served:
        raise HTTPException(404)
    kind = TYPES[path.suffix]
    return FileResponse(path, media_type=kind, headers=PAGE_HEADERS)
