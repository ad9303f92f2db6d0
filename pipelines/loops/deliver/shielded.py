"""Lets what was begun come to its end, although the one who began it is told to stop."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

FINISH_S_MAX = 10.0
"""After this long what was begun is given up as well; it is then done again by the next start."""


async def shield(work: Coroutine[Any, Any, None], *, wait_s_max: float = FINISH_S_MAX) -> None:
    """Being cancelled takes effect when `work` is done."""
    running = asyncio.ensure_future(work)
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running], timeout=wait_s_max)
        running.cancel()
        with suppress(Exception, asyncio.CancelledError):
            await running
        raise
