"""Copies files whose sync failed to new ones, because their content on disk is unknown."""

from itertools import pairwise
from pathlib import Path

from headwater.core_log.storage.files import Files, write_all
from headwater.core_log.storage.producer_snapshot import SUFFIX as SNAPSHOT
from headwater.core_log.storage.segment import SUFFIXES
from headwater.core_log.storage.swap import SWAP, UNFINISHED, base_offsets

COPY_BYTES = 1 << 20


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
