"""The memory that the unfinished requests of one principal take, over all of its connections."""

from collections.abc import Callable
from typing import Protocol


class RoomHolder(Protocol):
    """A connection, which receives a large request only once there is room for all of it."""

    def on_room(self, count: int) -> None:
        """Has so many bytes more, for which it waited."""
        ...

    def give_back_unused(self) -> None:
        """Gives back what it has kept for its next request."""
        ...

    def close_if_stalled(self) -> None:
        """Closes if its client has sent nothing of an unfinished request for long."""
        ...


class RequestRoom:
    """Requests that find no room wait in their order, unread, so that their clients wait too.

    A request gets all of its room at once. If every other holder waits itself, the first one gets
    more than there is: otherwise all would wait for each other.
    """

    def __init__(
        self, bytes_max: int, *, look_later: Callable[[Callable[[], None]], object]
    ) -> None:
        """`look_later` calls a function after a while."""
        self._bytes_max, self._look_later = bytes_max, look_later
        self._held: dict[RoomHolder, int] = {}
        self._waiting: dict[RoomHolder, int] = {}
        self._used = 0
        self._is_watching = False

    @property
    def used(self) -> int:
        return self._used

    @property
    def waiting_count(self) -> int:
        return len(self._waiting)

    def ask(self, holder: RoomHolder, count: int) -> None:
        """The holder is told by `on_room`, at once or later, that it has so many bytes more."""
        if holder in self._waiting:
            return
        self._waiting[holder] = count
        if self._used + count > self._bytes_max:
            for each in [*self._held]:
                if each is not holder:
                    each.give_back_unused()
        self._serve_waiting()

    def give(self, holder: RoomHolder, count: int) -> None:
        left = self._held.pop(holder, 0) - count
        assert left >= 0, "nobody gives back more than it has"
        if left:
            self._held[holder] = left
        self._used -= count
        self._serve_waiting()

    def leave(self, holder: RoomHolder) -> None:
        """The holder is gone."""
        self._waiting.pop(holder, None)
        self.give(holder, self._held.get(holder, 0))

    def _has_room(self, holder: RoomHolder, count: int) -> bool:
        if self._used + count <= self._bytes_max:
            return True
        return self._held.keys() - {holder} <= self._waiting.keys()

    def _serve_waiting(self) -> None:
        while self._waiting:
            holder, count = next(iter(self._waiting.items()))
            if not self._has_room(holder, count):
                self._watch()
                return
            del self._waiting[holder]
            self._held[holder] = self._held.get(holder, 0) + count
            self._used += count
            holder.on_room(count)

    def _watch(self) -> None:
        if not self._is_watching:
            self._is_watching = True
            self._look_later(self._end_stalled)

    def _end_stalled(self) -> None:
        self._is_watching = False
        if not self._waiting:
            return
        for each in [*self._held]:
            each.close_if_stalled()
        self._serve_waiting()
