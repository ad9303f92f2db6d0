"""Appends to a state log, and lets each append take effect once it is durable."""

from collections import deque
from collections.abc import Callable, Sequence

from headwater.core_log.model.state_log import ProducerStamp, StateLog

StateRecord = tuple[bytes | None, bytes | None]


class DurableAppend:
    """Effects happen in the order of the log, whoever waits for them, and whoever gave up waiting:
    nothing is readable before it is on disk, and nothing that is there is forgotten.
    """

    def __init__(self, log: StateLog) -> None:
        self._log = log
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()

    def append(
        self,
        records: Sequence[StateRecord],
        effect: Callable[[int], None],
        *,
        producer: ProducerStamp | None = None,
    ) -> int:
        """Returns what to `settle`; the effect is told the offset of the first record."""
        end_offset = self._log.append(records, producer=producer)
        base_offset = end_offset - len(records)
        self._waiting.append((end_offset, lambda: effect(base_offset)))
        return end_offset

    async def settle(self, end_offset: int) -> None:
        await self._log.durable(end_offset)
        while self._waiting and self._waiting[0][0] <= end_offset:
            self._waiting.popleft()[1]()
