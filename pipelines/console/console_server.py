"""The HTTP server of the console."""

import asyncio
import base64
import binascii
import secrets
from contextlib import suppress

from headwater.pipelines.console.command_runs import CommandRuns
from headwater.pipelines.console.connect_routes import CONNECT
from headwater.pipelines.console.console_route import ConsoleContext, ConsoleSources, SharedLog
from headwater.pipelines.console.live_status import LiveStatus
from headwater.pipelines.console.routes import console_app, needs_token
from headwater.pipelines.file.http_settings import HttpSettings
from headwater.pipelines.watching.http_api import HttpListener
from headwater.pipelines.watching.http_guard import App, AsgiSend, Receive, Scope

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
