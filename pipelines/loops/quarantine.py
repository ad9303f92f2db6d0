"""Which topics a sink leaves alone, because their table failed or because somebody paused it."""

from collections.abc import Mapping
from dataclasses import dataclass

from pipelines.journal.control import Desired


@dataclass(frozen=True, slots=True)
class Held:
    """Why a topic is held, and which wish to begin afresh was known by then."""

    table: str
    reason: str
    fresh_start: str


class Quarantine:
    """Lifted by the next `headwater resume` or `restart` of the table, and by a new run."""

    def __init__(self) -> None:
        self._held: dict[str, Held] = {}

    def put(self, topic: str, *, table: str, reason: str, desired: Desired) -> None:
        self._held[topic] = Held(table, reason, desired.fresh_start(table))

    def lift(self, desired: Desired) -> Mapping[str, str]:
        """Topics to their tables that may go on."""
        lifted = {
            topic: held.table
            for topic, held in self._held.items()
            if desired.fresh_start(held.table) != held.fresh_start
        }
        for topic in lifted:
            del self._held[topic]
        return lifted

    @property
    def topics(self) -> frozenset[str]:
        return frozenset(self._held)
