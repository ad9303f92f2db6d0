"""Queries about streamed transactions, on connections that already see them."""

import asyncio
import logging

import numpy as np

from headwater.connectors.postgres.server.connection import PgConnection, in_our_words
from headwater.connectors.postgres.server.lsn import PgSnapshot
from headwater.connectors.postgres.slot import standbys
from headwater.core_log.foundation.array_types import Int64Array

logger = logging.getLogger(__name__)

LOOK_S, LOOK_S_MAX = 0.001, 1.0
PATIENCE_LOOKS = 12
"""Attempts, with growing pauses, after which the wait is logged."""
LONG_LOOKS = 30
"""Attempts, about twenty seconds, after which no other standby is expected to confirm a commit."""


class LookupConnection:
    """A connection for queries.

    The server streams a transaction once it is on disk, shortly before other sessions see it; much
    earlier if a commit waits for a synchronous standby. A query in between would not find a row
    under its new key, or find an older version of it.

    If the server takes our own reader of the slot for that standby, both would wait for ever: a
    position is confirmed only after it is stored, and stored only after the query.
    """

    def __init__(self, connection: PgConnection, *, slot: str) -> None:
        self._connection = connection
        self._slot = slot
        self._told: Int64Array = np.empty(0, np.int64)
        self._seen: PgSnapshot | None = None

    def told_of(self, xids: Int64Array) -> None:
        """Sets the transactions that the next queries must see."""
        self._told = xids

    async def connection(self) -> PgConnection:
        """Returns a connection that sees these transactions."""
        pause_s, looks = LOOK_S, 0
        while self._seen is None or not self._seen.sees(self._told).all():
            if looks:
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, LOOK_S_MAX)
            looks += 1
            if looks == PATIENCE_LOOKS:
                logger.warning(
                    "a streamed transaction is not visible to other sessions yet: its commit may"
                    " wait for a synchronous standby"
                )
            if looks >= PATIENCE_LOOKS:
                is_long = looks >= LONG_LOOKS
                await standbys.refuse_to_be_one(self._connection, self._slot, is_long=is_long)
            with in_our_words("the server does not say which transactions are seen"):
                cursor = await self._connection.execute(
                    "SELECT pg_catalog.pg_current_snapshot()::text"
                )
                [[text]] = await cursor.fetchall()
            self._seen = PgSnapshot.parse(text)
        return self._connection
