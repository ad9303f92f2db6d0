"""Which kernels a process works with."""

from functools import cache

from headwater.connectors.postgres.wal.kernels import Kernels
from headwater.connectors.postgres.wal.kernels_lazy import LazyKernels
from headwater.connectors.postgres.wal.kernels_numpy import PlainKernels
from headwater.core_log.foundation.speed import Speed, chosen_speed


@cache
def chosen_kernels() -> Kernels:
    """Those of this process."""
    return LazyKernels() if chosen_speed() == "fast" else PlainKernels()


def kernels_of(speed: Speed, **choices: int) -> Kernels:
    if speed == "fast":
        from headwater.connectors.postgres.wal.kernels_numba import FastKernels

        return FastKernels(**choices)
    return PlainKernels(**choices)
