"""The list of files of one backup, each as the chunks of its content."""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

import orjson

from headwater.core_log.foundation.errors import ConfigError, CorruptLog, DecodeError
from headwater.core_log.objects.store import ObjectStore

VERSION = 1
BACKUPS, CHUNKS = "backups", "chunks"
CHUNK_BYTES = 16 << 20
"""Files are cut at multiples of this: the part of a segment that an earlier backup has is not sent
again."""


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
            "the place has no backup of this name", hint=f"there is {', '.join(names)}"
        )
    return name or names[-1]


def read_manifest(store: ObjectStore, name: str) -> BackupManifest:
    content = store.read(f"{BACKUPS}/{name}.json")
    if content is None:
        raise CorruptLog("the list of the backup's files is gone", backup=name)
    return decode_manifest(name, content)
