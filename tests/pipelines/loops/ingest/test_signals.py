"""What people want of a source reaches it once, and never stops it."""

import asyncio
from collections.abc import Sequence

from headwater.connectors.source import Control
from headwater.core_log.foundation.errors import SourceRejected
from headwater.pipelines.loops.ingest.signals import relay_signals


class Listening:
    """What a source hears; it says no to one of its wishes."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.has_heard = asyncio.Event()

    async def control(self, control: Control) -> None:
        self.heard.append(control.id)
        if control.id == "third":
            self.has_heard.set()
        if control.id == "second":
            raise SourceRejected("no")


async def test_a_source_hears_every_wish_once_but_those_that_are_done() -> None:
    listening = Listening()
    wished = [Control("first", "snapshot"), Control("second", "snapshot")]

    def controls() -> Sequence[Control]:
        if len(listening.heard) == 1:
            wished.append(Control("third", "snapshot"))
        return list(wished)

    async with relay_signals(listening, controls, {"control/first": "start", "stream": "7"}):
        await listening.has_heard.wait()

    assert listening.heard == ["second", "third"]
