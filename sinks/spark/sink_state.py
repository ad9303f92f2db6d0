"""State of a sink beside its tables: each topic's table, and offset ranges without rows."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from headwater.core_log.model.log import TopicPartition
from headwater.core_log.model.table_schema import TableId
from headwater.core_log.objects.store import ObjectStore, names_below
from headwater.sinks.object_names import lake_name
from headwater.sinks.sink import AppliedOffset, ConsistentCut

ENTRIES_KEPT = 1_000
"""The newest entries that are kept; their cuts can be opened while tables have the versions."""
DIRECTORY, HEAD = "_headwater", "head.json"


class PassedRange(NamedTuple):
    """An offset range of a partition without rows for a table."""

    end: AppliedOffset
    since: int
    """The offset where it begins. It extends a table at or beyond this offset, and does not count
    for one that was restored to an earlier version."""


@dataclass(frozen=True, slots=True)
class SinkState:
    """One state of the sink. Entries are numbered, and each number can be written only once."""

    sequence: int = 0
    writer: str = ""
    passed: Mapping[TopicPartition, PassedRange] = field(default_factory=dict)
    """Offsets of the log's own topics, and ranges after the last rows of all other topics."""
    feeds: Mapping[str, tuple[TableId, str]] = field(default_factory=dict)
    """Topic to its table and the table's id; entries of the topic count for that id only."""
    cut: ConsistentCut | None = None
    versions: Mapping[TableId, int] = field(default_factory=dict)
    """Versions of the tables that belong together at the cut."""
    left_out: frozenset[TableId] = frozenset()
    """Tables that the source was reading again at the cut."""
    recipe: str = ""
    """The recipe of the table, beside a shadow."""

    def tables(self) -> dict[TableId, str]:
        return dict(self.feeds.values())


class SinkStateLog:
    """A directory of small JSON files beside the tables.

    The tables are the truth: without this directory only their list is unknown.
    """

    def __init__(self, store: ObjectStore, *, pipeline: str, sink: str) -> None:
        self._store = store
        self._directory = f"{DIRECTORY}/{lake_name(pipeline)}.{lake_name(sink)}"
        self._head: SinkState | None = None

    def head(self) -> SinkState:
        """Returns the newest entry of any writer."""
        sequence = self._hint() if self._head is None else self._head.sequence
        found = self._head
        if found is None:
            found = self._read(sequence) if sequence else SinkState()
            found = found or self._newest()
        while (after := self._read(found.sequence + 1)) is not None:
            found = after
        if found.sequence and self._store.read(self._name(found.sequence)) is None:
            found = self._newest()  # somebody has dropped it
        self._head = found
        return found

    def add(self, entry: SinkState) -> bool:
        """Stores the entry; returns false if another writer has stored its number."""
        if not self._store.create(self._name(entry.sequence), _encode(entry)):
            return False
        self._head = entry
        self._store.put(f"{self._directory}/{HEAD}", json.dumps(entry.sequence).encode())
        gone = entry.sequence - ENTRIES_KEPT
        if gone > 0:
            self._store.remove([self._name(gone)])
        return True

    def entries(self) -> list[SinkState]:
        """Returns all kept entries, oldest first."""
        found = [self._read(sequence) for sequence in self._sequences()]
        return [each for each in found if each is not None]

    def forget(self) -> None:
        self._store.remove(names_below(self._store, self._directory))
        self._head = None

    def _hint(self) -> int:
        content = self._store.read(f"{self._directory}/{HEAD}")
        return 0 if content is None else int(json.loads(content))

    def _newest(self) -> SinkState:
        sequences = self._sequences()
        found = self._read(sequences[-1]) if sequences else None
        return found or SinkState()

    def _sequences(self) -> list[int]:
        names = [each.rpartition("/")[2] for each in names_below(self._store, self._directory)]
        return sorted(int(name[:-5]) for name in names if name[:-5].isdigit())

    def _read(self, sequence: int) -> SinkState | None:
        content = self._store.read(self._name(sequence))
        return None if content is None else _decode(json.loads(content))

    def _name(self, sequence: int) -> str:
        return f"{self._directory}/{sequence:020d}.json"


def _encode(entry: SinkState) -> bytes:
    cut = entry.cut
    document = {
        "version": 1,
        "sequence": entry.sequence,
        "writer": entry.writer,
        "passed": [
            [*part, each.end.topic_id, each.end.next_offset, each.since, each.end.leader_epoch]
            for part, each in sorted(entry.passed.items())
        ],
        "feeds": {topic: [[*table], id] for topic, (table, id) in sorted(entry.feeds.items())},
        "cut": None
        if cut is None
        else {
            "offset": cut.offset,
            "committed_ms": cut.committed_ms,
            "positions": dict(cut.positions),
        },
        "versions": [[*table, version] for table, version in sorted(entry.versions.items())],
        "left_out": [[*table] for table in sorted(entry.left_out)],
        "recipe": entry.recipe,
    }
    return json.dumps(document).encode()


def _decode(document: Mapping[str, Any]) -> SinkState:
    cut = document["cut"]
    return SinkState(
        sequence=document["sequence"],
        writer=document["writer"],
        passed={
            TopicPartition(*each[:2]): PassedRange(AppliedOffset(*each[2:4], *each[5:6]), each[4])
            for each in document["passed"]
        },
        feeds={topic: (TableId(*table), id) for topic, (table, id) in document["feeds"].items()},
        cut=None
        if cut is None
        else ConsistentCut(cut["offset"], cut["committed_ms"], cut["positions"]),
        versions={TableId(*each[:2]): each[2] for each in document["versions"]},
        left_out=frozenset(TableId(*each) for each in document.get("left_out", ())),
        recipe=document.get("recipe", ""),
    )


def next_entry(head: SinkState, *, writer: str) -> SinkState:
    """Returns the entry after this one, with nothing changed yet."""
    return replace(head, sequence=head.sequence + 1, writer=writer, cut=None)
