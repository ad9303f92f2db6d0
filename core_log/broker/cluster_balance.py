"""Work that the active controller does from time to time: topics get more replicas when there are
more brokers, min.insync.replicas becomes 2, and first replicas lead again."""

import logging
from typing import TYPE_CHECKING

from headwater.core_log.replication.decisions import Decision
from headwater.core_log.replication.topic_config import MIN_IN_SYNC

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker

logger = logging.getLogger(__name__)
GROWTH_MS = 10_000
"""How long a broker that has just joined may be without copies."""
NEXT_COPIES_MS = 500
"""Few partitions are copied at a time: the next ones soon after these."""
MIN_IN_SYNC_MS = 500
LEADERS_MS = 300_000  # Kafka's leader.imbalance.check.interval.seconds


class ClusterBalance:
    """Begins with a new controller, so that nothing moves just because one is new."""

    def __init__(self, broker: "Broker", *, now_ms: int) -> None:
        self._broker = broker
        self._growth_due_ms = now_ms + GROWTH_MS
        self._leaders_due_ms = now_ms + LEADERS_MS
        self._min_in_sync_due_ms = now_ms

    async def look(self, now_ms: int) -> None:
        """Called by the controller several times a second."""
        broker, controller = self._broker, self._broker.controller
        if now_ms >= self._min_in_sync_due_ms and MIN_IN_SYNC not in broker.image.cluster_config:
            self._min_in_sync_due_ms = now_ms + MIN_IN_SYNC_MS
            if await broker.metadata.change(controller.cluster_config.ask_for_two_disks):
                least = broker.image.cluster_config[MIN_IN_SYNC]
                logger.info("topics without a %s of their own have %s", MIN_IN_SYNC, least)
        if now_ms >= self._growth_due_ms:
            self._growth_due_ms = now_ms + GROWTH_MS
            count = await broker.metadata.change(self._grow)
            if count:
                logger.info("%d partition(s) get more replicas", count)
            if controller.reassignments.count_copied():
                self._growth_due_ms = now_ms + NEXT_COPIES_MS
        if now_ms >= self._leaders_due_ms:
            self._leaders_due_ms = now_ms + LEADERS_MS
            count = await broker.metadata.change(controller.elections.balance)
            if count:
                logger.info("%d partition(s) are led by their first replica again", count)

    def _grow(self) -> Decision[int]:
        controller = self._broker.controller
        return controller.reassignments.grow(controller.replication_factor_max)
