"""The HTTP server of the console."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from headwater.core_log.model.log import Log
from headwater.pipelines.console.live_status import FindOwner, LiveStatus
from headwater.pipelines.console.routes import (
    OpenLog,
    console_app,
    needs_token,
)
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

    async def serve(
        self, find_owner: FindOwner, open_log: OpenLog, *, is_read_only: bool = False
    ) -> None:
        """Runs until it is cancelled."""
        live = LiveStatus(find_owner)
        following = asyncio.get_running_loop().create_task(live.follow())
        guard = self._listener.guard(
            console_app(live, _one_at_a_time(open_log), is_read_only=is_read_only),
            token=self._own_token,
            needs_token=needs_token,
        )
        try:
            await self._listener.start(await asyncio.to_thread(self._listener.make_server, guard))
            await following
        finally:
            following.cancel()
            with suppress(asyncio.CancelledError):
                await following
            await self._listener.stop()


def _one_at_a_time(open_log: OpenLog) -> OpenLog:
    """One look at the log at a time: a directory at rest has one owner."""
    lock = asyncio.Lock()

    @asynccontextmanager
    async def opened() -> AsyncIterator[Log]:
        async with lock, open_log() as log:
            yield log

    return opened
