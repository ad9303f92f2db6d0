"""One route of the console: its path, who answers it, with what, and what it finds there."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.convertors import IntegerConvertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response

from headwater.core_log.foundation.errors import ConfigError
from headwater.pipelines.console.command_runs import CommandRuns
from headwater.pipelines.console.hidden_columns import NOTHING_HIDDEN, HiddenColumns
from headwater.pipelines.console.live_status import FindOwner, LiveStatus
from headwater.pipelines.console.message_search import TailCount
from headwater.pipelines.terminal.quantities import COUNT, parse_count

if TYPE_CHECKING:
    from headwater.core_log.client import KafkaLog

OpenLog = Callable[[], "AbstractAsyncContextManager[KafkaLog]"]
"""Opens the log for one look."""
SEARCHES_MAX = 4


class SharedLog:
    """The first look opens the log, and the last one closes it."""

    def __init__(self, open_log: OpenLog) -> None:
        self._open_log, self._changing = open_log, asyncio.Lock()
        self._looks = 0
        self._opened: AbstractAsyncContextManager[KafkaLog] | None = None
        self._log: KafkaLog | None = None

    @asynccontextmanager
    async def open(self) -> AsyncIterator["KafkaLog"]:
        log = await self._enter()
        try:
            yield log
        finally:
            self._looks -= 1
            # A look may be cancelled, and the log is to be closed all the same.
            await asyncio.shield(asyncio.ensure_future(self._leave()))

    async def _enter(self) -> "KafkaLog":
        async with self._changing:
            if self._log is None:
                opened = self._open_log()
                self._log, self._opened = await opened.__aenter__(), opened
            self._looks += 1
            return self._log

    async def _leave(self) -> None:
        async with self._changing:
            if self._looks == 0 and self._opened is not None:
                opened, self._opened, self._log = self._opened, None, None
                await opened.__aexit__(None, None, None)


@dataclass(frozen=True)
class ConsoleSources:
    """Where a console finds what it shows."""

    find_owner: FindOwner
    open_log: OpenLog
    """Over a directory at rest it is owned for as long as the block lasts."""
    follow_log: OpenLog
    """Only of a log that somebody runs: whoever waits must not own it."""
    hidden: HiddenColumns = NOTHING_HIDDEN
    is_read_only: bool = False
    arguments: tuple[str, ...] = ()
    """Options by which commands find the same log."""
    file: Path | None = None
    """Without a pipeline file sources and targets are not known."""
    has_connect: bool = False
    """Whether Kafka Connect's REST API is served at /connect."""


@dataclass(frozen=True)
class ConsoleContext:
    """One of these lives as long as its console."""

    live: LiveStatus
    sources: ConsoleSources
    open_log: OpenLog
    """As that of the sources, shared by looks that overlap."""
    runs: CommandRuns
    searches: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(SEARCHES_MAX))
    tails: TailCount = field(default_factory=TailCount)

    @property
    def hidden(self) -> HiddenColumns:
        return self.sources.hidden


API = "/api/v1"
TABLE = API + "/pipelines/{pipeline}/tables/{table}"

Answer = Any
"""A dataclass, a list of them, or a `Response` that is sent as it is."""
ConsoleHandler = Callable[[ConsoleContext, Request], Awaitable[Answer]]


class _Count(IntegerConvertor):
    """A part of a path that is a number; a path with one that no offset has is not served."""

    regex = COUNT.pattern


register_url_convertor("count", _Count())


@dataclass(frozen=True, slots=True)
class ConsoleRoute:
    """`docs/console-api.md` and `docs/openapi.json` are tables of these."""

    method: str
    path: str
    handler: ConsoleHandler
    meaning: str
    answer: Any
    """The type of the answer; `Response` for streams."""
    query: Mapping[str, str] = field(default_factory=dict)
    """Names of its parameters behind the `?`, with their meaning."""
    body: Any = None
    """The type of the body of the request; None where it has none."""
    status: int = 200

    @property
    def is_look(self) -> bool:
        """Whether it changes nothing, so that a read-only console has it."""
        return self.method == "GET"


def number_of(request: Request, name: str, *, default: int, most: int) -> int:
    """A parameter that is a number, at most as large as a look may be."""
    text = request.query_params.get(name)
    if text is None:
        return default
    number = parse_count(text)
    if number is None:
        raise ConfigError("the parameter is not a number", parameter=name)
    return min(number, most)


def is_streamed(route: ConsoleRoute) -> bool:
    return route.answer is Response
