"""Questions about what the stream told, whose answers are no older than what it told."""

import asyncio
import logging

import numpy as np

from headwater.connectors.postgres.server.connection import PgConnection, in_our_words
from headwater.connectors.postgres.slot import standbys
from headwater.connectors.postgres.snapshot.visibility import PgSnapshot
from headwater.core_log.foundation.array_types import Int64Array

logger = logging.getLogger(__name__)

LOOK_S, LOOK_S_MAX = 0.001, 1.0
PATIENCE_LOOKS = 12
"""Looks, each a little later, after which it is worth a line in the log."""
LONG_LOOKS = 30
"""Looks, which take some twenty seconds, after which no other standby is expected to confirm a
commit in our place."""


class LookupConnection:
    """A connection to ask on.

    The server streams a transaction once it is on disk, which is a moment before others see it;
    much longer where a commit waits for a synchronous standby. A question that is asked in between
    would not find a row under its new key, or find the row as an earlier transaction left it.

    Where the server takes our own reader of the slot for that standby, both would wait for ever:
    nothing is confirmed before it is stored, and nothing stored before it can be asked for.
    """

    def __init__(self, connection: PgConnection, *, slot: str) -> None:
        self._connection = connection
        self._slot = slot
        self._told: Int64Array = np.empty(0, np.int64)
        self._seen: PgSnapshot | None = None

    def told_of(self, xids: Int64Array) -> None:
        """These transactions are what the next questions are about."""
        self._told = xids

    async def connection(self) -> PgConnection:
        """As soon as everything is seen on it that was told."""
        pause_s, looks = LOOK_S, 0
        while self._seen is None or not self._seen.sees(self._told).all():
            if looks:
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, LOOK_S_MAX)
            looks += 1
            if looks == PATIENCE_LOOKS:
                logger.warning(
                    "a transaction that was streamed is not seen by others yet, which is waited"
                    " for: does its commit wait for a synchronous standby?"
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
