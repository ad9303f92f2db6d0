"""Objects as files of a directory."""

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from headwater.core_log.objects.store import ObjectGone, StoredObject, StoreErrors
from headwater.core_log.storage.files import OsFile, OsFiles

_writes = count(1)
"""A counter for file names: threads may write the same name."""


class DirectoryStore:
    """Every name appears by a rename or a link of a file that is on disk already.

    Directories are not followed through symbolic links. A name that is not UTF-8 has surrogates.
    """

    def __init__(self, root: Path, errors: StoreErrors) -> None:
        self.local_root, self._errors, self._files = root, errors, OsFiles()

    def objects(
        self, prefix: str, *, may_enter: Callable[[str], bool] | None = None
    ) -> list[StoredObject]:
        above = prefix[: prefix.rfind("/") + 1]
        with self._failures(above):
            found = self._walk(self.local_root / above, above, may_enter or (lambda name: True))
            return sorted(each for each in found if each.name.startswith(prefix))

    def open(self, each: StoredObject) -> "FileReader":
        with self._failures(each.name):
            try:
                file = OsFiles(may_write=False).open(self.local_root / each.name)
            except FileNotFoundError as error:
                raise ObjectGone from error
            now = object_of(each.name, os.fstat(file.fileno()))
        if now.version != each.version:
            raise ObjectGone
        return FileReader(self, file, now)

    def read(self, name: str) -> bytes | None:
        with self._failures(name):
            try:
                return self._files.read(self.local_root / name)
            except FileNotFoundError:
                return None

    def read_from(self, file: OsFile, name: str, position: int, size: int) -> bytes:
        with self._failures(name):
            return file.read(position, size)

    def put(self, name: str, content: bytes) -> None:
        path = self.local_root / name
        fresh = _beside(path)
        with self._failures(name):
            make_directory(path.parent)
            self._files.replace(fresh, content)
            self._files.rename(fresh, path)
            self._files.sync_directory(path.parent)

    def create(self, name: str, content: bytes) -> bool:
        path = self.local_root / name
        fresh = _beside(path)
        with self._failures(name):
            make_directory(path.parent)
            self._files.replace(fresh, content)
            try:
                os.link(fresh, path)
            except FileExistsError:
                return False
            finally:
                self._files.remove(fresh)
            self._files.sync_directory(path.parent)
            return True

    def upload(self, name: str, path: Path) -> None:
        target = self.local_root / name
        with self._failures(name):
            make_directory(target.parent)
            self._files.open(path).sync()
            self._files.rename(path, target)
            self._files.sync_directory(target.parent)

    def remove(self, names: Sequence[str]) -> None:
        with self._failures(*names[:1]):
            directories = set()
            for name in names:
                path = self.local_root / name
                if path.exists():
                    self._files.remove(path)
                    directories.add(path.parent)
            for directory in sorted(directories, reverse=True):
                if directory.is_dir():  # it goes with the last directory below it
                    self._files.sync_directory(directory)
                    self._remove_empty(directory)

    def check(self, prefix: str = "", *, writes: bool) -> None:
        path = self.local_root / prefix
        existing = path
        while writes and not existing.exists():
            existing = existing.parent
        if not writes and not path.is_dir():
            raise self._errors.rejected(
                "the directory does not exist", hint=f"mkdir -p {path}", path=str(path)
            )
        if not existing.is_dir() or not os.access(existing, os.X_OK | _rights(writes=writes)):
            word = "written" if writes else "read"
            raise self._errors.rejected(f"the directory may not be {word}", path=str(path))

    def address(self, name: str) -> str:
        return str(self.local_root / name)

    def _walk(
        self, directory: Path | str, above: str, may_enter: Callable[[str], bool]
    ) -> Iterator[StoredObject]:
        try:
            found = os.scandir(directory)
        except (FileNotFoundError, NotADirectoryError):  # not there yet, or no longer
            return
        with found:
            for each in found:
                name = above + each.name
                if each.is_dir(follow_symlinks=False):
                    if may_enter(name):
                        yield from self._walk(each.path, f"{name}/", may_enter)
                    continue
                try:
                    status = each.stat()
                except FileNotFoundError:  # removed since, or a link to nothing
                    continue
                if stat.S_ISREG(status.st_mode):
                    yield object_of(name, status)

    def _remove_empty(self, directory: Path) -> None:
        while directory != self.local_root and not any(directory.iterdir()):
            directory.rmdir()
            directory = directory.parent

    @contextmanager
    def _failures(self, *names: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._errors.refusal(
                "the disk refuses access",
                error,
                error.errno,
                path=self.address(next(iter(names), "")),
                reason=str(error.strerror),
            ) from error


def _beside(path: Path) -> Path:
    """Returns a hidden name that no other writer has."""
    return path.with_name(f".{path.name}.{os.getpid()}.{next(_writes):x}.new")


class FileReader:
    """One open file; it stays open if its name is removed."""

    def __init__(self, store: DirectoryStore, file: OsFile, opened: StoredObject) -> None:
        self._store, self.object = store, opened
        self._file: OsFile | None = file

    def read(self, position: int, size: int) -> bytes:
        assert self._file is not None, "a closed file is not read"
        return self._store.read_from(self._file, self.object.name, position, size)

    def read_range(self, position: int, size: int) -> bytes:
        return self.read(position, size)

    def close(self) -> None:
        self._file = None


def object_of(name: str, status: os.stat_result) -> StoredObject:
    version = f"{status.st_dev:x}:{status.st_ino:x}"
    return StoredObject(name, status.st_size, status.st_mtime_ns // 1_000, version)


def make_directory(path: Path) -> None:
    """Makes missing directories durable: each is on disk once its parent is synced."""
    if path.is_dir():
        return
    make_directory(path.parent)
    files = OsFiles()
    files.make_directory(path)
    files.sync_directory(path.parent)


def _rights(*, writes: bool) -> int:
    return os.W_OK if writes else os.R_OK
