"""A console in this process, with a log of its own and nobody who runs a pipeline."""

import asyncio
import http.client
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from typing import Any

from headwater.core_log.model.log import Log
from headwater.pipelines.console.console_server import ConsoleServer
from headwater.pipelines.console.live_status import FindOwner
from headwater.pipelines.file.http_settings import HttpSettings


@dataclass(frozen=True)
class ServedConsole:
    server: ConsoleServer

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    @property
    def good(self) -> dict[str, str]:
        """Headers as the page sends them."""
        return {"Host": self.address, "Authorization": f"Bearer {self.server.token}"}

    async def raw(
        self, method: str, path: str, headers: Mapping[str, str]
    ) -> tuple[int, bytes, Mapping[str, str]]:
        """What is answered to exactly these headers."""

        def send() -> tuple[int, bytes, Mapping[str, str]]:
            with closing(
                http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
            ) as connection:
                connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
                for name, value in headers.items():
                    connection.putheader(name, value)
                connection.endheaders()
                answer = connection.getresponse()
                return answer.status, answer.read(), dict(answer.getheaders())

        return await asyncio.to_thread(send)

    async def ask(self, path: str, method: str = "GET") -> Any:
        status, content, _ = await self.raw(method, f"/api/v1{path}", self.good)
        assert status < 400, content
        return json.loads(content)


@asynccontextmanager
async def served_console(
    log: Log, *, find_owner: FindOwner = lambda: None, is_read_only: bool = False
) -> AsyncIterator[ServedConsole]:
    server = ConsoleServer(HttpSettings(listen="127.0.0.1:0"))

    @asynccontextmanager
    async def open_log() -> AsyncIterator[Log]:
        yield log

    serving = asyncio.ensure_future(server.serve(find_owner, open_log, is_read_only=is_read_only))
    try:
        console = ServedConsole(server)
        yield console
    finally:
        serving.cancel()
        await asyncio.wait([serving])
