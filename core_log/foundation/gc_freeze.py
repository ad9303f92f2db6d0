"""Importing much at once: nothing of it is garbage, and looking for some takes a tenth of it."""

import atexit
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache


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
