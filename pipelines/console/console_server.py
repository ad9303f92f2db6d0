"""The HTTP server of the console, on loopback."""

import asyncio
import secrets
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from headwater.core_log.foundation.endpoint import parse_address, refuse_unsafe
from headwater.core_log.foundation.errors import ConfigError
from headwater.core_log.model.log import Log
from headwater.pipelines.console.live_status import FindOwner, LiveStatus
from headwater.pipelines.console.routes import (
    OpenLog,
    console_app,
    needs_token,
)
from headwater.pipelines.watching.http_api import Guard, new_server


class ConsoleServer:
    """Serves until it is stopped; its token is new with every start."""

    def __init__(self, address: str) -> None:
        host, port = parse_address(address)
        refuse_unsafe(host)
        self.token = secrets.token_urlsafe(24)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((host, port))
            self._socket.listen()  # whoever opens the link before we serve is answered then
        except OSError as error:
            self._socket.close()
            raise ConfigError(
                "the address cannot be listened on",
                hint="choose another one: --listen 127.0.0.1:0 takes a free port",
                address=address,
                reason=error.strerror,
            ) from error
        self._host, self.port = host, int(self._socket.getsockname()[1])

    @property
    def link(self) -> str:
        """The address of the page, with the token in its fragment, which no request carries."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self.port}/#{self.token}"

    async def serve(
        self, find_owner: FindOwner, open_log: OpenLog, *, is_read_only: bool = False
    ) -> None:
        """Runs until it is cancelled."""
        live = LiveStatus(find_owner)
        following = asyncio.get_running_loop().create_task(live.follow())
        guard = Guard(
            console_app(live, _one_at_a_time(open_log), is_read_only=is_read_only),
            token=self.token,
            port=self.port,
            needs_token=needs_token,
        )
        server = await asyncio.to_thread(new_server, guard)
        try:
            await server.startup([self._socket])
            await following
        finally:
            following.cancel()
            with suppress(asyncio.CancelledError):
                await following
            await server.shutdown([self._socket])


def _one_at_a_time(open_log: OpenLog) -> OpenLog:
    """One look at the log at a time: a directory at rest has one owner."""
    lock = asyncio.Lock()

    @asynccontextmanager
    async def opened() -> AsyncIterator[Log]:
        async with lock, open_log() as log:
            yield log

    return opened
