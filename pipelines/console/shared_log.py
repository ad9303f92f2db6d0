"""One open log for all looks that overlap: a directory at rest is owned while one of them reads."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwater.core_log.client import KafkaLog

OpenLog = Callable[[], "AbstractAsyncContextManager[KafkaLog]"]
"""Opens the log for one look."""


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
