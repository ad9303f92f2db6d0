"""Looking at files step by step, with crashes where a test wants them."""

from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from headwater.connectors.files.line_parser import FileOrigin
from headwater.connectors.files.scanner import DirectoryScanner
from headwater.connectors.files.settings import FilesSettings
from headwater.connectors.files.storage import FileStorage
from headwater.core_log.model.changes import ChangeBatch, Operation, Reject

LATER_MS = 60_000


@dataclass(slots=True)
class Reader:
    """A files source whose batches are kept as the log would keep them: rows with positions."""

    directory: Path
    chosen: dict[str, Any]
    now_ms: int = 0
    positions: dict[str, str] = field(default_factory=dict)
    batches: list[ChangeBatch] = field(default_factory=list)
    look: DirectoryScanner | None = None

    def read(self, *, batches_max: int | None = None, is_last: bool = False) -> int:
        """One look; of its batches the first ones are kept. A crash follows where some are not."""
        look = self.look or self.restart()
        found = look.batches(now_ms=self.now_ms, is_last=is_last)
        kept = list(islice(found, batches_max))
        for batch in kept:
            self.positions |= batch.positions
        self.batches += kept
        if next(found, None) is not None:
            self.look = None
        found.close()
        return sum(len(changes) for batch in kept for changes in batch.tables)

    def read_all(self, *, is_last: bool = False) -> int:
        total = 0
        while count := self.read(is_last=is_last):
            total += count
        return total

    def restart(self) -> DirectoryScanner:
        settings = FilesSettings.model_validate({"path": str(self.directory), **self.chosen})
        place = FileStorage(settings, self.directory)
        self.look = DirectoryScanner(settings, place, FileOrigin("shop", "1"), self.positions)
        return self.look

    def rows(self) -> list[dict[str, Any]]:
        return [
            row
            for batch in self.batches
            for changes in batch.tables
            for row in changes.rows.to_pylist()
        ]

    def lines(self) -> list[str]:
        return [row["line"] for row in self.rows()]

    def operations(self) -> list[Operation]:
        return [
            Operation(each)
            for batch in self.batches
            for changes in batch.tables
            for each in changes.operations.to_pylist()
        ]

    def places(self) -> list[str]:
        """`file#row` of every row, as the log's headers say it."""
        return [
            f"{changes.commits}#{index}"
            for batch in self.batches
            for changes in batch.tables
            for index in (changes.indexes or [])
        ]

    def rejects(self) -> list[Reject]:
        return [reject for batch in self.batches for reject in batch.rejects]
