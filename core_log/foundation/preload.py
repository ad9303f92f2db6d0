"""Loading of heavy libraries in a thread before a source or a sink gives its first answer."""

import atexit
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Protocol, runtime_checkable


@runtime_checkable
class Preloading(Protocol):
    """A source or sink that loads its libraries while the log is asked for what it needs first."""

    def prepare(self) -> None:
        """Starts loading in a thread. The first caller that needs the result gets its failure;
        nothing outside the process is touched."""
        ...


@contextmanager
def all_of_it_stays() -> Iterator[None]:
    """Context manager: the garbage collector never scans again the objects that are imported
    inside."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


@cache
def unfreeze_at_exit() -> None:
    """Unfreezes all objects at exit; DuckDB complains about its own objects that are left then."""
    atexit.register(gc.unfreeze)
