"""The HTTP server of the console."""

import asyncio
import secrets
from contextlib import suppress

from headwater.pipelines.console.basic_login import BasicLogin
from headwater.pipelines.console.command_runs import CommandRuns
from headwater.pipelines.console.connect_routes import CONNECT
from headwater.pipelines.console.console_context import ConsoleContext, ConsoleSources
from headwater.pipelines.console.live_status import LiveStatus
from headwater.pipelines.console.routes import console_app, needs_token
from headwater.pipelines.console.shared_log import SharedLog
from headwater.pipelines.file.http_settings import HttpSettings
from headwater.pipelines.watching.http_listener import HttpListener


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
