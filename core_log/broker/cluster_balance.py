"""Work that the active controller does from time to time: first replicas lead again."""

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker

logger = logging.getLogger(__name__)
LEADERS_MS = 300_000  # Kafka's leader.imbalance.check.interval.seconds


class ClusterBalance:
    """Begins with a new controller, so that nothing moves just because one is new."""

    def __init__(self, broker: "Broker", *, now_ms: int) -> None:
        self._broker = broker
        self._leaders_due_ms = now_ms + LEADERS_MS

    async def look(self, now_ms: int) -> None:
        """Called by the controller several times a second."""
        if now_ms >= self._leaders_due_ms:
            self._leaders_due_ms = now_ms + LEADERS_MS
            broker = self._broker
            count = await broker.metadata.change(broker.controller.elections.balance)
            if count:
                logger.info("%d partition(s) are led by their first replica again", count)
