"""Stand-ins for the world: files that forget or fail, and clocks that stand still or are wrong."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from random import Random

from headwater.core_log.foundation.clock import SystemClock
from headwater.core_log.storage.files import Bytes, File, Files

SECTOR_BYTES = 512  # what a disk writes whole or not at all


class SimulatedClock:
    """Moves only when told to."""

    def __init__(self, now_ms: int = 0) -> None:
        self.time_ms = now_ms
        self.set_back_ms = 0
        """By how much the clock of the system was set back."""

    def now_ms(self) -> int:
        return self.time_ms - self.set_back_ms

    def monotonic_ms(self) -> int:
        return self.time_ms

    def advance(self, by_ms: int) -> None:
        self.time_ms += by_ms


class FastClock(SystemClock):
    """Of a machine whose clock is an hour ahead of the database's."""

    def now_ms(self) -> int:
        return super().now_ms() + 3_600_000


class MemoryFile:
    """A file's content as programs see it, and as the disk would have it after a power cut."""

    def __init__(self, content: bytes = b"") -> None:
        self.content = bytearray(content)
        self.synced = bytes(content)
        self.lost: set[int] = set()
        """Sectors that a failed sync took for written: no later one writes them."""
        self.mode = 0o644

    def fileno(self) -> int:
        raise OSError(errno.EBADF, "a file in memory has no descriptor")

    def write(self, position: int, data: Bytes) -> int:
        gap = position - len(self.content)
        if gap > 0:
            self.content += bytes(gap)
        self.content[position : position + len(data)] = data
        self.lost -= set(
            range(position // SECTOR_BYTES, -(-(position + len(data)) // SECTOR_BYTES))
        )
        return len(data)

    def read(self, position: int, size: int) -> bytes:
        return bytes(self.content[position : position + size])

    def size(self) -> int:
        return len(self.content)

    def truncate(self, size: int) -> None:
        self.content = self.content[:size].ljust(size, b"\0")
        self.lost = {sector for sector in self.lost if (sector + 1) * SECTOR_BYTES <= size}

    def begin_sync(self) -> None:
        """Any of it may survive a power cut all the same."""

    def sync(self) -> None:
        synced = bytearray(self.content)
        for start in (sector * SECTOR_BYTES for sector in self.lost):
            end = min(start + SECTOR_BYTES, len(synced))
            synced[start:end] = self.synced[start:end].ljust(end - start, b"\0")
        self.synced = bytes(synced)

    def fail_sync(self) -> None:
        """Linux marks the pages as clean all the same."""
        size = max(len(self.content), len(self.synced))
        self.lost |= {
            start // SECTOR_BYTES
            for start in range(0, size, SECTOR_BYTES)
            if self.content[start : start + SECTOR_BYTES]
            != self.synced[start : start + SECTOR_BYTES]
        }

    def flip_bit(self, position: int, bit: int = 0) -> None:
        """Damages what is on disk."""
        self.content[position] ^= 1 << bit
        self.synced = bytes(self.content)

    def after_power_cut(self, random: Random) -> "MemoryFile":
        """What was synced, and of the rest any sectors, up to any length."""
        old, new = self.synced, bytes(self.content)
        low, high = sorted((len(old), len(new)))
        length = random.choice((low, high, random.randint(low, high)))
        survived = bytearray(length)
        for start in range(0, length, SECTOR_BYTES):
            end = min(start + SECTOR_BYTES, length)
            is_same, is_lost = old[start:end] == new[start:end], start // SECTOR_BYTES in self.lost
            source = new if is_same or (random.random() < 0.5 and not is_lost) else old
            survived[start:end] = source[start:end].ljust(end - start, b"\0")
        return MemoryFile(bytes(survived))


class MemoryFiles:
    """A file system in memory. A power cut keeps what was synced, and of the rest what it likes.

    Names too are certain only once their directory is synced; of a directory's later changes,
    as on a journaling file system, those up to some moment survive.
    """

    def __init__(self) -> None:
        self.files: dict[Path, MemoryFile] = {}
        self.directories = dict[Path, None]()
        """In the order in which they were made, as the names that a listing returns."""
        self.locked: set[Path] = set()
        self._synced: dict[Path, Names] = {}
        self._since: dict[Path, list[Names]] = {}

    def open(self, path: Path, *, create: bool = False) -> MemoryFile:
        if path not in self.files:
            if not create:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
            self.files[path] = MemoryFile()
            self._changed(path.parent)
        return self.files[path]

    def read(self, path: Path) -> bytes:
        return bytes(self.open(path).content)

    def replace(self, path: Path, data: bytes, *, mode: int = 0o644) -> None:
        self.files[path] = MemoryFile(data)
        self.files[path].mode = mode
        self.sync_directory(path.parent)

    def names(self, directory: Path) -> list[str]:
        return [path.name for path in self._names(directory)]

    def size(self, path: Path) -> int:
        return len(self.open(path).content)

    def modified_ms(self, path: Path) -> int:
        return 0

    def exists(self, path: Path) -> bool:
        return path in self.files or path in self.directories

    def link(self, old: Path, new: Path) -> None:
        self.files[new] = self.files[old]
        self._changed(new.parent)

    def rename(self, old: Path, new: Path) -> None:
        if old in self.directories:
            for path in [path for path in list(self.files) if path.parent == old]:
                self.files[new / path.name] = self.files.pop(path)
            del self.directories[old]
            self.directories[new] = None
            self._synced[new], self._since[new] = {}, [self._names(new)]
        else:
            self.open(old)
            self.files[new] = self.files.pop(old)
        self._changed(old.parent)

    def remove(self, path: Path) -> None:
        if self.files.pop(path, None) is not None:
            self._changed(path.parent)

    def free_bytes(self, path: Path) -> int:
        return 1 << 30

    def make_directory(self, path: Path) -> None:
        for directory in (path, *path.parents):
            if directory not in self.directories:
                self.directories[directory] = None
                self._synced.pop(directory, None)  # nothing is left of one that was renamed
                self._since.pop(directory, None)
                self._changed(directory.parent)

    def remove_directory(self, path: Path) -> None:
        if self.names(path):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(path))
        self.directories.pop(path, None)
        self._changed(path.parent)

    def sync_directory(self, path: Path) -> None:
        self._synced[path] = self._names(path)
        self._since[path] = []

    def lock(self, path: Path) -> File | None:
        if path in self.locked:
            return None
        self.locked.add(path)
        return Held(self, path)

    def _names(self, directory: Path) -> "Names":
        files, directories = list(self.files.items()), list(self.directories)  # threads change them
        names: Names = {path: file for path, file in files if path.parent == directory}
        return names | dict.fromkeys(p for p in directories if p.parent == directory != p)

    def _changed(self, directory: Path) -> None:
        self._since.setdefault(directory, []).append(self._names(directory))

    def copy(self) -> "MemoryFiles":
        """The same files on another machine, everything on its disk."""
        copy = MemoryFiles()
        copy.directories = dict(self.directories)
        copy.files = {path: MemoryFile(bytes(file.content)) for path, file in self.files.items()}
        copy.sync_everything()
        return copy

    def after_kill(self) -> "MemoryFiles":
        """The process is gone; the operating system, and so every write, is still there."""
        self.locked = set()
        return self

    def after_power_cut(self, random: Random) -> "MemoryFiles":
        """What a disk may hold when the power comes back."""
        cut = MemoryFiles()
        survived: dict[int, MemoryFile] = {}
        waiting = [Path("/")]
        while waiting:
            directory = waiting.pop()
            cut.directories[directory] = None
            moments = [self._synced.get(directory, {}), *self._since.get(directory, ())]
            for path, file in random.choice(moments).items():
                if file is None:
                    waiting.append(path)
                elif id(file) in survived:
                    cut.files[path] = survived[id(file)]
                else:
                    cut.files[path] = survived[id(file)] = file.after_power_cut(random)
        cut.sync_everything()
        return cut

    def on_disk(self) -> dict[Path, bytes]:
        """All that is left after a power cut, at worst."""
        found, waiting = dict[Path, bytes](), [Path("/")]
        while waiting:
            for path, file in self._synced.get(waiting.pop(), {}).items():
                if file is None:
                    waiting.append(path)
                else:
                    found[path] = file.synced
        return found

    def sync_everything(self) -> None:
        """As an orderly shutdown of the machine does."""
        for directory in self.directories:
            self.sync_directory(directory)
        for file in self.files.values():
            file.sync()


Names = dict[Path, MemoryFile | None]
"""What lies in one directory; None stands for a directory."""


class Held(MemoryFile):
    """A lock, given back when nobody refers to it any more."""

    def __init__(self, files: MemoryFiles, path: Path) -> None:
        super().__init__()
        self._files, self._path = files, path
        files.files[path] = MemoryFile(b"%d\n" % os.getpid())

    def __del__(self) -> None:
        self._files.locked.discard(self._path)


class PowerCut(BaseException):
    """The machine stops here: nobody catches this."""


Fault = Callable[[str, Path], None]
"""Told of every operation before it happens, by name and path; raises to make it fail."""


class FaultyFile:
    """A file whose operations can fail."""

    def __init__(self, file: File, path: Path, files: "FaultyFiles") -> None:
        self._file, self._path, self._files = file, path, files

    def fileno(self) -> int:
        return self._file.fileno()

    def write(self, position: int, data: Bytes) -> int:
        taken = self._files.before_write(self._path, len(data))
        return self._file.write(position, memoryview(data)[:taken]) if taken else 0

    def read(self, position: int, size: int) -> bytes:
        self._files.before("read", self._path)
        return self._file.read(position, size)

    def size(self) -> int:
        return self._file.size()

    def truncate(self, size: int) -> None:
        self._files.before("truncate", self._path)
        self._file.truncate(size)

    def begin_sync(self) -> None:
        self._files.before("begin sync", self._path)
        self._file.begin_sync()

    def sync(self) -> None:
        try:
            self._files.before("sync", self._path)
        except OSError:
            if isinstance(self._file, MemoryFile):
                self._file.fail_sync()
            raise
        self._file.sync()


class FaultyFiles:
    """Files of another kind, any operation of which can be made to fail.

    `fail_at` counts changes (not reads): from that one on every change fails, with `error`, for as
    long as `is_failing` stands; with `short`, a failing write first takes part of its bytes.
    """

    def __init__(self, files: Files, fault: Fault | None = None) -> None:
        self._files, self.fault = files, fault
        self.change_count = 0
        self.fail_at: int | None = None
        self.failures_max: int | None = None
        self.error: BaseException = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.is_short = False
        self.sound: frozenset[str] = frozenset({"read", "begin sync"})
        """Operations that never fail and are not counted."""

    def before(self, operation: str, path: Path) -> None:
        if self.fault is not None:
            self.fault(operation, path)
        if operation in self.sound:
            return
        self.change_count += 1
        if self._is_failing():
            raise self.error

    def before_write(self, path: Path, size: int) -> int:
        """How many bytes a write may take."""
        if self.fault is not None:
            self.fault("write", path)
        self.change_count += 1
        if not self._is_failing():
            return size
        if self.is_short and size > 1:
            return size // 2
        raise self.error

    def _is_failing(self) -> bool:
        if self.fail_at is None or self.change_count < self.fail_at:
            return False
        return self.failures_max is None or self.change_count < self.fail_at + self.failures_max

    def heal(self) -> None:
        """There is room again, or a new disk."""
        self.fail_at, self.fault = None, None

    def open(self, path: Path, *, create: bool = False) -> FaultyFile:
        if create and not self._files.exists(path):
            self.before("create", path)
        return FaultyFile(self._files.open(path, create=create), path, self)

    def read(self, path: Path) -> bytes:
        self.before("read", path)
        return self._files.read(path)

    def replace(self, path: Path, data: bytes, *, mode: int = 0o644) -> None:
        self.before("replace", path)
        self._files.replace(path, data, mode=mode)

    def names(self, directory: Path) -> list[str]:
        return self._files.names(directory)

    def size(self, path: Path) -> int:
        return self._files.size(path)

    def modified_ms(self, path: Path) -> int:
        return self._files.modified_ms(path)

    def exists(self, path: Path) -> bool:
        return self._files.exists(path)

    def link(self, old: Path, new: Path) -> None:
        self.before("link", old)
        self._files.link(old, new)

    def rename(self, old: Path, new: Path) -> None:
        self.before("rename", old)
        self._files.rename(old, new)

    def remove(self, path: Path) -> None:
        self.before("remove", path)
        self._files.remove(path)

    def free_bytes(self, path: Path) -> int:
        return self._files.free_bytes(path)

    def make_directory(self, path: Path) -> None:
        self.before("make_directory", path)
        self._files.make_directory(path)

    def remove_directory(self, path: Path) -> None:
        self.before("remove_directory", path)
        self._files.remove_directory(path)

    def sync_directory(self, path: Path) -> None:
        self.before("sync_directory", path)
        self._files.sync_directory(path)

    def lock(self, path: Path) -> File | None:
        return self._files.lock(path)
