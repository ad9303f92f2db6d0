"""Switches of the whole process, which entry points call, and loading of heavy libraries ahead."""

import atexit
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Protocol, runtime_checkable

SWITCH_INTERVAL_S = 0.0005
"""A tenth of Python's own: a waiting event loop gets its turn while a thread works on columns."""


@runtime_checkable
class Preloading(Protocol):
    """A source or sink that loads its libraries while the log is asked for what it needs first."""

    def prepare(self) -> None:
        """Starts loading in a thread. The first caller that needs the result gets its failure;
        nothing outside the process is touched."""
        ...


@contextmanager
def freeze_imports() -> Iterator[None]:
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


def switch_threads_often() -> None:
    sys.setswitchinterval(SWITCH_INTERVAL_S)
