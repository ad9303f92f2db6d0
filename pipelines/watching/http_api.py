"""The HTTP server of the process that runs pipelines: on loopback at a free port, and at a fixed
address if there is one."""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.core_log.foundation.clock import Clock
from headwater.core_log.foundation.process_switches import freeze_imports
from headwater.core_log.model.log import Log
from headwater.pipelines.watching.http_guard import App, Guard
from headwater.pipelines.watching.report_stream import ReportStream
from headwater.pipelines.watching.status import StatusBoard

if TYPE_CHECKING:
    import uvicorn

    from headwater.core_log.broker.broker import Broker
    from headwater.pipelines.watching.http_listener import HttpListener

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
    broker: "Broker | None" = None
    """The broker of the log, where this process has it."""


class HttpApi:
    """The server is loaded and made by `start`, beside the event loop: it costs nothing before the
    pipelines run, and holds up nobody then."""

    def __init__(
        self,
        answering: RequestAnswer,
        *,
        token: str,
        listener: "HttpListener | None" = None,
        paths: Sequence[str] = (),
    ) -> None:
        """`listener` is a fixed address beside the one of `endpoint.json`, which an empty token
        leaves out; `paths` are served, or all."""
        self._answering, self._token, self._listener = answering, token, listener
        self._paths = paths
        self._socket: socket.socket | None = None
        self._server: uvicorn.Server | None = None

    async def start(self) -> str:
        """HOST:PORT, for `endpoint.json`; empty without a token."""
        app = await asyncio.to_thread(self._make_app)
        if self._listener is not None:
            guard = self._listener.guard(app, token=self._token)
            await self._listener.start(await asyncio.to_thread(self._listener.make_server, guard))
        if not self._token:
            return ""
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            listener.bind((HOST, 0))
            port = int(listener.getsockname()[1])
            guard = Guard(app, token=self._token, port=port)
            self._server = await asyncio.to_thread(new_server, guard)
            await self._server.startup([listener])
        except BaseException:
            listener.close()
            raise
        self._socket = listener
        return f"{HOST}:{port}"

    async def stop(self) -> None:
        """Lets listeners go, and ends what is then still open after a moment."""
        self._answering.stream.end()
        if self._listener is not None:
            await self._listener.stop()
        if self._server is None or self._socket is None:
            return
        await self._server.shutdown([self._socket])
        self._server = self._socket = None

    def _make_app(self) -> App:
        with freeze_imports():
            from headwater.pipelines.watching.http_routes import routes_of

        return routes_of(self._answering, paths=self._paths)


def new_server(
    app: App, *, certificate: Path | None = None, key: Path | None = None
) -> "uvicorn.Server":
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
        ssl_certfile=None if certificate is None else str(certificate),
        ssl_keyfile=None if key is None else str(key),
    )
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    return server
