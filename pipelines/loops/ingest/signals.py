"""Hands what people want of a source on to it, while it runs."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

from headwater.connectors.source import CONTROL, Control
from headwater.core_log.foundation.errors import HeadwaterError
from headwater.core_log.model.changes import Positions

logger = logging.getLogger(__name__)

POLL_S = 0.1


class SignalRelay(Protocol):
    """The part of a source that takes wishes."""

    async def control(self, control: Control) -> None: ...


Controls = Callable[[], Sequence[Control]]
"""Everything that is wanted of a source just now."""


@asynccontextmanager
async def relaying(source: SignalRelay, controls: Controls, done: Positions) -> AsyncIterator[None]:
    """Each wish once; what the position says is done is not told again."""
    task = asyncio.ensure_future(_relay(source, controls, done))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def _relay(source: SignalRelay, controls: Controls, done: Positions) -> None:
    known = {part.removeprefix(CONTROL) for part in done if part.startswith(CONTROL)}
    while True:
        for control in controls():
            if control.id not in known:
                known.add(control.id)
                await _tell(source, control)
        await asyncio.sleep(POLL_S)


async def _tell(source: SignalRelay, control: Control) -> None:
    """That a wish cannot be fulfilled is no reason to stop."""
    try:
        await source.control(control)
    except HeadwaterError as error:
        target = control.table or "every table"
        logger.warning("the source does not do a %s of %s: %s", control.kind, target, error)
    except Exception:
        logger.exception("a wish could not be told to the source")
