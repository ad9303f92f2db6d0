"""The heartbeat of a source: a notice and a position, also while there are no changes."""

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
        due_ms = self.due_ms
        return due_ms is not None and due_ms <= 0

    @property
    def due_ms(self) -> int | None:
        """The time until the next one; None if there is none."""
        if not self._every_ms:
            return None
        return self._beat_ms + self._every_ms - self._clock.monotonic_ms()

    def beat(self) -> tuple[EventMessages, ...]:
        """Returns the notice if it is due."""
        if not self.is_due:
            return ()
        self._beat_ms = self._clock.monotonic_ms()
        key, value = {"serverName": self._pipeline}, {"ts_ms": self._clock.now_ms()}
        return (EventMessages.of("heartbeat", [key], [value]),)
