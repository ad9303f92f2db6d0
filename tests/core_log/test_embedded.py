"""The channel to a broker in this process."""

import pytest

from headwater.core_log.broker.connection import Peer, Reply
from headwater.core_log.embedded import InProcessChannel
from headwater.core_log.foundation.errors import LogUnavailable
from headwater.core_log.protocol.frames import request_frame
from headwater.core_log.protocol.messages.fetch import FetchRequest


class BusyServer:
    """It answers later, and never."""

    def join(self, peer: Peer) -> None: ...
    def on_closed(self, peer: Peer) -> None: ...

    def answer(self, frame: memoryview, peer: Peer) -> Reply:
        return Reply()


async def test_a_channel_closes_although_a_caller_has_just_left() -> None:
    channel = InProcessChannel(BusyServer(), ("127.0.0.1", 9092))  # type: ignore[arg-type]
    left, waiting = (
        channel.ask(request_frame(FetchRequest(), 12, number, "test"), number) for number in (1, 2)
    )

    left.cancel()
    channel.close()

    assert left.cancelled()
    with pytest.raises(LogUnavailable):
        await waiting
