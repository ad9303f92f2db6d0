"""How much of a partition is on disk: jobs that sync it, what they prove, and copies of files whose
sync failed."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from headwater.core_log.storage.files import File, Files, write_all
from headwater.core_log.storage.segment import SNAPSHOT, SUFFIXES
from headwater.core_log.storage.swap import SWAP, UNFINISHED, base_offsets

COPY_BYTES = 1 << 20


class SyncJob:
    """The files to sync, captured on the event loop; `run` may be called in any thread.

    It holds only open files and paths, none of the partition's state, so appends may go on
    meanwhile. The order matters: earlier segments before later ones.
    """

    __slots__ = ("_active", "_file_system", "directories", "end_offset", "files", "is_held_up")

    def __init__(
        self,
        file_system: Files,
        files: list[File],
        directories: list[Path],
        end_offset: int,
        *,
        active: File | None = None,
        is_held_up: bool = False,
    ) -> None:
        self._file_system, self.files, self.directories = file_system, files, directories
        self._active, self.end_offset = active, end_offset
        """Everything below is on disk once `run` has returned."""
        self.is_held_up = is_held_up
        """More was written, but the disk has no room for files that must be synced with it."""

    @property
    def is_empty(self) -> bool:
        return not self.files and not self.directories and self._active is None

    def begin(self) -> None:
        """Starts writing to disk. With several jobs to run, the disk then works on all of them."""
        if self._active is not None:
            self._active.begin_sync()

    def run(self) -> None:
        for file in self.files:
            file.sync()
        if self._active is not None:
            self._active.sync()
        for directory in self.directories:
            with suppress(FileNotFoundError):  # the partition was deleted meanwhile
                self._file_system.sync_directory(directory)


class RemovalJob:
    """Renamed files to remove in a thread, because deleting large files is slow."""

    __slots__ = ("_before", "_directory", "_file_system", "_paths")

    def __init__(
        self,
        file_system: Files,
        paths: list[Path],
        *,
        directory: Path | None = None,
        before: Callable[[], None] = lambda: None,
    ) -> None:
        """`before` is called first; if it fails, nothing is removed."""
        self._file_system, self._paths, self._directory = file_system, paths, directory
        self._before = before

    def run(self) -> None:
        self._before()
        for path in self._paths:
            self._file_system.remove(path)
        if self._directory is not None:
            self._file_system.remove_directory(self._directory)


class Durability:
    """The synced offset, the durable offset (which markers may push further), and the files that
    the next sync includes beside the active segment."""

    __slots__ = (
        "_directories",
        "_file_system",
        "_files",
        "_is_trusting",
        "_markers",
        "_running",
        "durable",
        "synced",
    )

    def __init__(self, file_system: Files, offset: int) -> None:
        self._file_system = file_system
        self.synced, self.durable = offset, offset
        self._markers: set[int] = set()
        self._files: list[File] = []
        self._directories: list[Path] = []
        self._running: list[SyncJob] = []
        self._is_trusting = False

    @property
    def settled(self) -> int:
        """Nothing below waits for a sync, including its markers."""
        return self.durable if self._is_trusting else self.synced

    def add(self, files: Iterable[File], directories: Iterable[Path] = ()) -> None:
        """Adds files that must also be on disk before anything written from now on counts as
        durable."""
        self._files += files
        self._directories += directories

    def job(self, active: File, end_offset: int) -> SyncJob:
        """Returns the job that proves everything below `end_offset`, the end of the active file."""
        if self._is_trusting:
            return self.no_job()
        if end_offset == self.synced and not self._files and not self._directories:
            return self.no_job()
        files, directories = list(self._files), list(self._directories)
        job = SyncJob(self._file_system, files, directories, end_offset, active=active)
        self._running.append(job)
        return job

    def no_job(self, *, is_held_up: bool = False) -> SyncJob:
        """Returns a job that proves nothing new."""
        return SyncJob(self._file_system, [], [], self.synced, is_held_up=is_held_up)

    def on_synced(self, job: SyncJob) -> None:
        """The job ended without an error. Files added meanwhile still wait, even a file of the job:
        its sync may have come before the file's last bytes."""
        for file in job.files:
            if file in self._files:
                self._files.remove(file)
        for directory in job.directories:
            if directory in self._directories:
                self._directories.remove(directory)
        if job in self._running:
            self._running.remove(job)
        self.synced = max(self.synced, job.end_offset)
        self._advance()

    def on_trusted(self, end_offset: int) -> None:
        """Without syncs (`fsync: never`): written records count as durable, and nothing is proved
        until close."""
        self._is_trusting = True
        self.durable = max(self.durable, end_offset)
        self._markers.clear()
        self._files.clear()
        self._directories.clear()

    def on_closed(self, end_offset: int) -> None:
        """Called after all files were synced one by one."""
        self.synced = self.durable = end_offset

    def on_marker_decided(self, offset: int) -> None:
        """The decision behind the marker at `offset` is on disk: recovery can write the marker
        again."""
        if offset >= self.durable:
            self._markers.add(offset)
            self._advance()

    def on_truncated(self, end_offset: int) -> None:
        """Running jobs do not prove records that are written here from now on."""
        self.synced, self.durable = min(self.synced, end_offset), min(self.durable, end_offset)
        for job in self._running:
            job.end_offset = min(job.end_offset, end_offset)
        self._markers = {offset for offset in self._markers if offset < end_offset}

    def _advance(self) -> None:
        if self.synced > self.durable:
            self.durable = self.synced
            self._markers = {offset for offset in self._markers if offset >= self.synced}
        while self.durable in self._markers:
            self._markers.remove(self.durable)
            self.durable += 1


class RenewalJob:
    """After a failed sync the system may mark pages as clean that are not on disk, and a second
    sync would succeed without them. So the unproved part is written again to new files, and
    their sync proves it. `run` may be called in any thread, and repeated."""

    __slots__ = ("_directory", "_files", "_recovery_point")

    def __init__(self, files: Files, directory: Path, *, recovery_point: int) -> None:
        self._files, self._directory, self._recovery_point = files, directory, recovery_point

    def run(self) -> None:
        names = self._files.names(self._directory)
        bases = base_offsets(names)
        proved = {base for base, following in pairwise(bases) if following <= self._recovery_point}
        for name in names:
            path = self._directory / name
            offset = int(path.stem) if path.stem.isdigit() else None
            if name.endswith((*UNFINISHED, SWAP)) or (path.suffix in SUFFIXES and offset in proved):
                continue
            if path.suffix == SNAPSHOT and offset is not None and offset > self._recovery_point:
                # its existence means that the indexes are on disk, which is uncertain
                self._files.remove(path)
            else:
                self._copy(path)
        self._files.sync_directory(self._directory)
        self._files.sync_directory(self._directory.parent)

    def _copy(self, path: Path) -> None:
        source, size, position = self._files.open(path), self._files.size(path), 0
        fresh_path = path.with_name(path.name + ".tmp")
        self._files.remove(fresh_path)  # the result of a failed copy is as uncertain
        fresh = self._files.open(fresh_path, create=True)
        while position < size:
            chunk = source.read(position, min(COPY_BYTES, size - position))
            write_all(fresh, position, chunk)
            position += len(chunk)
        fresh.sync()
        self._files.rename(fresh_path, path)
