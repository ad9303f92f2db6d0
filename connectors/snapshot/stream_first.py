"""Lets changes of the stream go before further rows that were read beside it."""

import asyncio
from typing import Any

from headwater.core_log.model.changes import ChangeBatch

WAIT_S = 0.01
"""How long the next chunk waits for the stream: longer than changes that have come need to be
read, and much shorter than a chunk."""


async def has_stream_next(coming: "asyncio.Future[Any] | None", batch: ChangeBatch) -> bool:
    """Returns whether the stream goes on behind this batch of rows, or nobody waits for it.
    Otherwise all chunks that are ready would be emitted before a change, and a busy machine takes
    seconds for them."""
    if not (batch.tables and batch.positions):
        return False
    if coming is None:
        return True
    await asyncio.wait([coming], timeout=WAIT_S)
    return coming.done()
