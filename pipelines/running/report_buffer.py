"""Words of a busy worker for its owner, a few at a time: each costs both of them a while."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace

from headwater.pipelines.reports import OffsetsApplied, RowsMoved
from headwater.pipelines.running.worker_protocol import Word

GATHER_S = 0.05


class ReportBuffer:
    """What has moved, and where units stand, is added up for a moment; the first after quiet goes
    at once. Everything else does, too, and takes what came before it along."""

    def __init__(self, say: Callable[[Word], None], loop: asyncio.AbstractEventLoop) -> None:
        self._say, self._loop = say, loop
        self._moved: dict[tuple[str, str, str], RowsMoved] = {}
        self._stood: dict[tuple[str, str], OffsetsApplied] = {}
        self._lock = threading.Lock()
        """Units report from threads as well."""
        self.is_busy = False
        """Something was said a moment ago."""

    def __call__(self, word: Word) -> None:
        with self._lock:
            if not self._keeps(word):
                self._tell()
                self._say(word)
                return
            if self.is_busy:
                return
            self.is_busy = True
            self._tell()
        self._loop.call_soon_threadsafe(self._loop.call_later, GATHER_S, self._on_time)

    def tell(self) -> None:
        """Everything that there is."""
        with self._lock:
            self._tell()

    def _keeps(self, word: Word) -> bool:
        match word:
            case RowsMoved():
                moved = (word.pipeline, word.unit, word.table)
                known = self._moved.get(moved)
                self._moved[moved] = word if known is None else _sum(known, word)
                return True
            case OffsetsApplied():
                unit = (word.pipeline, word.unit)
                before = self._stood.get(unit)
                if before is not None:
                    word = replace(word, positions={**before.positions, **word.positions})
                self._stood[unit] = word
                return True
        return False

    def _on_time(self) -> None:
        with self._lock:
            if self._moved or self._stood:
                self._tell()
                self._loop.call_later(GATHER_S, self._on_time)
            else:
                self.is_busy = False

    def _tell(self) -> None:
        moved, self._moved = self._moved, {}
        stood, self._stood = self._stood, {}
        words: list[Word] = [*moved.values(), *stood.values()]
        for word in words:
            self._say(word)


def _sum(one: RowsMoved, other: RowsMoved) -> RowsMoved:
    return replace(other, rows=one.rows + other.rows, bytes=one.bytes + other.bytes)
