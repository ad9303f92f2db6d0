"""Compaction, one partition at a time, in a process beside the broker."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from core_log.broker.broker import Broker


class Cleaner:
    """Runs compaction where it is due."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker

    async def clean_dirtiest(self, now_ms: int) -> None:
        """Waits for storage."""
