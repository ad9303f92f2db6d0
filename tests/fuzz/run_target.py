"""Runs one fuzz target in a process of its own: NAME, corpus directories, libFuzzer's options."""

import resource
import sys
from collections.abc import Callable
from importlib import import_module

import atheris

ALLOCATED_BYTES_MAX = 64 << 20
COMPILED = [
    "headwater.connectors.postgres.wal.kernels_numba"
]  # its compiler reads what is written, not more


def guarded(target: Callable[[bytes], None]) -> Callable[[bytes], None]:
    """Fails where an input makes the process grow by more than a small input may."""

    def run(data: bytes) -> None:
        before = peak_bytes()
        target(data)
        grown = peak_bytes() - before
        assert grown <= ALLOCATED_BYTES_MAX, f"{len(data)} bytes of input took {grown} of memory"

    return run


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def main() -> None:
    name, *options = sys.argv[1:]
    with atheris.instrument_imports(include=["headwater"], exclude=COMPILED):
        target = import_module(f"tests.fuzz.{name}_target").Target()
    target(b"")  # what is imported late and kept is not the first input's fault
    atheris.Setup([sys.argv[0], *options], guarded(target))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
