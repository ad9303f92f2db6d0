"""Everything that the console answers: its page and files, and its API."""

from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route, Router

from headwater.pipelines.console import (
    cluster_routes,
    letter_routes,
    log_routes,
    pipeline_routes,
    run_routes,
    table_routes,
)
from headwater.pipelines.console.connect_routes import connect_app, is_connect
from headwater.pipelines.console.console_route import ConsoleContext, ConsoleRoute
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
    *run_routes.ROUTES,
    *cluster_routes.ROUTES,
)


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
