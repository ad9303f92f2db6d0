"""Copies the held files of a log into an object store: only chunks that it does not have yet."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from headwater.core_log.broker.held_log import HOLD, HeldFile
from headwater.core_log.foundation.errors import ConfigError, CorruptLog
from headwater.core_log.objects.store import ObjectStore
from headwater.core_log.storage.properties import META
from headwater.pipelines.backup.manifest import (
    BACKUPS,
    CHUNK_BYTES,
    CHUNKS,
    BackupManifest,
    StoredFile,
    backup_names,
    chunk_name,
    read_manifest,
    sha256,
)

Progress = Callable[[str], None]


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
