"""A console in this process, with a log of its own and nobody who runs a pipeline."""

import asyncio
import http.client
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from pydantic import TypeAdapter
from starlette.routing import Match, Route

from headwater.pipelines.console.console_route import API, ConsoleSources
from headwater.pipelines.console.console_server import ROUTES, ConsoleServer
from headwater.pipelines.console.hidden_columns import NOTHING_HIDDEN, HiddenColumns
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
        self, method: str, path: str, headers: Mapping[str, str], body: object = None
    ) -> tuple[int, bytes, Mapping[str, str]]:
        """What is answered to exactly these headers."""

        def send() -> tuple[int, bytes, Mapping[str, str]]:
            with closing(
                http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
            ) as connection:
                connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
                for name, value in headers.items():
                    connection.putheader(name, value)
                content = b"" if body is None else json.dumps(body).encode()
                if content:
                    connection.putheader("Content-Length", str(len(content)))
                connection.endheaders(content or None)
                answer = connection.getresponse()
                return answer.status, answer.read(), dict(answer.getheaders())

        return await asyncio.to_thread(send)

    async def ask(self, path: str, method: str = "GET", body: object = None) -> Any:
        """What is answered; it must be of the form that the route declares."""
        status, content, _ = await self.raw(method, f"{API}{path}", self.good, body)
        assert status < 400, content
        found = json.loads(content)
        check_form(method, path, found)
        return found

    async def refusal(self, path: str, method: str = "GET", body: object = None) -> tuple[int, Any]:
        status, content, _ = await self.raw(method, f"{API}{path}", self.good, body)
        assert status >= 400, content
        return status, json.loads(content)["error"]


def check_form(method: str, path: str, found: object) -> None:
    scope = {"type": "http", "method": method, "path": unquote(f"{API}{path.split('?')[0]}")}
    for route in ROUTES:
        match, _ = Route(route.path, lambda _: None, methods=[route.method]).matches(scope)
        if match is Match.FULL:
            form: TypeAdapter[Any] = TypeAdapter(route.answer)
            assert form.dump_python(form.validate_python(found), mode="json") == found
            return
    raise AssertionError(f"no route declares {method} {path}")


def sources_of(
    log: Any,
    *,
    find_owner: FindOwner = lambda: None,
    hidden: HiddenColumns = NOTHING_HIDDEN,
    is_read_only: bool = False,
    arguments: tuple[str, ...] = (),
    file: Path | None = None,
    has_connect: bool = False,
) -> ConsoleSources:
    @asynccontextmanager
    async def open_log() -> AsyncIterator[Any]:
        yield log

    return ConsoleSources(
        find_owner, open_log, open_log, hidden, is_read_only, arguments, file, has_connect
    )


@asynccontextmanager
async def served_console(sources: ConsoleSources) -> AsyncIterator[ServedConsole]:
    server = ConsoleServer(HttpSettings(listen="127.0.0.1:0"))
    serving = asyncio.ensure_future(server.serve(sources))
    try:
        console = ServedConsole(server)
        yield console
    finally:
        serving.cancel()
        await asyncio.wait([serving])
