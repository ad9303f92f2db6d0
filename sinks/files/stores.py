"""The few operations on a target that the sink needs; a directory or a bucket."""

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

from headwater.core_log.foundation.errors import HeadwaterError, SinkRejected, SinkUnavailable
from headwater.core_log.s3.settings import S3Settings
from headwater.core_log.storage.files import OsFiles

S3_SCHEME = "s3://"
OURS = "_headwater"
SCRATCH = f"{OURS}/scratch"
OF_ONE_PLACE = {
    errno.EACCES,
    errno.EEXIST,
    errno.EISDIR,
    errno.ELOOP,
    errno.ENAMETOOLONG,
    errno.ENOTDIR,
    errno.EPERM,
}
"""Reasons of the disk that last until a person acts, and say nothing of other places."""


class FileStore(Protocol):
    """Names have `/` between their parts, and none of them leads out of the target."""

    def read(self, name: str) -> bytes | None:
        """None when there is nothing of that name."""
        ...

    def put(self, name: str, content: bytes) -> None:
        """In place of what was there; whole, and durable when this returns."""
        ...

    def create(self, name: str, content: bytes) -> bool:
        """The same, but only if there is nothing yet; whether it did."""
        ...

    def publish(self, name: str, path: Path) -> None:
        """Puts a local file in place, which may be gone then; durable when this returns."""
        ...

    def names(self, prefix: str) -> list[str]:
        """Everything below a directory, in order."""
        ...

    def remove(self, names: Sequence[str]) -> None:
        """What is not there is as good as removed."""
        ...

    def scratch(self, writer: str) -> Path:
        """An empty local directory for what is not yet to be seen. Those of earlier writers, who
        did not live to discard them, are removed where they can be found."""
        ...

    def discard(self, scratch: Path) -> None:
        """With all that is left in it."""
        ...

    def check(self) -> None:
        """Raises what would keep it from being written."""
        ...

    def address(self, name: str) -> str:
        """Where other programs find it."""
        ...


class LocalFileStore:
    """A directory. Every name appears by a rename of a file that is already on disk."""

    def __init__(self, root: Path) -> None:
        self._root, self._files = root, OsFiles()

    def read(self, name: str) -> bytes | None:
        with failures(name):
            try:
                return self._files.read(self._root / name)
            except FileNotFoundError:
                return None

    def put(self, name: str, content: bytes) -> None:
        path = self._root / name
        with failures(name):
            self._make_directory(path.parent)
            self._files.replace(path, content)

    def create(self, name: str, content: bytes) -> bool:
        path = self._root / name
        fresh = path.with_name(f".{path.name}.{os.getpid()}.{id(self):x}.new")
        with failures(name):
            self._make_directory(path.parent)
            self._files.replace(fresh, content)
            try:
                os.link(fresh, path)
            except FileExistsError:
                return False
            finally:
                self._files.remove(fresh)
            self._files.sync_directory(path.parent)
            return True

    def publish(self, name: str, path: Path) -> None:
        target = self._root / name
        with failures(name):
            self._make_directory(target.parent)
            self._files.open(path).sync()
            self._files.rename(path, target)
            self._files.sync_directory(target.parent)

    def names(self, prefix: str) -> list[str]:
        with failures(prefix):
            found = (each for each in (self._root / prefix).rglob("*") if each.is_file())
            names = [each.relative_to(self._root).as_posix() for each in found]
            return sorted(name for name in names if not name.rpartition("/")[2].startswith("."))

    def remove(self, names: Sequence[str]) -> None:
        with failures(*names[:1]):
            directories = set()
            for name in names:
                path = self._root / name
                if path.exists():
                    self._files.remove(path)
                    directories.add(path.parent)
            for directory in sorted(directories, reverse=True):
                self._files.sync_directory(directory)
                self._prune(directory)

    def scratch(self, writer: str) -> Path:
        with failures(SCRATCH):
            shutil.rmtree(self._root / SCRATCH, ignore_errors=True)
            self._make_directory(self._root / SCRATCH / writer)
            return self._root / SCRATCH / writer

    def discard(self, scratch: Path) -> None:
        shutil.rmtree(scratch, ignore_errors=True)
        with suppress(OSError):  # another writer has one, or has removed them all
            scratch.parent.rmdir()

    def check(self) -> None:
        existing = self._root
        while not existing.exists():
            existing = existing.parent
        if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
            raise SinkRejected("the directory may not be written", path=str(self._root))

    def address(self, name: str) -> str:
        return str(self._root / name)

    def _make_directory(self, path: Path) -> None:
        """A directory is on disk once its parent is synced."""
        if path.is_dir():
            return
        self._make_directory(path.parent)
        path.mkdir(exist_ok=True)
        self._files.sync_directory(path.parent)

    def _prune(self, directory: Path) -> None:
        """Directories that are empty now, up to the root."""
        while directory != self._root and not any(directory.iterdir()):
            directory.rmdir()
            directory = directory.parent


class S3FileStore:
    """Objects below a prefix. Nothing is renamed: an object appears when it is whole."""

    def __init__(self, bucket: str, prefix: str, settings: S3Settings) -> None:
        from headwater.core_log.s3.bucket import Bucket

        self._bucket = Bucket(bucket, settings, unavailable=SinkUnavailable, rejected=SinkRejected)
        self._prefix = prefix.strip("/") + "/" if prefix.strip("/") else ""

    def read(self, name: str) -> bytes | None:
        return self._bucket.read(self._prefix + name)

    def put(self, name: str, content: bytes) -> None:
        self._bucket.put(self._prefix + name, content)

    def create(self, name: str, content: bytes) -> bool:
        return self._bucket.create(self._prefix + name, content)

    def publish(self, name: str, path: Path) -> None:
        self._bucket.put_file(self._prefix + name, path)

    def names(self, prefix: str) -> list[str]:
        directory = f"{self._prefix}{prefix.rstrip('/')}/" if prefix else self._prefix
        return [each.key.removeprefix(self._prefix) for each in self._bucket.objects(directory)]

    def remove(self, names: Sequence[str]) -> None:
        self._bucket.remove([self._prefix + name for name in names])

    def scratch(self, writer: str) -> Path:
        return Path(tempfile.mkdtemp(prefix=f"headwater-{writer}-"))

    def discard(self, scratch: Path) -> None:
        shutil.rmtree(scratch, ignore_errors=True)

    def check(self) -> None:
        self._bucket.check()

    def address(self, name: str) -> str:
        return f"{S3_SCHEME}{self._bucket.name}/{self._prefix}{name}"


@contextmanager
def failures(*names: str) -> Iterator[None]:
    """What the disk refuses, in words."""
    try:
        yield
    except OSError as error:
        raise refusal(
            "the target's disk refuses access",
            error.errno,
            file=", ".join(names),
            reason=str(error.strerror),
        ) from error


def refusal(problem: str, code: int | None, **facts: str) -> HeadwaterError:
    """Returns the error for a reason of the system: room and disks can come back by themselves."""
    if code in OF_ONE_PLACE:
        return SinkRejected(problem, hint="make it a directory that we may write", **facts)
    return SinkUnavailable(problem, **facts)


def store_of(path: str, s3: S3Settings, *, directory: Path) -> FileStore:
    if path.startswith(S3_SCHEME):
        bucket, _, prefix = path.removeprefix(S3_SCHEME).partition("/")
        if not bucket:
            raise SinkRejected("a path in S3 names its bucket", hint="path: s3://BUCKET/PREFIX")
        return S3FileStore(bucket, prefix, s3)
    return LocalFileStore(directory / Path(path).expanduser())
