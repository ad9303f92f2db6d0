"""State of a sink beside its tables: each topic's table, ranges without rows, consistent cuts."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from headwater.core_log.foundation.errors import SinkRejected
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.model.table_schema import TableId
from headwater.core_log.objects.settings import S3Settings
from headwater.core_log.objects.store import ObjectStore, names_below
from headwater.sinks.object_names import lake_name
from headwater.sinks.sink import AppliedOffset, ConsistentCut
from headwater.sinks.spark.storage_location import place_of

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


@dataclass(frozen=True, slots=True)
class TablesAt:
    """The version of each table at a cut.

    A Delta version is the value of `versionAsOf` and `DeltaTable(..., version=...)`; an Iceberg
    version is a sequence number.
    """

    cut: ConsistentCut
    versions: Mapping[TableId, int]
    left_out: frozenset[TableId] = frozenset()
    """Tables without a version at this cut, because the source was reading them again."""


def tables_at(
    path: str,
    *,
    pipeline: str,
    sink: str = "",
    cut: int | None = None,
    s3: S3Settings | None = None,
) -> TablesAt:
    """Returns the newest cut that all tables have, or the newest one at or before `cut`.

    `cut` is an offset of `__headwater_commits`. The sink needs `consistent_cut: true`. Name the
    sink if several sinks of the pipeline share the path.
    """
    place = place_of(path, s3 or S3Settings(), directory=Path.cwd())
    sink = sink or _only_sink(place.store, pipeline, path)
    for entry in reversed(SinkStateLog(place.store, pipeline=pipeline, sink=sink).entries()):
        held = entry.cut
        if held is not None and entry.versions and (cut is None or held.offset <= cut):
            return TablesAt(held, entry.versions, entry.left_out)
    raise SinkRejected(
        "the path has no consistent cut",
        hint="set `consistent_cut: true` in the sink",
        path=path,
        pipeline=pipeline,
    )


def _only_sink(store: ObjectStore, pipeline: str, path: str) -> str:
    """Returns the pipeline's sink that keeps its tables at this path."""
    start = f"{DIRECTORY}/{lake_name(pipeline)}."
    found = {
        name.removeprefix(start).partition("/")[0]
        for name in names_below(store, DIRECTORY)
        if name.startswith(start)
    }
    state_logs = {each: SinkStateLog(store, pipeline=pipeline, sink=each) for each in sorted(found)}
    sinks = [name for name, state_log in state_logs.items() if not state_log.head().recipe]
    if len(sinks) > 1:
        raise SinkRejected(
            "several sinks of the pipeline keep their tables at this path",
            hint=f'name one of them: sink="{sinks[0]}"',
            sinks=", ".join(sinks),
        )
    return sinks[0] if sinks else ""
