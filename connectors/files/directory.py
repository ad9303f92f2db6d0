"""Files of a local directory."""

import os
import re
import stat
from collections.abc import Collection, Iterator
from pathlib import Path

from headwater.connectors.files.storage import (
    WILD,
    FileChoice,
    FileEntry,
    FileGone,
    RawFile,
    choice_of,
    is_hidden,
)
from headwater.core_log.foundation.errors import SourceRejected, SourceUnavailable


class Directory:
    """Files of a local file system. Directories are not followed through symbolic links."""

    poll_ms_min = 0
    has_whole_files = False

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def default_table(self) -> str:
        return self._choice().table

    def entries(self, tracked: Collection[str]) -> list[FileEntry]:
        choice = self._choice()
        try:
            return sorted(self._walk(choice, choice.root, "", 0, tracked))
        except OSError as error:
            raise SourceUnavailable(
                "the directory cannot be read", path=choice.root, reason=error.strerror
            ) from error

    def open(self, entry: FileEntry) -> RawFile:
        try:
            return LocalFile(entry)
        except FileNotFoundError as error:
            raise FileGone from error
        except OSError as error:
            raise SourceUnavailable(
                "a file cannot be opened", file=entry.name, reason=error.strerror
            ) from error

    def check(self) -> None:
        root = Path(self._choice().root)
        if not root.is_dir():
            raise SourceRejected(
                "the directory does not exist", hint=f"mkdir -p {root}", path=str(root)
            )
        if not os.access(root, os.R_OK | os.X_OK):
            raise SourceRejected("the directory may not be read", path=str(root))

    def _choice(self) -> FileChoice:
        path = str(self._path)
        is_directory = self._path.is_dir()
        if not is_directory and WILD.search(path) and self._path.exists():
            path = re.sub(r"([*?\[])", r"[\1]", path)  # a file that is really called so
        return choice_of(path, is_directory=is_directory)

    def _walk(
        self, choice: FileChoice, directory: str, above: str, depth: int, tracked: Collection[str]
    ) -> Iterator[FileEntry]:
        try:
            found = os.scandir(directory)
        except FileNotFoundError:  # not there yet, or no longer
            return
        with found:
            for each in found:
                name = above + os.fsencode(each.name).decode("utf-8", "backslashreplace")
                if each.is_dir(follow_symlinks=False):
                    if (choice.depth is None or depth < choice.depth) and not is_hidden(each.name):
                        yield from self._walk(choice, each.path, name + "/", depth + 1, tracked)
                    continue
                try:
                    status = each.stat()
                except FileNotFoundError:  # it went while we were looking
                    continue
                if not stat.S_ISREG(status.st_mode):
                    continue
                wanted = not is_hidden(each.name) and bool(choice.pattern.fullmatch(name))
                entry = entry_of(name, each.path, status)._replace(is_wanted=wanted)
                if wanted or entry.identity in tracked:
                    yield entry


def entry_of(name: str, path: str, status: os.stat_result) -> FileEntry:
    identity = f"{status.st_dev:x}:{status.st_ino:x}"
    return FileEntry(name, path, identity, status.st_size, status.st_mtime_ns // 1_000)


class LocalFile:
    """One open file of the file system, as it is at its opening."""

    def __init__(self, entry: FileEntry) -> None:
        self._descriptor = os.open(entry.place, os.O_RDONLY | os.O_CLOEXEC)
        now = entry_of(entry.name, entry.place, os.fstat(self._descriptor))
        if now.identity != entry.identity:
            os.close(self._descriptor)
            raise FileGone
        self.entry = now._replace(is_wanted=entry.is_wanted)

    def read(self, position: int, size: int) -> bytes:
        try:
            return os.pread(self._descriptor, size, position)
        except OSError as error:
            raise SourceUnavailable(
                "a file cannot be read", file=self.entry.name, reason=error.strerror
            ) from error

    def read_stretch(self, position: int, size: int) -> bytes:
        return self.read(position, size)

    def close(self) -> None:
        os.close(self._descriptor)
