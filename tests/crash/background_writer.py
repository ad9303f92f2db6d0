"""A thread that writes until it is stopped, and counts what it has written."""

import threading
from collections.abc import Callable


class BackgroundWriter:
    """What became of a transaction whose answer was lost is nobody's business: the tables
    themselves say it."""

    def __init__(self, work: Callable[["BackgroundWriter"], None]) -> None:
        """`work` returns soon after `is_ending`, and adds to the count."""
        self.is_ending = threading.Event()
        self._moved = threading.Condition()
        self._count, self._has_ended = 0, False
        self._thread = threading.Thread(target=self._run, args=(work,))

    def start(self) -> None:
        self._thread.start()

    def add(self, count: int) -> None:
        with self._moved:
            self._count += count
            self._moved.notify_all()

    def wait_for(self, count: int) -> None:
        """Until so many more have been written."""
        with self._moved:
            goal = self._count + count
            self._moved.wait_for(lambda: self._count >= goal or self._has_ended)
        assert self._count >= goal, "whoever writes goes on until it is stopped"

    def stop(self) -> None:
        self.is_ending.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self, work: Callable[["BackgroundWriter"], None]) -> None:
        try:
            work(self)
        finally:
            with self._moved:
                self._has_ended = True
                self._moved.notify_all()
