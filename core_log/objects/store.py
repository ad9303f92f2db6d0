"""The contract of an object store, and the errors of its user."""

import errno
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from headwater.core_log.foundation.disk_space import NO_ROOM, disk_full, lacks_room
from headwater.core_log.foundation.errors import (
    HeadwaterError,
    SinkRejected,
    SinkUnavailable,
    SourceRejected,
    SourceUnavailable,
)
from headwater.core_log.objects.settings import S3Settings

S3_SCHEME = "s3://"


class ObjectGone(Exception):
    """The object does not exist any more, or another one has its name."""


class StoredObject(NamedTuple):
    """One object as it was listed."""

    name: str
    size: int
    modified_us: int
    version: str
    """The ETag of an object; device and inode of a file, which a rename keeps."""


class ObjectReader(Protocol):
    object: StoredObject
    """As it was when it was opened."""

    def read(self, position: int, size: int) -> bytes:
        """Returns at most `size` bytes; fewer only at the end. Cheapest in order."""
        ...

    def read_range(self, position: int, size: int) -> bytes:
        """The same, if the next read is elsewhere."""
        ...

    def close(self) -> None: ...


class ObjectStore(Protocol):
    """Objects by name, with `/` between the parts of a name. All changes are durable on return."""

    @property
    def local_root(self) -> Path | None:
        """The directory of the objects; None if they are not files."""
        ...

    def objects(
        self, prefix: str, *, may_enter: Callable[[str], bool] | None = None
    ) -> list[StoredObject]:
        """Returns objects whose names begin with `prefix`, by name. A store of directories leaves
        out those that it may not enter."""
        ...

    def open(self, each: StoredObject) -> ObjectReader:
        """Raises `ObjectGone` if that very object does not exist any more."""
        ...

    def read(self, name: str) -> bytes | None:
        """Returns a small object; None if there is none."""
        ...

    def put(self, name: str, content: bytes) -> None:
        """Creates or replaces an object. No reader sees a part of it."""
        ...

    def create(self, name: str, content: bytes) -> bool:
        """Creates an object; returns false if the name exists, also if two writers try at once."""
        ...

    def upload(self, name: str, path: Path) -> None:
        """Creates or replaces an object from a local file, which may be moved. No reader sees a
        part of it."""
        ...

    def remove(self, names: Sequence[str]) -> None:
        """Removes objects; a name without an object is no error."""
        ...

    def check(self, prefix: str = "", *, writes: bool) -> None:
        """Raises the reason why objects below `prefix` cannot be read, or written."""
        ...

    def address(self, name: str) -> str:
        """Returns the path or URL of the object for other programs."""
        ...


class StoreErrors(NamedTuple):
    """The errors of the store's user: one that time cures, and one that a person cures."""

    unavailable: type[HeadwaterError]
    rejected: type[HeadwaterError]
    lasting: frozenset[int] = frozenset()
    """Numbers of the system's errors that a person cures."""

    def refusal(
        self, problem: str, error: Exception, code: int | None, *, path: str, **facts: str
    ) -> HeadwaterError:
        """Returns the error for the system's reason, by its number: room and disks can come
        back."""
        if code in NO_ROOM or lacks_room(error):
            return disk_full(error, path, **facts)
        facts = {"path": path, **facts}
        if code in self.lasting:
            return self.rejected(problem, hint="make it a directory that we may write", **facts)
        return self.unavailable(problem, **facts)


SOURCE_ERRORS = StoreErrors(SourceUnavailable, SourceRejected)
SINK_ERRORS = StoreErrors(
    SinkUnavailable,
    SinkRejected,
    frozenset(
        {
            errno.EACCES,
            errno.EEXIST,
            errno.EISDIR,
            errno.ELOOP,
            errno.ENAMETOOLONG,
            errno.ENOTDIR,
            errno.EPERM,
        }
    ),
)


def store_of(path: str, s3: S3Settings, *, directory: Path, errors: StoreErrors) -> ObjectStore:
    """`directory`: where a relative path begins."""
    if path.startswith(S3_SCHEME):
        from headwater.core_log.objects.bucket import BucketStore

        bucket, _, prefix = path.removeprefix(S3_SCHEME).partition("/")
        if not bucket:
            raise errors.rejected("the path has no bucket", hint="path: s3://BUCKET/PREFIX")
        return BucketStore(bucket, prefix, s3, errors)
    from headwater.core_log.objects.directory import DirectoryStore

    return DirectoryStore(directory / Path(path).expanduser(), errors)


def names_below(store: ObjectStore, directory: str = "") -> list[str]:
    """Returns names without hidden ones, which are files that are being written."""
    found = (each.name for each in store.objects(f"{directory}/" if directory else ""))
    return [name for name in found if not name.rpartition("/")[2].startswith(".")]
