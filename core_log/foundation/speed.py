"""Speed of a process: compiled decoders or plain ones, libraries loaded ahead, and switches of the
interpreter."""

import atexit
import gc
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib.util import find_spec
from typing import Generic, Literal, Protocol, TypeVar, runtime_checkable

from headwater.core_log.foundation.errors import ConfigError

Speed = Literal["python", "fast"]

VARIABLE = "HEADWATER_SPEED"
INSTALL = "pip install 'headwater[fast]'"

COMPILER = """
import os, sys
os.nice(10)
module, function, *sys.path[:] = sys.argv[1:]
from importlib import import_module
getattr(import_module(module), function)()
"""
LOOK_S = 0.2
"""Interval at which the end of this process is looked for while the compiler works."""
SWITCH_INTERVAL_S = 0.0005
"""A tenth of Python's own: a waiting event loop gets its turn while a thread works on columns."""
CACHED_S = 1.0
"""Cached code is loaded within this time on any machine that has some."""

T = TypeVar("T")

logger = logging.getLogger(__name__)


def chosen_speed() -> Speed:
    """Returns `fast` if the compiler is installed; the environment may force either."""
    wanted = os.environ.get(VARIABLE, "")
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


class CodeNotCached(Exception):
    """The code of a function must be compiled first."""


class _Here(threading.local):
    is_compiler_elsewhere = False


_here = _Here()


def is_compiler_elsewhere() -> bool:
    """Returns whether code that this thread does not find in the cache is an error."""
    return _here.is_compiler_elsewhere


class CompiledSpeed(Generic[T]):
    """A choice of the plain code until enough work was done that loading the compiled code pays.

    Cached code loads at once. Without a cache the compiler takes many seconds: a process of its own
    does it, which gives way to all other work, and nothing waits for it.
    """

    def __init__(self, plain: T, load: Callable[[], T] | None, worth: int) -> None:
        """`load` is a function of a module. It calls the compiled code once, because that compiles
        it, and returns it; it is None without a compiler. `worth` is the amount of work, as `count`
        adds it, that starts loading."""
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
                # No daemon thread: it must not be stopped in the middle of native code.
                self._thread = threading.Thread(target=self._warm, name="headwater-compiler")
                self._thread.start()

    def wait_until_loaded(self) -> None:
        """Starts loading at once and waits for cached code, because much work is known to come."""
        self.count(self._left)
        if self._thread is not None:
            self._thread.join(CACHED_S)

    def wait(self) -> None:
        """Waits until the compiled code is loaded, if loading has begun."""
        if self._thread is not None:
            self._thread.join()

    def _warm(self) -> None:
        assert self._load is not None, "it is only sent for where there is one"
        _here.is_compiler_elsewhere = True
        try:
            self.now = _load_cached(self._load)
        except Exception as error:
            if threading.main_thread().is_alive():  # at the end nobody needs the code any more
                logger.warning("the compiled code cannot be loaded: %r", error)
            return
        self.is_warm = True


def _load_cached(load: Callable[[], T]) -> T:
    try:
        with freeze_imports():  # otherwise the loading time is waited for several times
            return load()
    except CodeNotCached:
        _compile_elsewhere(load)
    _here.is_compiler_elsewhere = False  # there may be no directory to keep code in
    with freeze_imports():
        return load()


def _compile_elsewhere(load: Callable[[], object]) -> None:
    """Has a process call `load`, which keeps the code that it compiles. That process ends with this
    one."""
    call = [load.__module__, load.__qualname__]
    compiler = subprocess.Popen(
        [sys.executable, "-c", COMPILER, *call, *sys.path],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while True:
        with suppress(subprocess.TimeoutExpired):
            compiler.wait(LOOK_S)
            return
        if not threading.main_thread().is_alive():
            compiler.kill()
            raise CodeNotCached("this process ends")


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
