"""The heartbeat of a source: a notice and a position, also while there are no changes."""

import orjson
import pyarrow as pa

from headwater.core_log.foundation.clock import Clock
from headwater.core_log.model.changes import EventMessages


class SourceHeartbeat:
    """Says when the next one is due."""

    def __init__(self, pipeline: str, clock: Clock, *, every_ms: int) -> None:
        """`every_ms`: 0 for none."""
        self._pipeline, self._clock, self._every_ms = pipeline, clock, every_ms
        self._beat_ms = clock.monotonic_ms()

    @property
    def is_due(self) -> bool:
        return 0 < self._every_ms <= self._clock.monotonic_ms() - self._beat_ms

    def beat(self) -> tuple[EventMessages, ...]:
        """Returns the notice if it is due."""
        if not self.is_due:
            return ()
        self._beat_ms = self._clock.monotonic_ms()
        key = orjson.dumps({"serverName": self._pipeline})
        value = orjson.dumps({"ts_ms": self._clock.now_ms()})
        notice = EventMessages(
            "heartbeat", pa.array([key], pa.binary()), pa.array([value], pa.binary())
        )
        return (notice,)
