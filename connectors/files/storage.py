"""Where files lie: what is there now, their bytes in ranges, and which of them a path means."""

import re
from collections.abc import Collection
from pathlib import PurePosixPath
from typing import NamedTuple, Protocol

WILD = re.compile(r"[*?\[]")


class FileGone(Exception):
    """The file is no longer there, or another one is in its place: look again."""


class FileEntry(NamedTuple):
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

    entry: FileEntry

    def read(self, position: int, size: int) -> bytes:
        """At most `size` bytes; fewer only at the end. Cheapest when read in order."""
        ...

    def read_stretch(self, position: int, size: int) -> bytes:
        """The same for one stretch after which reading goes on elsewhere."""
        ...

    def close(self) -> None: ...


class FileStorage(Protocol):
    """A directory or a bucket."""

    @property
    def default_table(self) -> str: ...
    @property
    def poll_ms_min(self) -> int: ...
    @property
    def has_whole_files(self) -> bool:
        """Whether a file that is there is complete."""
        ...

    def entries(self, tracked: Collection[str]) -> list[FileEntry]:
        """Files that are wanted, and those whose identity is among `tracked`, by name."""
        ...

    def open(self, entry: FileEntry) -> RawFile:
        """Raises `FileGone` when that very file is no longer there."""
        ...

    def check(self) -> None:
        """Raises what keeps it from being read."""
        ...


class FileChoice(NamedTuple):
    """A path divided into where to look and what to take there."""

    root: str
    pattern: re.Pattern[str]
    depth: int | None
    """How many directories below the root a file can lie; None for any number."""
    table: str


def choice_of(path: str, *, is_directory: bool) -> FileChoice:
    """The root of a glob is its last directory without wildcards."""
    if is_directory:
        name = PurePosixPath(path).name
        return FileChoice(path.rstrip("/") or "/", re.compile(r".*", re.DOTALL), None, name)
    wild = WILD.search(path)
    root, _, pattern = path.rpartition("/") if wild is None else ("", "", path)
    if wild is not None:
        head = path[: wild.start()].rpartition("/")[0]
        root, pattern = head, path[len(head) :].lstrip("/")
    root = root or ("/" if path.startswith("/") else "")
    beginning = WILD.split(pattern)[0].split("/")[-1]
    table = stem_of(beginning).rstrip("-_. ") or PurePosixPath(root).name
    depth = None if "**" in pattern else pattern.count("/")
    return FileChoice(root, re.compile(expression_of(pattern), re.DOTALL), depth, table)


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
