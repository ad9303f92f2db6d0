"""The HTTP server of the process that runs pipelines: on loopback, at a free port."""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.core_log.foundation.clock import Clock
from headwater.core_log.foundation.process_switches import freeze_imports
from headwater.core_log.model.log import Log
from headwater.pipelines.watching.report_stream import ReportStream
from headwater.pipelines.watching.status import StatusBoard

if TYPE_CHECKING:
    import uvicorn

import hmac
from collections.abc import Iterable, MutableMapping
from typing import Any

import orjson

HOST = "127.0.0.1"
HEAD_BYTES_MAX = 16 << 10
CONNECTIONS_MAX = 128
IDLE_S_MAX, STOP_S_MAX = 5, 1

Hand = Callable[[bytes], Awaitable[Mapping[str, object]]]
"""Takes the body of POST /run; what it answers is answered, as JSON."""


@dataclass(frozen=True, slots=True)
class RequestAnswer:
    """Everything that the routes speak of."""

    board: StatusBoard
    stream: ReportStream
    log: Log
    clock: Clock
    hand_over: Hand


class HttpApi:
    """The server is loaded and made by `start`, beside the event loop: it costs nothing before the
    pipelines run, and holds up nobody then."""

    def __init__(self, answering: RequestAnswer, *, token: str) -> None:
        self._answering, self._token = answering, token
        self._socket: socket.socket | None = None
        self._server: uvicorn.Server | None = None

    async def start(self) -> str:
        """HOST:PORT, for `endpoint.json`."""
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            listener.bind((HOST, 0))
            port = int(listener.getsockname()[1])
            self._server = await asyncio.to_thread(self._make, port)
            await self._server.startup([listener])
        except BaseException:
            listener.close()
            raise
        self._socket = listener
        return f"{HOST}:{port}"

    async def stop(self) -> None:
        """Lets listeners go, and ends what is then still open after a moment."""
        if self._server is None or self._socket is None:
            return
        self._answering.stream.end()
        await self._server.shutdown([self._socket])
        self._server = self._socket = None

    def _make(self, port: int) -> "uvicorn.Server":
        with freeze_imports():
            from headwater.pipelines.watching.http_routes import routes_of

        return new_server(Guard(routes_of(self._answering), token=self._token, port=port))


Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
AsgiSend = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, AsgiSend], Awaitable[None]]

LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")
SCHEME = b"bearer "
OWN_SITES = (b"same-origin", b"none")
"""What a browser says of requests of our own page, and of those that a person has typed."""


class Guard:
    """Stands before every route, those that do not exist included.

    A web page that a browser on this machine has open can send requests to loopback. Its `Origin`
    gives it away, or, where it has made its own name point here, the `Host`; and the token, which
    only readers of `endpoint.json` know, it has not.
    """

    def __init__(
        self,
        app: App,
        *,
        token: str,
        port: int,
        needs_token: Callable[[str], bool] = lambda _: True,
    ) -> None:
        """`needs_token` tells it of a path: a page has none before its script has run."""
        self._app, self._token, self._needs_token = app, token.encode(), needs_token
        self._hosts = {f"{name}:{port}".encode() for name in LOOPBACK_NAMES}
        self._origins = {b"http://" + host for host in self._hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: AsgiSend) -> None:
        assert scope["type"] == "http", "neither lifespan nor websockets are served"
        refusal = self._refusal(scope["path"], scope["headers"])
        if refusal is None:
            await self._app(scope, receive, send)
        else:
            await _refuse(send, *refusal)

    def _refusal(
        self, path: str, headers: Iterable[tuple[bytes, bytes]]
    ) -> tuple[int, str, str] | None:
        """Status, what is so, and what to do."""
        found: dict[bytes, list[bytes]] = {}
        for name, value in headers:
            found.setdefault(name.lower(), []).append(value)
        hosts, origins = found.get(b"host", []), found.get(b"origin", [])
        if len(hosts) != 1 or hosts[0].lower() not in self._hosts:
            return 403, "this host is not one of ours", "use the address in endpoint.json"
        if any(origin.lower() not in self._origins for origin in origins):
            return 403, "requests from other web pages are refused", ""
        if found.get(b"sec-fetch-site", [b"none"])[0] not in OWN_SITES and self._needs_token(path):
            return 403, "requests from other web pages are refused", ""
        if self._needs_token(path) and not self._has_token(found.get(b"authorization", [])):
            return 401, "the token is missing or wrong", "send the token of endpoint.json: Bearer"
        return None

    def _has_token(self, given: list[bytes]) -> bool:
        if len(given) != 1 or not given[0].lower().startswith(SCHEME):
            return False
        return hmac.compare_digest(given[0][len(SCHEME) :].strip(), self._token)


async def _refuse(send: AsgiSend, status: int, problem: str, hint: str) -> None:
    error: dict[str, object] = {
        "kind": "Refused",
        "problem": problem,
        "hint": hint or None,
        "facts": {},
    }
    headers = [
        (b"content-type", b"application/json"),
        (b"cache-control", b"no-store"),
        (b"connection", b"close"),  # a body that nobody reads may still be on its way
    ]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": orjson.dumps({"error": error})})


def new_server(app: App) -> "uvicorn.Server":
    """Without uvicorn's main loop: it would take over the process's signals, and all else that it
    does is to wait for the end."""
    with freeze_imports():
        import uvicorn

    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    config = uvicorn.Config(
        app,
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        h11_max_incomplete_event_size=HEAD_BYTES_MAX,
        limit_concurrency=CONNECTIONS_MAX,
        timeout_keep_alive=IDLE_S_MAX,
        timeout_graceful_shutdown=STOP_S_MAX,
    )
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    return server
