"""Chooses the kernels of a process: NumPy or compiled."""

from collections.abc import Collection, Mapping
from functools import cache
from importlib import import_module

import numpy as np
import pyarrow as pa

from headwater.connectors.postgres.wal.kernels import (
    SLACK_BYTES,
    CopyFields,
    FieldSpans,
    FrameBounds,
    Kernels,
)
from headwater.connectors.postgres.wal.kernels_numpy import PlainKernels
from headwater.core_log.foundation.array_types import BoolArray, Int32Array, Int64Array, UInt8Array
from headwater.core_log.foundation.speed import CompiledSpeed, Speed, chosen_speed


@cache
def chosen_kernels() -> Kernels:
    """Returns the kernels of this process."""
    return LazyKernels() if chosen_speed() == "fast" else PlainKernels()


def kernels_of(speed: Speed, **choices: int) -> Kernels:
    if speed == "fast":
        from headwater.connectors.postgres.wal.kernels_numba import FastKernels

        return FastKernels(**choices)
    return PlainKernels(**choices)


WORTH_BYTES = 8 << 20

ROW = np.frombuffer(b"t\0\0\0\1a" + bytes(SLACK_BYTES), np.uint8).copy()
TUPLE = np.frombuffer(b"\0\1\0\0\0\1a" + bytes(SLACK_BYTES), np.uint8).copy()


class LazyKernels:
    """Counts the work, and loads the compiled kernels when they pay."""

    def __init__(self, worth_bytes: int = WORTH_BYTES) -> None:
        self._chosen: CompiledSpeed[Kernels] = CompiledSpeed(
            PlainKernels(), _load_compiled, worth_bytes
        )

    @property
    def is_warm(self) -> bool:
        return self._chosen.is_warm

    def walk(self, buffer: UInt8Array, begin: int, end: int) -> FrameBounds:
        self._chosen.count(end - begin)
        return self._chosen.now.walk(buffer, begin, end)

    def spans(
        self, buffer: UInt8Array, starts: Int64Array, stops: Int64Array, columns: int
    ) -> FieldSpans:
        return self._chosen.now.spans(buffer, starts, stops, columns)

    def values(
        self,
        buffer: UInt8Array,
        bounds: Int32Array,
        missing: Mapping[int, BoolArray],
        bare: Collection[int] = (),
    ) -> tuple[pa.Array, ...]:
        return self._chosen.now.values(buffer, bounds, missing, bare)

    def cells(
        self, buffer: UInt8Array, starts: Int64Array, stops: Int64Array, columns: int
    ) -> CopyFields:
        self._chosen.count(int(stops[-1] - starts[0]) if len(starts) else 0)
        return self._chosen.now.cells(buffer, starts, stops, columns)

    def wait(self) -> None:
        """Waits until the compiled kernels are loaded, if loading has begun."""
        self._chosen.wait()


def _load_compiled() -> Kernels:
    fast = import_module("headwater.connectors.postgres.wal.kernels_numba")
    _exercise(fast.FastKernels(few_rows=0))
    kernels: Kernels = fast.FastKernels()
    return kernels


def _exercise(kernels: Kernels) -> None:
    """Calls every kernel once, because the first call compiles it."""
    kernels.walk(ROW, 0, 1)
    place = np.zeros(1, np.int64)
    spans = kernels.spans(ROW, place, place + 6, 1)
    kernels.values(ROW, spans.bounds, {})
    kernels.cells(TUPLE, place, place + 7, 1)
