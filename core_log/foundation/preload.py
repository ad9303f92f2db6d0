"""Sources and sinks that have to load much before their first answer."""

import atexit
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Protocol, runtime_checkable


@runtime_checkable
class Preloading(Protocol):
    """Asking the log what has to be known first leaves time for that."""

    def prepare(self) -> None:
        """Begins with it, in a thread, before anything is asked. What fails is told to whoever asks
        first; nothing outside is touched."""
        ...


@contextmanager
def all_of_it_stays() -> Iterator[None]:
    """What is imported inside is never looked at again by the garbage collector either."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


@cache
def unfreeze_at_exit() -> None:
    """For users of DuckDB, which complains at exit of objects of its own that are left then."""
    atexit.register(gc.unfreeze)
