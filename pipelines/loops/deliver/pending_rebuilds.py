"""Tables of a sink that need a rebuild from the log to take their new schema."""

import asyncio
from typing import NamedTuple


class RebuildWanted(NamedTuple):
    """The need for a rebuild of one table."""

    table: str
    refusal: str
    """Why the table cannot take the schema in place."""


class RebuildsNeeded:
    """Tables reported by the sink's loop, for the process that rebuilds them."""

    def __init__(self) -> None:
        self._tables: asyncio.Queue[RebuildWanted] = asyncio.Queue()
        self._known: set[str] = set()

    def put(self, table: str, refusal: str) -> None:
        """Adds a table once, until it is given up: a quarantined table is retried and refused
        again."""
        if table not in self._known:
            self._known.add(table)
            self._tables.put_nowait(RebuildWanted(table, refusal))

    async def next(self) -> RebuildWanted:
        return await self._tables.get()

    def give_up(self, table: str) -> None:
        """Gives up the table that was taken last; it stays quarantined."""
        self._known.remove(table)
        self._tables.task_done()

    async def given_up(self) -> None:
        """Waits until no rebuild of any of them is tried."""
        await self._tables.join()
