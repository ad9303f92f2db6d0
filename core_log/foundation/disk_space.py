"""Lack of room on a disk, told apart from all other reasons why a write is refused."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headwater.core_log.foundation.errors import DiskFull

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""No space on the device, no quota left, a file at its permitted size."""
SAID = ("no space left on device", "disk quota exceeded", "os error 28", "os error 122")
"""How Java, Rust and Arrow say so in the text of an error."""
REFUSED = "the disk refused a write: "
HINT = "free some space on that disk; everything goes on by itself after the next try"


def lacks_room(error: BaseException) -> bool:
    """Returns whether the system's reason for an error, or for one that it wraps, is a disk without
    room."""
    return any(isinstance(each, OSError) and each.errno in NO_ROOM for each in _causes_of(error))


def said_no_room(text: str) -> bool:
    """Returns the same of a text that cannot quote values of rows."""
    said = text.lower()
    return any(words in said for words in SAID)


def disk_full(
    error: BaseException, path: str | Path | None = None, *, hint: str = HINT, **facts: object
) -> DiskFull:
    """Returns the error with the file's or directory's path, its disk, and the free bytes there;
    an OSError may name the path itself."""
    named = next(filter(None, map(_named_by, _causes_of(error))), path)
    told = {**facts, **place_on_disk(named), "reason": _reason_of(error)}
    return DiskFull("the disk is full", hint=hint, **told)


@contextmanager
def room_at(path: Path) -> Iterator[None]:
    """Context manager: raises lack of room with the path, which errors of libraries do not name."""
    try:
        yield
    except OSError as error:
        if not lacks_room(error):
            raise
        raise disk_full(error, path) from error


def place_on_disk(path: str | Path | None) -> dict[str, object]:
    """Returns a path as facts of an error, with the disk's mount point and its free bytes."""
    if path is None:
        return {}
    existing = Path(path).absolute()
    try:
        while not existing.exists():
            existing = existing.parent
        disk = os.statvfs(existing)
        while not existing.is_mount():
            existing = existing.parent
    except OSError:
        return {"path": str(path)}
    return {"path": str(path), "disk": str(existing), "free_bytes": disk.f_bavail * disk.f_frsize}


def write_refusal(error: OSError, directory: Path, free_bytes: int | None) -> str:
    """Returns a broker's refusal of a write: its reason, the free space, and the place."""
    reason = (error.strerror or str(error)).lower()
    room = "" if free_bytes is None else f", {free_bytes:,} bytes free"
    return f"{REFUSED}{reason}{room} at {directory}"


def has_no_room(refusal: str) -> bool:
    """Returns whether lack of room is the reason of a broker's refusal."""
    reasons = (os.strerror(code).lower() for code in NO_ROOM)
    return refusal.startswith(tuple(f"{REFUSED}{reason}" for reason in reasons))


def _reason_of(error: BaseException) -> str:
    codes = (each.errno for each in _causes_of(error) if isinstance(each, OSError))
    return os.strerror(next((each for each in codes if each in NO_ROOM), errno.ENOSPC)).lower()


def _named_by(error: BaseException) -> str | None:
    if isinstance(error, OSError) and error.errno in NO_ROOM and error.filename:
        return str(error.filename)
    return None


def _causes_of(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    found: BaseException | None = error
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        yield found
        found = found.__cause__ or (None if found.__suppress_context__ else found.__context__)
