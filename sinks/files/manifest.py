"""Which files count, and up to where the target stands: one small object per commit."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from headwater.core_log.foundation.errors import SinkRejected
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.model.table_schema import TableId
from headwater.core_log.objects.store import ObjectStore, names_below
from headwater.sinks.sink import AppliedOffset, AppliedOffsets

OURS = "_headwater"
SINKS = f"{OURS}/sinks"
FORMAT_VERSION = 1


class CommittedFile(NamedTuple):
    table: TableId
    name: str
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Intent:
    """The files that are about to be put in place, so that they can be removed if they never
    count."""

    sequence: int
    id: str
    """A digest of the range, which the files' names begin with."""
    files: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.sequence:020d}-{self.id}.json"

    def to_bytes(self) -> bytes:
        return json.dumps({"version": FORMAT_VERSION} | asdict(self)).encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> "Intent":
        document = document_of(content)
        return cls(document["sequence"], document["id"], tuple(document["files"]))


@dataclass(frozen=True, slots=True)
class ManifestCommit:
    """A slice that counts. `offsets` covers every topic that was ever applied."""

    sequence: int = 0
    """The number of the commit, from 1 on; an empty target stands at 0."""
    id: str = ""
    writer: str = ""
    """Which run of which process committed it."""
    offsets: AppliedOffsets = field(default_factory=dict)
    files: tuple[CommittedFile, ...] = ()
    cut: int | None = None
    """Where the commit boundary's record stands in `__headwater_commits`."""
    committed_ms: int = 0

    def to_bytes(self) -> bytes:
        offsets = [
            {"topic": part.topic, "partition": part.partition} | applied._asdict()
            for part, applied in sorted(self.offsets.items())
        ]
        files = [
            {"table": each.table._asdict(), "name": each.name, "rows": each.rows,
             "bytes": each.bytes}
            for each in self.files
        ]  # fmt: skip
        document = {
            "version": FORMAT_VERSION,
            "sequence": self.sequence,
            "id": self.id,
            "writer": self.writer,
            "cut": self.cut,
            "committed_ms": self.committed_ms,
            "stands": offsets,
            "files": files,
        }
        return json.dumps(document).encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> "ManifestCommit":
        document = document_of(content)
        return cls(
            document["sequence"],
            document["id"],
            document["writer"],
            {
                TopicPartition(each["topic"], each["partition"]): AppliedOffset(
                    each["topic_id"], each["next_offset"], each.get("leader_epoch", -1)
                )
                for each in document["stands"]
            },
            tuple(
                CommittedFile(TableId(**each["table"]), each["name"], each["rows"], each["bytes"])
                for each in document["files"]
            ),
            document["cut"],
            document["committed_ms"],
        )


def document_of(content: bytes) -> Mapping[str, Any]:
    try:
        document: Mapping[str, Any] = json.loads(content)
        version = document["version"]
    except (ValueError, KeyError, TypeError) as error:
        raise SinkRejected("an object of the manifest is not what this sink writes") from error
    if version != FORMAT_VERSION:
        raise SinkRejected(
            "the manifest was written by another version of headwater",
            hint="run the version that wrote it, or a newer one",
            version=version,
            known=FORMAT_VERSION,
        )
    return document


class Manifest:
    """The commits of one sink. Their numbers have no gaps, so the newest is found from any
    older one by looking whether there is a next."""

    def __init__(self, store: ObjectStore, sink: str) -> None:
        self._store = store
        self._root = f"{SINKS}/{sink}"
        self._head = ManifestCommit()

    def head(self) -> ManifestCommit:
        """The newest commit, looked up now."""
        if not self._head.sequence:
            hint = self._store.read(self._hint)
            self._head = (self.commit_at(int(hint)) if hint else None) or self._newest_listed()
        while (following := self.commit_at(self._head.sequence + 1)) is not None:
            self._head = following
        return self._head

    def commit_at(self, sequence: int) -> ManifestCommit | None:
        content = self._store.read(self._name(sequence))
        return None if content is None else ManifestCommit.from_bytes(content)

    def add(self, commit: ManifestCommit) -> bool:
        """Whether it now is the one of its number; then everything of it counts."""
        if not self._store.create(self._name(commit.sequence), commit.to_bytes()):
            return False
        self._head = commit
        return True

    def remember_head(self) -> None:
        """So that the next start need not list all commits; it may be missing or behind."""
        self._store.put(self._hint, str(self._head.sequence).encode())

    def commits(self) -> Iterator[ManifestCommit]:
        """From the oldest to the newest, as far as they have not been removed."""
        for name in names_below(self._store, f"{self._root}/commits"):
            content = self._store.read(name)
            if content is not None:
                yield ManifestCommit.from_bytes(content)

    def announce(self, intent: Intent) -> None:
        self._store.put(f"{self._root}/intents/{intent.name}", intent.to_bytes())

    def withdraw(self, intent: Intent) -> None:
        self._store.remove([f"{self._root}/intents/{intent.name}"])

    def intents(self) -> list[Intent]:
        contents = map(self._store.read, names_below(self._store, f"{self._root}/intents"))
        return [Intent.from_bytes(content) for content in contents if content is not None]

    def forget(self) -> None:
        """Removes the manifest itself, its commits last."""
        names = names_below(self._store, self._root)
        commits = [name for name in names if name.startswith(f"{self._root}/commits/")]
        self._store.remove([name for name in names if name not in set(commits)])
        self._store.remove(commits)
        self._head = ManifestCommit()

    @property
    def _hint(self) -> str:
        return f"{self._root}/head"

    def _name(self, sequence: int) -> str:
        return f"{self._root}/commits/{sequence:020d}.json"

    def _newest_listed(self) -> ManifestCommit:
        names = names_below(self._store, f"{self._root}/commits")
        content = self._store.read(names[-1]) if names else None
        return ManifestCommit() if content is None else ManifestCommit.from_bytes(content)
