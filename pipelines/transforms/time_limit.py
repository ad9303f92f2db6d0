"""Interrupts what takes too long."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock, Thread
from weakref import ref

LOOK_S = 1.0
"""How long a thread stays after the last work, at most."""


class TimeLimit:
    """For one piece of work at a time. A thread looks after all that comes while it is there, since
    starting one takes as long as many a piece of work."""

    def __init__(self, ms_max: int, interrupt: Callable[[], object]) -> None:
        self._s_max, self._interrupt = ms_max / 1_000, interrupt
        self._lock = Lock()
        self._due: float | None = None
        """Of what is being done just now."""
        self._is_watched = False

    @contextmanager
    def watching(self) -> Iterator[None]:
        with self._lock:
            self._due = time.monotonic() + self._s_max
            is_watched, self._is_watched = self._is_watched, True
        if not is_watched:
            Thread(target=_watch, args=[ref(self)], name="time limit", daemon=True).start()
        try:
            yield
        finally:
            with self._lock:  # and so it is not interrupted any more
                self._due = None

    def left_s(self) -> float | None:
        """How long nothing needs to be looked at; None when there is nothing left to look after."""
        with self._lock:
            if self._due is None:
                self._is_watched = False
                return None
            left_s = self._due - time.monotonic()
            if left_s <= 0:
                self._interrupt()
                left_s = self._s_max
            return min(left_s, LOOK_S)


def _watch(limit: "ref[TimeLimit]") -> None:
    """Nothing falls due in the sleep: what begins meanwhile may last longer than that. Asleep it
    holds nothing, or DuckDB would complain of what is left when the program ends meanwhile."""
    while (left_s := _left_s(limit())) is not None:
        time.sleep(left_s)


def _left_s(limit: TimeLimit | None) -> float | None:
    return None if limit is None else limit.left_s()
