"""Where files lie: what is there now, and their bytes in ranges; a directory or a bucket."""

import os
import re
import stat
from collections.abc import Collection, Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple, Protocol

from connectors.files.settings import FilesSettings
from core_log.errors import ConfigError, SourceRejected, SourceUnavailable

WILD = re.compile(r"[*?\[]")
S3_SCHEME = "s3://"
S3_POLL_MS_MIN = 5_000


class FileGone(Exception):
    """The file is no longer there, or another one is in its place: look again."""


class Entry(NamedTuple):
    """One file as it was when it was looked at."""

    name: str
    """Its path below the place, as positions and events say it."""
    place: str
    """Where it is to be opened."""
    identity: str
    """What stays when it is renamed: device and inode; of an object its ETag."""
    size: int
    modified_us: int
    is_wanted: bool = True
    """False of files that are here only because some of them have been read already."""


class RawFile(Protocol):
    """An open file as it lies there."""

    entry: Entry

    def read(self, position: int, size: int) -> bytes:
        """At most `size` bytes; fewer only at the end. Cheapest when read in order."""
        ...

    def read_stretch(self, position: int, size: int) -> bytes:
        """The same for one stretch after which reading goes on elsewhere."""
        ...

    def close(self) -> None: ...


class Place(Protocol):
    """A directory or a bucket."""

    @property
    def default_table(self) -> str: ...
    @property
    def poll_ms_min(self) -> int: ...
    @property
    def has_whole_files(self) -> bool:
        """Whether a file that is there is complete."""
        ...

    def entries(self, tracked: Collection[str]) -> list[Entry]:
        """Files that are wanted, and those whose identity is among `tracked`, by name."""
        ...

    def open(self, entry: Entry) -> RawFile:
        """Raises `FileGone` when that very file is no longer there."""
        ...

    def check(self) -> None:
        """Raises what keeps it from being read."""
        ...


class Choice(NamedTuple):
    """A path divided into where to look and what to take there."""

    root: str
    pattern: re.Pattern[str]
    depth: int | None
    """How many directories below the root a file can lie; None for any number."""
    table: str


def choice_of(path: str, *, is_directory: bool) -> Choice:
    """The root of a glob is its last directory without wildcards."""
    if is_directory:
        name = PurePosixPath(path).name
        return Choice(path.rstrip("/") or "/", re.compile(r".*", re.DOTALL), None, name)
    wild = WILD.search(path)
    root, _, pattern = path.rpartition("/") if wild is None else ("", "", path)
    if wild is not None:
        head = path[: wild.start()].rpartition("/")[0]
        root, pattern = head, path[len(head) :].lstrip("/")
    root = root or ("/" if path.startswith("/") else "")
    beginning = WILD.split(pattern)[0].split("/")[-1]
    table = stem_of(beginning).rstrip("-_. ") or PurePosixPath(root).name
    depth = None if "**" in pattern else pattern.count("/")
    return Choice(root, re.compile(expression_of(pattern), re.DOTALL), depth, table)


def expression_of(glob: str) -> str:
    """`*` and `?` stay within a name, `**` does not, and `**/` can be nothing at all."""
    parts = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    tokens = re.findall(r"\*\*/|\*\*|\*|\?|\[!?\]?[^\]/]*\]|.", glob, re.DOTALL)
    return "".join(
        parts.get(token) or (token.replace("[!", "[^", 1) if len(token) > 1 else re.escape(token))
        for token in tokens
    )


def stem_of(name: str) -> str:
    """`orders` of `orders.csv.gz`, `app` of `app.log.2`."""
    first, *_ = name.lstrip(".").split(".")
    return first


def is_hidden(name: str) -> bool:
    return any(part.startswith((".", "_")) for part in name.split("/"))


class Directory:
    """Files of a local file system. Directories are not followed through symbolic links."""

    poll_ms_min = 0
    has_whole_files = False

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def default_table(self) -> str:
        return self._choice().table

    def entries(self, tracked: Collection[str]) -> list[Entry]:
        choice = self._choice()
        try:
            return sorted(self._walk(choice, choice.root, "", 0, tracked))
        except OSError as error:
            raise SourceUnavailable(
                "the directory cannot be read", path=choice.root, reason=error.strerror
            ) from error

    def open(self, entry: Entry) -> RawFile:
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

    def _choice(self) -> Choice:
        path = str(self._path)
        is_directory = self._path.is_dir()
        if not is_directory and WILD.search(path) and self._path.exists():
            path = re.sub(r"([*?\[])", r"[\1]", path)  # a file that is really called so
        return choice_of(path, is_directory=is_directory)

    def _walk(
        self, choice: Choice, directory: str, above: str, depth: int, tracked: Collection[str]
    ) -> Iterator[Entry]:
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


def entry_of(name: str, path: str, status: os.stat_result) -> Entry:
    identity = f"{status.st_dev:x}:{status.st_ino:x}"
    return Entry(name, path, identity, status.st_size, status.st_mtime_ns // 1_000)


class LocalFile:
    """One open file of the file system, as it is at its opening."""

    def __init__(self, entry: Entry) -> None:
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


def place_of(settings: FilesSettings, directory: Path) -> Place:
    if settings.path.startswith(S3_SCHEME):
        from connectors.files.s3_place import S3Place

        bucket, _, prefix = settings.path.removeprefix(S3_SCHEME).partition("/")
        if not bucket:
            raise ConfigError("a path in S3 names its bucket", hint="path: s3://BUCKET/PREFIX")
        return S3Place(bucket, prefix, settings.s3)
    return Directory(directory / Path(settings.path).expanduser())
