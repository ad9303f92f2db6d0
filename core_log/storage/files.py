"""The few file operations that storage needs, as an interface that tests can make fail."""

import errno
import fcntl
import os
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple, Protocol

from headwater.core_log.foundation.disk_space import write_refusal

Bytes = bytes | bytearray | memoryview
SYNC_FILE_RANGE_WRITE = 2  # from Linux's <fcntl.h>


class File(Protocol):
    """One open file. It is closed when the last reference to it is dropped, not before.

    So a reader may go on sending from a segment that retention or compaction has removed.
    """

    def fileno(self) -> int: ...
    def write(self, position: int, data: Bytes) -> int:
        """Writes at `position`; returns how many bytes were written, which may be fewer."""
        ...

    def read(self, position: int, size: int) -> bytes:
        """Returns at most `size` bytes; fewer only at the end of the file."""
        ...

    def size(self) -> int: ...
    def truncate(self, size: int) -> None: ...
    def begin_sync(self) -> None:
        """Starts writing changes to disk; only `sync` proves that they are there."""
        ...

    def sync(self) -> None:
        """Returns when everything written, and the file's length, is on disk."""
        ...


class Files(Protocol):
    """Operations on files by path. A new, renamed or removed name is on disk after
    `sync_directory`."""

    def open(self, path: Path, *, create: bool = False) -> File: ...
    def read(self, path: Path) -> bytes: ...
    def replace(self, path: Path, data: bytes, *, mode: int = 0o644) -> None:
        """Replaces the content atomically; it is on disk on return."""
        ...

    def names(self, directory: Path) -> list[str]: ...
    def size(self, path: Path) -> int: ...
    def modified_ms(self, path: Path) -> int: ...
    def exists(self, path: Path) -> bool: ...
    def rename(self, old: Path, new: Path) -> None: ...
    def link(self, old: Path, new: Path) -> None:
        """Gives a file a second name, by which it stays if the first one is removed."""
        ...

    def remove(self, path: Path) -> None: ...
    def make_directory(self, path: Path) -> None: ...
    def free_bytes(self, path: Path) -> int:
        """Returns the free space for this user on the disk of the path."""
        ...

    def remove_directory(self, path: Path) -> None: ...
    def sync_directory(self, path: Path) -> None: ...
    def lock(self, path: Path) -> File | None:
        """Returns the locked file, which then names this process; None if another process holds the
        lock."""
        ...


class FileRange(NamedTuple):
    """Whole batches in one file, to be sent without being read."""

    file: File
    position: int
    size: int
    first_offset: int
    """The requested offset; the first batch may begin before it."""
    next_offset: int
    """The offset to continue at."""

    def read(self) -> bytes:
        return self.file.read(self.position, self.size)


def refusal_of(files: Files, directory: Path, error: OSError) -> str:
    """Returns the disk's refusal, its path, and the free space."""
    try:
        free: int | None = files.free_bytes(directory)
    except OSError:
        free = None
    return write_refusal(error, directory, free)


def write_all(file: File, position: int, data: Bytes) -> None:
    """Writes all bytes. A nearly full disk first writes fewer: this raises instead of trying
    again."""
    if file.write(position, data) != len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@cache
def _writing_out() -> Callable[[int], object] | None:
    """Returns the call that starts writing a file's changes without waiting, if the system has one;
    Python has no such function."""
    import ctypes  # only writers need it

    try:
        call = ctypes.CDLL(None).sync_file_range
    except (AttributeError, OSError, TypeError):
        return None
    call.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    return lambda descriptor: call(descriptor, 0, 0, SYNC_FILE_RANGE_WRITE)


class OsFile:
    """A file of the operating system."""

    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __del__(self) -> None:
        os.close(self._descriptor)

    def fileno(self) -> int:
        return self._descriptor

    def write(self, position: int, data: Bytes) -> int:
        return os.pwrite(self._descriptor, data, position)

    def read(self, position: int, size: int) -> bytes:
        return os.pread(self._descriptor, size, position)

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)

    def begin_sync(self) -> None:
        if (write_out := _writing_out()) is not None:
            write_out(self._descriptor)  # `sync` reports any failure

    def sync(self) -> None:
        os.fdatasync(self._descriptor)


class OsFiles:
    """The operating system's file system; a read-only one can open a backup."""

    def __init__(self, *, may_write: bool = True) -> None:
        self._access = os.O_RDWR if may_write else os.O_RDONLY

    def open(self, path: Path, *, create: bool = False) -> OsFile:
        flags = self._access | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return OsFile(os.open(path, flags, 0o644))

    def read(self, path: Path) -> bytes:
        return path.read_bytes()

    def replace(self, path: Path, data: bytes, *, mode: int = 0o644) -> None:
        fresh = path.with_name(path.name + ".tmp")
        with suppress(FileNotFoundError):  # an existing file could have weaker permissions
            fresh.unlink()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        file = OsFile(os.open(fresh, flags, mode))
        write_all(file, 0, data)
        file.sync()
        fresh.replace(path)
        self.sync_directory(path.parent)

    def names(self, directory: Path) -> list[str]:
        return [path.name for path in directory.iterdir()]

    def size(self, path: Path) -> int:
        return path.stat().st_size

    def modified_ms(self, path: Path) -> int:
        return path.stat().st_mtime_ns // 1_000_000

    def exists(self, path: Path) -> bool:
        return path.exists()

    def rename(self, old: Path, new: Path) -> None:
        old.rename(new)

    def link(self, old: Path, new: Path) -> None:
        new.hardlink_to(old)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def make_directory(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)

    def free_bytes(self, path: Path) -> int:
        found = os.statvfs(path)
        return found.f_bavail * found.f_frsize

    def remove_directory(self, path: Path) -> None:
        path.rmdir()

    def sync_directory(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def lock(self, path: Path) -> OsFile | None:
        file = self.open(path, create=True)
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return None
        file.truncate(0)
        write_all(file, 0, f"{os.getpid()}\n".encode())
        return file
