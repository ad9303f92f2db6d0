"""Whether decoders run as plain Python or as their compiled twins."""

import logging
import os
import threading
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Generic, Literal, TypeVar

from headwater.core_log.foundation.errors import ConfigError
from headwater.core_log.foundation.preload import all_of_it_stays

Speed = Literal["python", "fast"]

VARIABLE = "HEADWATER_SPEED"
INSTALL = "pip install 'headwater[fast]'"

T = TypeVar("T")

logger = logging.getLogger(__name__)


def chosen_speed(environment: Mapping[str, str] = os.environ) -> Speed:
    """`fast` where the compiler is installed; the environment may force either."""
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
    """The plain way, until there has been enough to do for the compiled one to be worth loading.

    Code that is kept is loaded in a moment, but where nothing is kept of an earlier run the
    compiler takes many seconds; meanwhile a thread sees to it and nobody waits.
    """

    def __init__(self, plain: T, load: Callable[[], T] | None, worth: int) -> None:
        """`load` comes back with the compiled way when it has been called once, as it is then that
        it is compiled; None where there is no compiler. `worth` is what `count` has to come to."""
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
                # No daemon: the compiler must not be torn down in the middle of its work.
                self._thread = threading.Thread(target=self._warm, name="headwater-compiler")
                self._thread.start()

    def hurry(self) -> None:
        """Sends for it whatever has been done so far, and waits: much is known to come."""
        self.count(self._left)
        self.wait()

    def wait(self) -> None:
        """Until the compiled way is there, if it has been sent for."""
        if self._thread is not None:
            self._thread.join()

    def _warm(self) -> None:
        assert self._load is not None, "it is only sent for where there is one"
        try:
            with all_of_it_stays():  # else all wait several times while it is looked through
                self.now = self._load()
        except Exception as error:
            logger.warning("the compiled code does not start: %s", type(error).__name__)
            return
        self.is_warm = True
