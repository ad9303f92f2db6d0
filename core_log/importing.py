"""Importing much at once: nothing of it is garbage, and looking for some takes a tenth of it."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def all_of_it_stays() -> Iterator[None]:
    """What is imported inside is never looked at again by the garbage collector either."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
