"""Lets the disk and the checksums keep ahead of the columns: one thread reads, another works."""

import threading
from collections.abc import Iterator
from queue import Queue
from typing import TypeVar

T = TypeVar("T")

AHEAD = 2


class _End:
    def __init__(self, error: BaseException | None) -> None:
        self.error = error


def read_ahead(items: Iterator[T]) -> Iterator[T]:
    """The same items, made by a thread of their own, a few before they are asked for.

    Reading, checksums and large array operations release the interpreter lock, so on two cores
    both threads run at once. The thread ends when the iterator does, or is closed.
    """
    made: Queue[T | _End] = Queue(AHEAD)
    is_wanted = True

    def make() -> None:
        error: BaseException | None = None
        try:
            for item in items:
                made.put(item)
                if not is_wanted:
                    return
        except BaseException as caught:  # it belongs to whoever iterates
            error = caught
        made.put(_End(error))

    thread = threading.Thread(target=make, daemon=True)
    thread.start()
    try:
        while not isinstance(item := made.get(), _End):
            yield item
        if item.error is not None:
            raise item.error
    finally:
        is_wanted = False
        while thread.is_alive():
            while not made.empty():
                made.get_nowait()
            thread.join(0.001)
