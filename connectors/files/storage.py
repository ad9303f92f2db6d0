"""The files that a path means, in a directory or a bucket."""

import os
import re
from collections.abc import Collection
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from headwater.connectors.files.settings import FilesSettings
from headwater.core_log.objects.store import (
    S3_SCHEME,
    SOURCE_ERRORS,
    ObjectReader,
    ObjectStore,
    StoredObject,
    store_of,
)

WILDCARDS = re.compile(r"[*?\[]")
BUCKET_POLL_MS_MIN = 5_000
"""Each listing of a bucket is a request that costs money."""


class FileEntry(NamedTuple):
    """One file as it was listed."""

    name: str
    """Its path below the root, as positions and events contain it."""
    object: StoredObject
    is_wanted: bool = True
    """False for files that are listed only because some of them have been read already."""

    @property
    def identity(self) -> str:
        return self.object.version

    @property
    def size(self) -> int:
        return self.object.size

    @property
    def modified_us(self) -> int:
        return self.object.modified_us


class RawFile:
    """An open file, still compressed; `entry` is as it was when it was opened."""

    def __init__(self, entry: FileEntry, reader: ObjectReader) -> None:
        self.entry = entry._replace(object=reader.object)
        self.read, self.read_range, self.close = reader.read, reader.read_range, reader.close


class FileChoice(NamedTuple):
    """A path as a root and a pattern below it."""

    root: str
    pattern: re.Pattern[str]
    depth: int | None
    """Maximum number of directories between root and file; None for any number."""
    table: str


class FileStorage:
    """A path of the source. A local one may come into being later, as a file or a directory."""

    def __init__(self, settings: FilesSettings, directory: Path) -> None:
        self.has_whole_files = settings.path.startswith(S3_SCHEME)
        """Whether every listed file is complete: an object never changes, it is only replaced."""
        self.poll_ms_min = BUCKET_POLL_MS_MIN if self.has_whole_files else 0
        bucket, _, key = settings.path.removeprefix(S3_SCHEME).partition("/")
        if self.has_whole_files:
            self._path, root = key, f"{S3_SCHEME}{bucket}"
        else:
            self._path, root = str(directory / Path(settings.path).expanduser()), ""
        self._bucket = bucket
        self._newest_choice: FileChoice | None = None
        self._store: ObjectStore = store_of(
            root, settings.s3, directory=Path(), errors=SOURCE_ERRORS
        )

    @property
    def default_table(self) -> str:
        table = (self._newest_choice or self._choice()).table
        return table or self._bucket if self.has_whole_files else table

    def entries(self, tracked: Collection[str]) -> list[FileEntry]:
        """Returns the wanted files, and those whose identity is among `tracked`, by name."""
        choice = self._choice()
        root = f"{choice.root.rstrip('/')}/" if choice.root else ""

        def may_enter(directory: str) -> bool:
            below = directory.removeprefix(root)
            is_deep = choice.depth is not None and below.count("/") >= choice.depth
            return not is_deep and not is_hidden(below)

        found = []
        prefix = WILDCARDS.split(self._path)[0] if self.has_whole_files else root
        for each in self._store.objects(prefix, may_enter=may_enter):
            name = self._name_below(root, each.name)
            wanted = not is_hidden(name) and bool(choice.pattern.fullmatch(name))
            if name and (wanted or each.version in tracked):
                found.append(FileEntry(name, each, wanted))
        return sorted(found)

    def open(self, entry: FileEntry) -> RawFile:
        """Raises `ObjectGone` if that very file does not exist any more."""
        return RawFile(entry, self._store.open(entry.object))

    def check(self) -> None:
        """Raises the reason why it cannot be read."""
        self._store.check(self._choice().root, writes=False)

    def _choice(self) -> FileChoice:
        path, has_wildcards = self._path, WILDCARDS.search(self._path) is not None
        is_directory = not has_wildcards if self.has_whole_files else Path(path).is_dir()
        if not self.has_whole_files and not is_directory and has_wildcards and Path(path).exists():
            path = re.sub(r"([*?\[])", r"[\1]", path)  # the name of a file has wildcards
        self._newest_choice = choice_of(path, is_directory=is_directory)
        return self._newest_choice

    def _name_below(self, root: str, name: str) -> str:
        """Returns the name below the root; empty for other objects, such as `ordersold/a` beside
        `orders`, and for placeholders of directories. An object can be the whole path."""
        name = os.fsencode(name).decode("utf-8", "backslashreplace")
        if self.has_whole_files and name == self._path and not name.endswith("/"):
            return name.rpartition("/")[2]
        return name.removeprefix(root) if name.startswith(root) and name[-1:] != "/" else ""


def choice_of(path: str, *, is_directory: bool) -> FileChoice:
    """The root of a glob is its last directory without wildcards."""
    if is_directory:
        name = PurePosixPath(path).name
        return FileChoice(path.rstrip("/") or "/", re.compile(r".*", re.DOTALL), None, name)
    wild = WILDCARDS.search(path)
    root, _, pattern = path.rpartition("/") if wild is None else ("", "", path)
    if wild is not None:
        head = path[: wild.start()].rpartition("/")[0]
        root, pattern = head, path[len(head) :].lstrip("/")
    root = root or ("/" if path.startswith("/") else "")
    beginning = WILDCARDS.split(pattern)[0].split("/")[-1]
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
