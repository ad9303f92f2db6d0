"""Rows of a prepared XA transaction until it is decided: beyond a limit in a temporary file."""

import pickle
from collections.abc import Iterator
from dataclasses import dataclass, field
from tempfile import TemporaryFile
from typing import IO, Any

from headwater.connectors.mysql.binlog.rows import RowsEvent, RowsLayout
from headwater.connectors.mysql.events.row_buffer import EventPlace

MEMORY_BYTES_MAX = 8 << 20
"""Bytes of events that all prepared transactions together keep in memory."""


@dataclass(slots=True)
class MemoryBudget:
    bytes_max: int = field(default_factory=lambda: MEMORY_BYTES_MAX)
    bytes_used: int = 0


@dataclass(slots=True)
class HeldRows:
    """Row events in the order of the log; they are read once."""

    budget: MemoryBudget
    _events: list[tuple[RowsEvent, EventPlace]] = field(default_factory=list)
    _bytes: int = 0
    _file: IO[bytes] | None = None
    _layouts: list[RowsLayout] = field(default_factory=list)
    """Layouts of the events in the file, which name them by number."""
    _numbers: dict[int, int] = field(default_factory=dict)
    """Their numbers by identity."""

    def add(self, event: RowsEvent, place: EventPlace, *, size: int) -> None:
        if self._file is None and self.budget.bytes_used + size <= self.budget.bytes_max:
            self._events.append((event, place))
            self._bytes += size
            self.budget.bytes_used += size
            return
        if self._file is None:
            self._file = TemporaryFile(prefix="headwater-xa-")  # noqa: SIM115 - held until decided
        _LayoutPickler(self._file, self).dump((event, place))

    def take(self) -> Iterator[tuple[RowsEvent, EventPlace]]:
        """Yields the events, and forgets them."""
        try:
            yield from self._events
            if self._file is not None:
                end = self._file.tell()
                self._file.seek(0)
                while self._file.tell() < end:
                    yield _LayoutUnpickler(self._file, self._layouts).load()
        finally:
            self.forget()

    def forget(self) -> None:
        self.budget.bytes_used -= self._bytes
        self._bytes, self._events = 0, []
        if self._file is not None:
            self._file.close()
            self._file = None

    def number_of(self, layout: RowsLayout) -> int:
        if id(layout) not in self._numbers:
            self._numbers[id(layout)] = len(self._layouts)
            self._layouts.append(layout)
        return self._numbers[id(layout)]


class _LayoutPickler(pickle.Pickler):
    def __init__(self, file: IO[bytes], held: HeldRows) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self._held = held

    def persistent_id(self, obj: Any) -> int | None:
        return self._held.number_of(obj) if isinstance(obj, RowsLayout) else None


class _LayoutUnpickler(pickle.Unpickler):
    """Reads our own file, which nobody else can open."""

    def __init__(self, file: IO[bytes], layouts: list[RowsLayout]) -> None:
        super().__init__(file)
        self._layouts = layouts

    def persistent_load(self, pid: Any) -> RowsLayout:
        return self._layouts[int(pid)]
