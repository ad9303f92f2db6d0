"""Chooses the kernels of a process: plain or compiled."""

from collections.abc import Sequence
from functools import cache
from importlib import import_module

import numpy as np
import pyarrow as pa

from headwater.connectors.mysql.kernels.kernels import (
    CellSpans,
    MysqlKernels,
    Packets,
    RowLayout,
    RowSpans,
    with_slack,
)
from headwater.connectors.mysql.kernels.plain import PlainMysqlKernels
from headwater.core_log.foundation.array_types import BoolArray, Int32Array, Int64Array, UInt8Array
from headwater.core_log.foundation.speed import CompiledSpeed, Speed, chosen_speed

WORTH_BYTES = 8 << 20


@cache
def chosen_kernels() -> MysqlKernels:
    """Returns the kernels of this process."""
    return LazyMysqlKernels() if chosen_speed() == "fast" else PlainMysqlKernels()


def kernels_of(speed: Speed) -> MysqlKernels:
    if speed == "fast":
        from headwater.connectors.mysql.kernels.compiled import FastMysqlKernels

        return FastMysqlKernels()
    return PlainMysqlKernels()


class LazyMysqlKernels:
    """Counts the work, and loads the compiled kernels when they pay."""

    def __init__(self, worth_bytes: int = WORTH_BYTES) -> None:
        self._chosen: CompiledSpeed[MysqlKernels] = CompiledSpeed(
            PlainMysqlKernels(), _load_compiled, worth_bytes
        )

    @property
    def is_warm(self) -> bool:
        return self._chosen.is_warm

    def rows(
        self, buffer: UInt8Array, begins: Int64Array, ends: Int64Array, layout: RowLayout
    ) -> RowSpans:
        self._chosen.count(int(ends[-1] - begins[0]) if len(begins) else 0)
        return self._chosen.now.rows(buffer, begins, ends, layout)

    def packets(self, buffer: UInt8Array, end: int) -> Packets:
        self._chosen.count(end)
        return self._chosen.now.packets(buffer, end)

    def cells(
        self, buffer: UInt8Array, starts: Int64Array, stops: Int64Array, columns: int
    ) -> CellSpans:
        return self._chosen.now.cells(buffer, starts, stops, columns)

    def gather(
        self, buffer: UInt8Array, bounds: Int32Array, is_null: BoolArray
    ) -> Sequence[pa.BinaryArray]:
        return self._chosen.now.gather(buffer, bounds, is_null)

    def documents(self, values: pa.BinaryArray) -> pa.StringArray:
        return self._chosen.now.documents(values)

    def wait(self) -> None:
        """Waits until the compiled kernels are loaded, if loading has begun."""
        self._chosen.wait()


def _load_compiled() -> MysqlKernels:
    kernels: MysqlKernels = import_module(
        "headwater.connectors.mysql.kernels.compiled"
    ).FastMysqlKernels()
    _exercise(kernels)
    return kernels


def _exercise(kernels: MysqlKernels) -> None:
    """Calls every kernel once, because the first call compiles it: with bytes that may not be
    changed, as events have them, and with those of a connection's buffer."""
    for is_writable in (False, True):
        buffer = with_slack([b"\1\0\0\0\0"])
        if is_writable:
            buffer = buffer.copy()
        place, layout = np.zeros(1, np.int64), RowLayout(*2 * [np.ones(1, np.int32)])
        spans = kernels.rows(buffer, place, place + 2, layout)
        packets = kernels.packets(buffer, 5)
        cells = kernels.cells(buffer, packets.starts, packets.stops, 1)
        for each in (spans, cells):
            kernels.gather(buffer, each.bounds, each.is_null)
    kernels.documents(pa.array([b"\4\0", None], pa.binary()))
