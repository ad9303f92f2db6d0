"""Tables of a sink that can take their new form only as tables made anew from the log."""

import asyncio
from typing import NamedTuple


class RebuildWanted(NamedTuple):
    """Of one table."""

    table: str
    refusal: str
    """Why it cannot take its new form in place."""


class RebuildsNeeded:
    """Told by the sink's loop, taken by whoever makes these tables anew."""

    def __init__(self) -> None:
        self._tables: asyncio.Queue[RebuildWanted] = asyncio.Queue()
        self._known: set[str] = set()

    def put(self, table: str, refusal: str) -> None:
        """Once, until it was given up: a held table is tried again and refused again."""
        if table not in self._known:
            self._known.add(table)
            self._tables.put_nowait(RebuildWanted(table, refusal))

    async def next(self) -> RebuildWanted:
        return await self._tables.get()

    def give_up(self, table: str) -> None:
        """The table, which was taken last, stays held."""
        self._known.remove(table)
        self._tables.task_done()

    async def given_up(self) -> None:
        """Waits until nobody tries any of them any more."""
        await self._tables.join()
