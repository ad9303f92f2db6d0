"""HTTP servers of a process: at a free port of loopback, at a fixed address, and for listeners."""

import asyncio
import logging
import secrets
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from headwater.core_log.foundation.clock import Clock
from headwater.core_log.foundation.endpoint import parse_address
from headwater.core_log.foundation.errors import ConfigError
from headwater.core_log.foundation.speed import freeze_imports
from headwater.core_log.model.log import Log
from headwater.pipelines.file.http_settings import HttpSettings
from headwater.pipelines.reports import Report, encode_report
from headwater.pipelines.running.data_directory_lock import disk_space
from headwater.pipelines.watching.http_guard import (
    TOKEN_LENGTH_MIN,
    App,
    Guard,
    NeedsToken,
    read_token,
)
from headwater.pipelines.watching.status import StatusBoard

if TYPE_CHECKING:
    import uvicorn

    from headwater.core_log.broker.broker import Broker
    from headwater.core_log.broker.lifecycle import RunningBroker

PRIVATE = 0o600
HOST = "127.0.0.1"
HEAD_BYTES_MAX = 16 << 10
CONNECTIONS_MAX = 128
IDLE_S_MAX, STOP_S_MAX = 5, 1
WAITING_MAX = 2_000
"""Lines kept for a listener that is slower than the reports; older ones are then left out."""
LISTENERS_MAX = 32
QUIET_S = 5.0
"""After so long without a report an empty line shows that the connection lives."""
SERVED_BY_BROKERS = ("/healthz", "/readyz", "/metrics", "/backup", "/backup/end")

Hand = Callable[[bytes], Awaitable[Mapping[str, object]]]
"""Takes the body of POST /run; what it answers is answered, as JSON."""


class HttpListener:
    """Raises `ConfigError` where it cannot listen; whoever connects meanwhile is answered once it
    serves."""

    def __init__(self, settings: HttpSettings) -> None:
        assert settings.listen, "the settings have a fixed address"
        self._settings = settings
        self._host, port = parse_address(settings.listen)
        self.is_encrypted = settings.certificate_file is not None
        if settings.token_file is not None:
            _make_token(settings.token_file)
        if self.is_encrypted:
            _check_certificate(settings)
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((self._host, port))
            self._socket.listen()
        except OSError as error:
            self._socket.close()
            raise ConfigError(
                "the HTTP address cannot be listened on",
                hint="choose another one: --http 127.0.0.1:0 takes a free port",
                address=settings.listen,
                reason=error.strerror,
            ) from error
        self.port = int(self._socket.getsockname()[1])
        self._server: uvicorn.Server | None = None

    @property
    def address(self) -> str:
        """SCHEME://HOST:PORT."""
        scheme = "https" if self.is_encrypted else "http"
        return f"{scheme}://{_bracketed(self._host)}:{self.port}"

    @property
    def token(self) -> str:
        """The token of the file; empty without one."""
        file = self._settings.token_file
        return "" if file is None else read_token(file)

    def guard(self, app: App, *, token: str, needs_token: NeedsToken = lambda _: True) -> Guard:
        """`token` is let in beside that of the file."""
        return Guard(
            app,
            token=token,
            port=self.port,
            needs_token=needs_token,
            names=(_bracketed(self._host), *self._settings.hosts),
            token_file=self._settings.token_file,
            is_encrypted=self.is_encrypted,
        )

    def make_server(self, app: App) -> "uvicorn.Server":
        """Loads the server, which takes a moment: in a thread."""
        settings = self._settings
        return new_server(app, certificate=settings.certificate_file, key=settings.key_file)

    async def start(self, server: "uvicorn.Server") -> None:
        await server.startup([self._socket])
        self._server = server

    async def stop(self) -> None:
        """Ends what is still open after a moment."""
        if self._server is not None:
            await self._server.shutdown([self._socket])
            self._server = None
        self._socket.close()


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _make_token(file: Path) -> None:
    """Writes a new token if the file does not exist; raises if it holds none that can be used."""
    try:
        file.touch(PRIVATE, exist_ok=False)
        file.write_text(secrets.token_urlsafe(24) + "\n")
    except FileExistsError:
        pass
    except OSError as error:
        raise _unusable_token(file, str(error.strerror)) from error
    if not read_token(file):
        raise _unusable_token(
            file, f"the file has no token of {TOKEN_LENGTH_MIN} characters or more"
        )


def _unusable_token(file: Path, reason: str) -> ConfigError:
    return ConfigError(
        "the token file cannot be used",
        hint=f"openssl rand -hex 24 > {file} && chmod 600 {file}",
        file=str(file),
        reason=reason,
    )


def _check_certificate(settings: HttpSettings) -> None:
    """Raises if the certificate and its key are not a pair that can be read."""
    assert settings.certificate_file is not None, "only called with a certificate"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(settings.certificate_file, settings.key_file)
    except OSError as error:  # an SSLError is one
        raise ConfigError(
            "the certificate cannot be used",
            hint="both files must be PEM, and the key must be the certificate's",
            certificate_file=str(settings.certificate_file),
            key_file=str(settings.key_file),
            reason=str(error.strerror or error),
        ) from None


class Listener:
    """Lines in their order. The number of reports that were left out stands in their place."""

    def __init__(self, pipeline: str | None) -> None:
        self._pipeline = pipeline
        self._waiting: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._missed = 0

    def hear(self, report: Report) -> None:
        if self._pipeline not in (None, report.pipeline):
            return
        if self._waiting.qsize() >= WAITING_MAX:
            self._waiting.get_nowait()
            self._missed += 1
        self._waiting.put_nowait(encode_report(report))

    def end(self) -> None:
        self._waiting.put_nowait(None)

    async def lines(self) -> AsyncIterator[bytes]:
        """Until there will be no more reports at all."""
        while True:
            try:
                async with asyncio.timeout(QUIET_S):
                    line = await self._waiting.get()
            except TimeoutError:
                line = b"\n"
            if line is None:
                return
            if self._missed:
                missed, self._missed = self._missed, 0
                yield orjson.dumps({"kind": "Missed", "count": missed}) + b"\n"
            yield line


class ReportStream:
    """A Reporter that passes everything on to those who listen just then."""

    def __init__(self) -> None:
        self._listeners: set[Listener] = set()

    def __call__(self, report: Report) -> None:
        for listener in self._listeners:
            listener.hear(report)

    @property
    def listeners(self) -> int:
        return len(self._listeners)

    @property
    def is_full(self) -> bool:
        return self.listeners >= LISTENERS_MAX

    @contextmanager
    def listening(self, pipeline: str | None) -> Iterator[Listener]:
        listener = Listener(pipeline)
        self._listeners.add(listener)
        try:
            yield listener
        finally:
            self._listeners.discard(listener)

    def end(self) -> None:
        """Lets everybody go."""
        for listener in self._listeners:
            listener.end()


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
        listener: HttpListener | None = None,
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


def broker_http(
    settings: HttpSettings,
) -> "Callable[[RunningBroker], AbstractAsyncContextManager[None]]":
    """Serves probes, metrics and backups of a broker without pipelines, as long as it runs."""
    from headwater.core_log.embedded import EmbeddedLog

    @asynccontextmanager
    async def serve(running: "RunningBroker") -> AsyncIterator[None]:
        listener = HttpListener(settings)
        broker = running.broker
        board = StatusBoard(broker.clock)
        board.log_problem, board.offline = lambda: broker.store.refused, lambda: broker.offline
        board.disk = lambda: disk_space(broker.settings.data)
        answering = RequestAnswer(
            board, ReportStream(), EmbeddedLog(running), broker.clock, _refuse_pipelines, broker
        )
        api = HttpApi(answering, token=running.token, listener=listener, paths=SERVED_BY_BROKERS)
        try:
            running.write_endpoint(None, control=await api.start())
            yield
        finally:
            board.is_stopping = True
            await api.stop()

    return serve


async def _refuse_pipelines(_: bytes) -> Mapping[str, object]:
    raise ConfigError("a broker runs no pipelines", hint="headwater run FILE")
