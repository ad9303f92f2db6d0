"""Copies the held files of a log into an object store, only chunks that it lacks, and back."""

import hashlib
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import orjson

from headwater.core_log.broker.held_log import HOLD, HeldFile
from headwater.core_log.foundation.errors import ConfigError, CorruptLog, DecodeError
from headwater.core_log.objects.store import ObjectStore
from headwater.core_log.storage.properties import META

VERSION = 1
BACKUPS, CHUNKS = "backups", "chunks"
CHUNK_BYTES = 16 << 20
"""Files are cut at multiples of this: the part of a segment that an earlier backup has is not sent
again."""


PARTIAL = ".restoring"
"""Ending of the directory until it is whole."""

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class StoredFile:
    size: int
    chunks: tuple[str, ...]
    """SHA-256 of each chunk, which is its name as well."""
    origin: str = ""
    """Tells the next backup that the file of the log is still the same one."""


@dataclass(frozen=True, slots=True)
class BackupManifest:
    """One backup."""

    at_ms: int
    cluster_id: str
    files: Mapping[str, StoredFile] = field(default_factory=dict)
    """By path in a data directory."""

    @property
    def size(self) -> int:
        return sum(each.size for each in self.files.values())

    @property
    def chunks(self) -> set[str]:
        return {chunk for each in self.files.values() for chunk in each.chunks}

    def encode(self) -> bytes:
        """Returns a line with the checksum, and a line with everything else."""
        body = orjson.dumps(
            {
                "version": VERSION,
                "at_ms": self.at_ms,
                "cluster_id": self.cluster_id,
                "files": {name: asdict(each) for name, each in self.files.items()},
            }
        )
        return f"{sha256(body)}\n".encode() + body + b"\n"


def decode_manifest(name: str, content: bytes) -> BackupManifest:
    """Raises `CorruptLog` if the content is not what a backup has written."""
    checksum, _, body = content.partition(b"\n")
    if checksum.decode(errors="replace") != sha256(body.removesuffix(b"\n")):
        raise CorruptLog("the list of the backup's files is damaged", backup=name)
    found = orjson.loads(body)
    if found["version"] != VERSION:
        raise DecodeError(
            "the backup is of a newer version of Headwater", backup=name, version=found["version"]
        )
    files = {
        path: StoredFile(each["size"], tuple(each["chunks"]), each["origin"])
        for path, each in found["files"].items()
    }
    return BackupManifest(found["at_ms"], found["cluster_id"], files)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def chunk_name(chunk: str) -> str:
    return f"{CHUNKS}/{chunk[:2]}/{chunk}"


def backup_names(store: ObjectStore) -> list[str]:
    """Returns the names of all whole backups, oldest first."""
    stems = (each.name.removeprefix(f"{BACKUPS}/") for each in store.objects(f"{BACKUPS}/"))
    return sorted(
        each.removesuffix(".json") for each in stems if each.endswith(".json") and each[0] != "."
    )


def choose_backup(store: ObjectStore, name: str | None) -> str:
    """Returns the given backup, or the newest."""
    names = backup_names(store)
    if not names:
        raise ConfigError("the place has no backup", hint="headwater log backup TO")
    if name is not None and name not in names:
        raise ConfigError(
            "the place has no backup of this name", hint=f"known backups: {', '.join(names)}"
        )
    return name or names[-1]


def read_manifest(store: ObjectStore, name: str) -> BackupManifest:
    content = store.read(f"{BACKUPS}/{name}.json")
    if content is None:
        raise CorruptLog("the list of the backup's files is gone", backup=name)
    return decode_manifest(name, content)


@dataclass(slots=True)
class BackupResult:
    name: str
    files: int
    size: int
    sent: int
    """Bytes of the chunks that the store did not have."""
    removed: int = 0
    """Older backups that were removed."""


def back_up(
    data: Path,
    held: Sequence[HeldFile],
    store: ObjectStore,
    *,
    now_ms: int,
    keep: int | None = None,
    progress: Progress = lambda _: None,
) -> BackupResult:
    """Writes the chunks, then the list of files that makes them a backup: it is whole or absent."""
    names = backup_names(store)
    former = read_manifest(store, names[-1]) if names else BackupManifest(0, "")
    cluster_id = _cluster_id(held)
    if names and former.cluster_id != cluster_id:
        raise ConfigError(
            "the place has backups of another log",
            hint="give each log its own place",
            backup=names[-1],
        )
    name = _name_of(now_ms)
    if names and name <= names[-1]:
        raise ConfigError(
            "the newest backup is later than this clock",
            hint="correct the clock: the newest backup is told by its time",
            backup=names[-1],
        )
    writer = _ChunkWriter(store)
    files: dict[str, StoredFile] = {}
    for each in held:
        progress(each.name)
        files[each.name] = _store_file(data, each, former.files, writer)
    made = BackupManifest(now_ms, cluster_id, files)
    result = BackupResult(name, len(files), made.size, writer.sent)
    if not store.create(f"{BACKUPS}/{result.name}.json", made.encode()):
        raise ConfigError("a backup of this moment exists", hint="run it again", name=result.name)
    if keep is not None:
        result.removed = _remove_older(store, keep)
    return result


def _cluster_id(held: Sequence[HeldFile]) -> str:
    [properties] = [each.content or b"" for each in held if each.name == META]
    lines = properties.decode().splitlines()
    return next(line.partition("=")[2] for line in lines if line.startswith("cluster.id="))


def _name_of(now_ms: int) -> str:
    return datetime.fromtimestamp(now_ms / 1_000, UTC).strftime("%Y-%m-%dT%H-%M-%S.%fZ")


class _ChunkWriter:
    def __init__(self, store: ObjectStore) -> None:
        self._store, self.sent = store, 0
        objects = store.objects(f"{CHUNKS}/")
        self._sizes = {each.name.rpartition("/")[2]: each.size for each in objects}

    def has_all(self, chunks: Sequence[str]) -> bool:
        return all(chunk in self._sizes for chunk in chunks)

    def write(self, content: bytes) -> str:
        """Returns the chunk's name."""
        chunk = sha256(content)
        if self._sizes.get(chunk) != len(content):
            self._store.put(chunk_name(chunk), content)
            self._sizes[chunk] = len(content)
            self.sent += len(content)
        return chunk


def _store_file(
    data: Path, held: HeldFile, former: Mapping[str, StoredFile], writer: _ChunkWriter
) -> StoredFile:
    if held.content is not None:
        return StoredFile(len(held.content), (writer.write(held.content),))
    path = data / HOLD / held.name
    status = path.stat()
    origin = f"{status.st_dev:x}:{status.st_ino:x}:{status.st_mtime_ns:x}"
    known = former.get(held.name)
    if (
        known is not None
        and (known.size, known.origin) == (held.size, origin)
        and writer.has_all(known.chunks)
    ):
        return known
    chunks = []
    with path.open("rb") as file:
        for position in range(0, held.size, CHUNK_BYTES):
            wanted = min(CHUNK_BYTES, held.size - position)
            content = file.read(wanted)
            if len(content) != wanted:
                raise CorruptLog("a segment is shorter than its log says", file=held.name)
            chunks.append(writer.write(content))
    return StoredFile(held.size, tuple(chunks), origin)


def _remove_older(store: ObjectStore, keep: int) -> int:
    """Removes all but the newest backups, and chunks that none of the others has."""
    names = backup_names(store)
    gone, kept = names[:-keep], names[-keep:]
    needed = {chunk for name in kept for chunk in read_manifest(store, name).chunks}
    store.remove([f"{BACKUPS}/{name}.json" for name in gone])
    chunks = [each.name for each in store.objects(f"{CHUNKS}/")]
    store.remove([name for name in chunks if name.rpartition("/")[2] not in needed])
    return len(gone)


def restore(
    store: ObjectStore, name: str, data: Path, *, progress: Callable[[str], None] = lambda _: None
) -> BackupManifest:
    """Fills a directory that does not exist or is empty; it gets its name when it is whole."""
    data = data.absolute()
    if data.is_mount():  # a directory beside it would be on another file system
        raise ConfigError(
            "the directory is a mount point",
            hint=f"name one inside it: {data / 'log'}",
            directory=str(data),
        )
    if data.exists() and any(data.iterdir()):
        raise ConfigError(
            "the data directory is not empty",
            hint="move it away, or name another one",
            directory=str(data),
        )
    manifest = read_manifest(store, name)
    partial = data.with_name(data.name + PARTIAL)
    if partial.exists():  # left by one that was interrupted
        shutil.rmtree(partial)
    directories = {partial}
    for path, stored in manifest.files.items():
        progress(path)
        if Path(path).is_absolute() or ".." in Path(path).parts:
            raise CorruptLog("the backup has a file outside of its directory", file=path)
        target = partial / path
        target.parent.mkdir(parents=True, exist_ok=True)
        directories |= {target.parent, target.parent.parent}
        _write(store, stored, target)
    for directory in directories:
        _sync(directory)
    if data.exists():
        data.rmdir()
    partial.rename(data)
    _sync(data.parent)
    return manifest


def _write(store: ObjectStore, stored: StoredFile, target: Path) -> None:
    with target.open("wb") as file:
        for chunk in stored.chunks:
            content = store.read(chunk_name(chunk))
            if content is None or sha256(content) != chunk:
                state = "missing" if content is None else "damaged"
                raise CorruptLog(
                    f"a chunk of the backup is {state}",
                    hint="restore another backup: --backup NAME",
                    chunk=store.address(chunk_name(chunk)),
                    file=target.name,
                )
            file.write(content)
        if file.tell() != stored.size:
            raise CorruptLog("a file of the backup has another size", file=target.name)
        file.flush()
        os.fsync(file.fileno())


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
