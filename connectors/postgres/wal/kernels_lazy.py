"""The plain loops, until there has been enough to do for the compiled ones to be worth loading."""

from collections.abc import Collection, Mapping
from importlib import import_module

import numpy as np
import pyarrow as pa

from connectors.postgres.wal.kernels import (
    SLACK_BYTES,
    Cells,
    Flags,
    Frames,
    Int32s,
    Kernels,
    Spans,
)
from connectors.postgres.wal.kernels_numpy import PlainKernels
from connectors.postgres.wal.wal_batch import Bytes, Int64s
from core_log.foundation.speed import Warming

WORTH_BYTES = 8 << 20

ROW = np.frombuffer(b"t\0\0\0\1a" + bytes(SLACK_BYTES), np.uint8).copy()
TUPLE = np.frombuffer(b"\0\1\0\0\0\1a" + bytes(SLACK_BYTES), np.uint8).copy()


class WarmingKernels:
    """Counts what there is to do."""

    def __init__(self, worth_bytes: int = WORTH_BYTES) -> None:
        self._chosen: Warming[Kernels] = Warming(PlainKernels(), _compiled, worth_bytes)

    @property
    def is_warm(self) -> bool:
        return self._chosen.is_warm

    def walk(self, buffer: Bytes, begin: int, end: int) -> Frames:
        self._chosen.count(end - begin)
        return self._chosen.now.walk(buffer, begin, end)

    def spans(self, buffer: Bytes, starts: Int64s, stops: Int64s, columns: int) -> Spans:
        return self._chosen.now.spans(buffer, starts, stops, columns)

    def values(
        self,
        buffer: Bytes,
        bounds: Int32s,
        missing: Mapping[int, Flags],
        bare: Collection[int] = (),
    ) -> tuple[pa.Array, ...]:
        return self._chosen.now.values(buffer, bounds, missing, bare)

    def cells(self, buffer: Bytes, starts: Int64s, stops: Int64s, columns: int) -> Cells:
        self._chosen.count(int(stops[-1] - starts[0]) if len(starts) else 0)
        return self._chosen.now.cells(buffer, starts, stops, columns)

    def wait(self) -> None:
        """Until the compiled loops are there, if they have been sent for."""
        self._chosen.wait()


def _compiled() -> Kernels:
    fast = import_module("connectors.postgres.wal.kernels_numba")
    _exercise(fast.FastKernels(few_rows=0))
    kernels: Kernels = fast.FastKernels()
    return kernels


def _exercise(kernels: Kernels) -> None:
    """Every loop once, as it is compiled when it is first called."""
    kernels.walk(ROW, 0, 1)
    place = np.zeros(1, np.int64)
    spans = kernels.spans(ROW, place, place + 6, 1)
    kernels.values(ROW, spans.bounds, {})
    kernels.cells(TUPLE, place, place + 7, 1)
