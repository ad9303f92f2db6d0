"""Which brokers live, as the active controller has heard, without clock or network."""

from collections.abc import Iterable

SESSION_MS = 3_000
HEARTBEAT_MS = 500
"""The time between two heartbeats of a broker."""
SILENCE_MS = 2 * HEARTBEAT_MS
"""A broker that is silent for this long may be gone: it is worth a look."""


class Liveness:
    """The sessions of brokers. A new controller knows of no heartbeat, so that all sessions begin
    anew with it; so do they after it has stood still itself, since it has read nothing
    meanwhile."""

    def __init__(self, broker_ids: Iterable[int], *, now_ms: int) -> None:
        self._heard_ms = dict.fromkeys(broker_ids, now_ms)
        self._looked_ms = now_ms

    def on_heartbeat(self, broker_id: int, now_ms: int) -> None:
        self._heard_ms[broker_id] = now_ms

    def on_gone(self, broker_id: int) -> None:
        """Called when a broker is fenced or removed: it has no session any more."""
        self._heard_ms.pop(broker_id, None)

    def is_live(self, broker_id: int, now_ms: int) -> bool:
        heard_ms = self._heard_ms.get(broker_id)
        return heard_ms is not None and now_ms - heard_ms < SESSION_MS

    def look(self, now_ms: int) -> None:
        """Called at least twice per session, before the sessions are judged."""
        if now_ms - self._looked_ms > SESSION_MS // 2:
            self._heard_ms = dict.fromkeys(self._heard_ms, now_ms)
        self._looked_ms = now_ms

    def list_expired(self, now_ms: int) -> list[int]:
        """Returns the brokers whose sessions are over."""
        return [each for each in sorted(self._heard_ms) if not self.is_live(each, now_ms)]

    def list_silent(self, now_ms: int) -> list[int]:
        """Returns the brokers that have missed heartbeats, and whose sessions go on."""
        due_ms = now_ms - SILENCE_MS
        heard = self._heard_ms
        return [e for e in sorted(heard) if heard[e] <= due_ms and self.is_live(e, now_ms)]
