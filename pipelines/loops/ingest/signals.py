"""Passes signals to the source while it runs."""

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
    """The part of a source that accepts signals."""

    async def control(self, control: Control) -> None: ...


Controls = Callable[[], Sequence[Control]]
"""All present signals for a source."""


@asynccontextmanager
async def relaying(source: SignalRelay, controls: Controls, done: Positions) -> AsyncIterator[None]:
    """Passes each signal once; those that the position marks as done are not repeated."""
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
    """Passes a signal; a signal that cannot be fulfilled does not stop the source."""
    try:
        await source.control(control)
    except HeadwaterError as error:
        target = control.table or "every table"
        logger.warning("the source rejects the signal %s of %s: %s", control.kind, target, error)
    except Exception:
        logger.exception("a signal could not be passed to the source")
