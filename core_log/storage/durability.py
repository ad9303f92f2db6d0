"""How much of a partition is on disk: jobs that sync it, and what their success proves."""

from pathlib import Path

from core_log.storage.files import File, Files


class SyncJob:
    """What to sync, captured on the event loop; `run` may be called in any thread.

    It holds open files and paths only, nothing of the partition's state, so the partition goes
    on being appended to meanwhile. The order counts: earlier segments before later ones.
    """

    __slots__ = ("_active", "_file_system", "directories", "end_offset", "files")

    def __init__(
        self,
        file_system: Files,
        files: list[File],
        directories: list[Path],
        end_offset: int,
        *,
        active: File | None = None,
    ) -> None:
        self._file_system, self.files, self.directories = file_system, files, directories
        self._active, self.end_offset = active, end_offset
        """Everything below is on disk once `run` has returned."""

    @property
    def is_empty(self) -> bool:
        return not self.files and not self.directories and self._active is None

    def run(self) -> None:
        for file in self.files:
            file.sync()
        if self._active is not None:
            self._active.sync()
        for directory in self.directories:
            self._file_system.sync_directory(directory)


class RemovalJob:
    """Files whose names are already out of the way; deleting large ones is slow, so in a thread."""

    __slots__ = ("_directory", "_file_system", "_paths")

    def __init__(
        self, file_system: Files, paths: list[Path], *, directory: Path | None = None
    ) -> None:
        self._file_system, self._paths, self._directory = file_system, paths, directory

    def run(self) -> None:
        for path in self._paths:
            self._file_system.remove(path)
        if self._directory is not None:
            self._file_system.remove_directory(self._directory)


class Durability:
    """Two ends: what was synced, and what counts as durable, which markers may push further."""

    __slots__ = ("_markers", "durable", "synced")

    def __init__(self, offset: int) -> None:
        self.synced, self.durable = offset, offset
        self._markers: set[int] = set()

    def on_synced(self, end_offset: int) -> None:
        self.synced = max(self.synced, end_offset)
        self._advance()

    def on_trusted(self, end_offset: int) -> None:
        """Nobody asks the disk: what is written counts."""
        self.durable = max(self.durable, end_offset)
        self._markers.clear()

    def on_marker_decided(self, offset: int) -> None:
        """The decision behind the marker at `offset` is on disk: recovery can write it again."""
        if offset >= self.durable:
            self._markers.add(offset)
            self._advance()

    def on_truncated(self, end_offset: int) -> None:
        self.synced, self.durable = min(self.synced, end_offset), min(self.durable, end_offset)
        self._markers = {offset for offset in self._markers if offset < end_offset}

    def _advance(self) -> None:
        if self.synced > self.durable:
            self.durable = self.synced
            self._markers = {offset for offset in self._markers if offset >= self.synced}
        while self.durable in self._markers:
            self._markers.remove(self.durable)
            self.durable += 1
