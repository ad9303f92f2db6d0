"""Selection between plain Python decoders and compiled ones."""

import logging
import os
import threading
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Generic, Literal, TypeVar

from headwater.core_log.foundation.errors import ConfigError
from headwater.core_log.foundation.process_switches import freeze_imports

Speed = Literal["python", "fast"]

VARIABLE = "HEADWATER_SPEED"
INSTALL = "pip install 'headwater[fast]'"

T = TypeVar("T")

logger = logging.getLogger(__name__)


def chosen_speed(environment: Mapping[str, str] = os.environ) -> Speed:
    """Returns `fast` if the compiler is installed; the environment may force either."""
    wanted = environment.get(VARIABLE, "")
    can_compile = find_spec("numba") is not None
    match wanted:
        case "":
            return "fast" if can_compile else "python"
        case "python":
            return "python"
        case "fast" if can_compile:
            return "fast"
        case "fast":
            raise ConfigError("the compiler for the fast decoders is not installed", hint=INSTALL)
    raise ConfigError(
        f"{VARIABLE} is neither python nor fast", hint=f"unset {VARIABLE}", value=wanted
    )


class CompiledSpeed(Generic[T]):
    """A choice of the plain code until enough work was done that loading the compiled code pays.

    Cached code loads at once. Without a cache the compiler takes many seconds: a thread does it,
    and nothing waits for it.
    """

    def __init__(self, plain: T, load: Callable[[], T] | None, worth: int) -> None:
        """`load` calls the compiled code once, because that compiles it, and returns it; it is None
        without a compiler. `worth` is the amount of work, as `count` adds it, that starts
        loading."""
        self.now = plain
        self._load, self._left = load, worth
        self._thread: threading.Thread | None = None
        self._sending = threading.Lock()
        self.is_warm = False

    def count(self, amount: int) -> None:
        self._left -= amount
        if self._left > 0 or self._thread is not None or self._load is None:
            return
        with self._sending:  # several threads count
            if self._thread is None:
                # No daemon thread: the compiler must not be stopped in the middle of its work.
                self._thread = threading.Thread(target=self._warm, name="headwater-compiler")
                self._thread.start()

    def hurry(self) -> None:
        """Starts loading at once and waits for it, because much work is known to come."""
        self.count(self._left)
        self.wait()

    def wait(self) -> None:
        """Waits until the compiled code is loaded, if loading has begun."""
        if self._thread is not None:
            self._thread.join()

    def _warm(self) -> None:
        assert self._load is not None, "it is only sent for where there is one"
        try:
            with freeze_imports():  # otherwise the loading time is waited for several times
                self.now = self._load()
        except Exception as error:
            logger.warning("the compiled code cannot be loaded: %s", type(error).__name__)
            return
        self.is_warm = True
