"""The newest status of the pipelines, its recent past, and the listeners who are told of it."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import orjson

from headwater.core_log.foundation.clock import unix_ms
from headwater.core_log.foundation.errors import HeadwaterError
from headwater.pipelines.console.hidden_columns import NOTHING_HIDDEN, HiddenColumns
from headwater.pipelines.console.status_past import StatusPast

if TYPE_CHECKING:
    from headwater.pipelines.running.owner_client import LockHolder

logger = logging.getLogger(__name__)
INTERVAL_S = 1.0
LISTENERS_MAX = 32

FindOwner = Callable[[], "LockHolder | None"]
"""Finds the process that runs pipelines now; it blocks."""


class LiveStatus:
    """Asks the owner of the log once a second, as long as the console runs."""

    def __init__(self, find_owner: FindOwner, hidden: HiddenColumns = NOTHING_HIDDEN) -> None:
        self._find_owner, self._hidden = find_owner, hidden
        self._owner: LockHolder | None = None
        self.past = StatusPast()
        self._changed = asyncio.Event()
        self.listeners = 0
        self.now: Mapping[str, Any] = {"is_running": False, "pipelines": {}}

    async def follow(self) -> None:
        """Runs until it is cancelled."""
        while True:
            await self._look()
            self._changed.set()
            self._changed = asyncio.Event()
            await asyncio.sleep(INTERVAL_S)

    async def _look(self) -> None:
        try:
            owner = self._owner or await asyncio.to_thread(self._find_owner)
            if owner is not None:
                status = await asyncio.to_thread(owner.status)
                self._owner = owner
                self.now = {**self._hidden.status(status), "is_running": True}
                self.past.add(self.now)
                return
        except HeadwaterError as error:
            logger.debug("the status is not known now: %s", error)
        self._owner = None
        self.now = {**self.now, "is_running": False}

    async def owner(self) -> "LockHolder | None":
        """Returns the process that runs pipelines, which takes signals."""
        return self._owner or await asyncio.to_thread(self._find_owner)

    async def events(self) -> AsyncIterator[bytes]:
        """Yields server-sent events: the past once, and the status each second."""
        self.listeners += 1
        try:
            yield event_of("past", dict(self.past.newest()))
            while True:
                yield event_of("status", {"seen_ms": unix_ms(), **self.now})
                with suppress(TimeoutError):
                    async with asyncio.timeout(5 * INTERVAL_S):
                        await self._changed.wait()
        finally:
            self.listeners -= 1


def event_of(kind: str, content: object) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), orjson.dumps(content))
