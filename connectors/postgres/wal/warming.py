"""The plain loops, until there has been enough to do for the compiled ones to be worth loading."""

import logging
import threading
from collections.abc import Mapping
from importlib import import_module

import numpy as np
import pyarrow as pa

from connectors.postgres.wal.burst import Bytes, Int64s
from connectors.postgres.wal.kernels import (
    SLACK_BYTES,
    Cells,
    Flags,
    Frames,
    Int32s,
    Kernels,
    Spans,
)
from connectors.postgres.wal.plain import PlainKernels

WORTH_BYTES = 8 << 20

ROW = np.frombuffer(b"t\0\0\0\1a" + bytes(SLACK_BYTES), np.uint8).copy()
LINE = np.frombuffer(b"a\n" + bytes(SLACK_BYTES), np.uint8).copy()

logger = logging.getLogger(__name__)


class WarmingKernels:
    """The compiler takes a second to load, many where nothing is kept of an earlier run, and more
    memory than a small pipeline all in all; meanwhile a thread sees to it and nobody waits."""

    def __init__(self, worth_bytes: int = WORTH_BYTES) -> None:
        self._now: Kernels = PlainKernels()
        self._left_bytes = worth_bytes
        self._thread: threading.Thread | None = None

    @property
    def is_warm(self) -> bool:
        return not isinstance(self._now, PlainKernels)

    def walk(self, buffer: Bytes, begin: int, end: int) -> Frames:
        self._count(end - begin)
        return self._now.walk(buffer, begin, end)

    def spans(self, buffer: Bytes, starts: Int64s, stops: Int64s, columns: int) -> Spans:
        return self._now.spans(buffer, starts, stops, columns)

    def texts(
        self, buffer: Bytes, bounds: Int32s, missing: Mapping[int, Flags]
    ) -> tuple[pa.StringArray, ...]:
        return self._now.texts(buffer, bounds, missing)

    def cells(self, buffer: Bytes, end: int, columns: int) -> Cells:
        self._count(end)
        return self._now.cells(buffer, end, columns)

    def wait(self) -> None:
        """Until the compiled loops are there, if they have been sent for."""
        if self._thread is not None:
            self._thread.join()

    def _count(self, count: int) -> None:
        self._left_bytes -= count
        if self._left_bytes <= 0 and self._thread is None:
            # No daemon: the compiler must not be torn down in the middle of its work.
            self._thread = threading.Thread(target=self._warm, name="headwater-compiler")
            self._thread.start()

    def _warm(self) -> None:
        try:
            fast = import_module("connectors.postgres.wal.fast")
            _exercise(fast.FastKernels(few_rows=0))
        except Exception as error:
            logger.warning("the compiled decoders do not start: %s", type(error).__name__)
            return
        self._now = fast.FastKernels()


def _exercise(kernels: Kernels) -> None:
    """Every loop once, as it is compiled when it is first called."""
    kernels.walk(ROW, 0, 1)
    place = np.zeros(1, np.int64)
    spans = kernels.spans(ROW, place, place + 6, 1)
    kernels.texts(ROW, spans.bounds, {})
    kernels.cells(LINE, 2, 1)
