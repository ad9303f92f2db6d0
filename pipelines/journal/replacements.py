"""Tables that their source reads again as a whole: from where on the log has their rows anew."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import orjson

from core_log.changes import Cell, Phase, Positions, Replacement
from core_log.errors import DecodeError
from core_log.log import TopicPartition
from core_log.table_schema import TableId

REPLACEMENT = "replacement/"
"""Before a table's name, the part of a position that says so."""
FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True)
class StoredReplacement:
    """The last one of a table, as it is stored in the log."""

    table: TableId
    topic: str
    topic_id: str
    phase: Phase
    why: str
    since_ms: int
    """When the log learnt of it."""
    starts: Mapping[int, int] = field(default_factory=dict)
    """By partition: rows that were emitted since the start stand here or behind."""
    commit: str = ""
    source: Mapping[str, Cell] = field(default_factory=dict)
    has_ended: bool = False
    """The deletes are appended too: the records from `starts` on are the whole table."""

    @property
    def part(self) -> str:
        return part_of(self.table)

    def completed(self, end: Replacement) -> "StoredReplacement":
        return replace(self, phase=Phase.COMPLETE, commit=end.commit, source=end.source)

    def text(self) -> str:
        said = {
            "version": FORMAT_VERSION,
            "table": list(self.table),
            "topic": self.topic,
            "topic_id": self.topic_id,
            "phase": self.phase.value,
            "why": self.why,
            "since_ms": self.since_ms,
            "starts": {str(partition): offset for partition, offset in self.starts.items()},
            "commit": self.commit,
            "source": dict(self.source),
            "ended": self.has_ended,
        }
        return orjson.dumps(said).decode()

    @classmethod
    def parse(cls, text: str) -> "StoredReplacement":
        said = orjson.loads(text)
        if said["version"] > FORMAT_VERSION:
            raise DecodeError(
                "a replacement of a table was written by a newer Headwater",
                hint="upgrade Headwater here",
            )
        return cls(
            TableId(*said["table"]),
            said["topic"],
            said["topic_id"],
            Phase(said["phase"]),
            said["why"],
            said["since_ms"],
            {int(partition): offset for partition, offset in said["starts"].items()},
            said["commit"],
            said["source"],
            said["ended"],
        )


def part_of(table: TableId) -> str:
    return f"{REPLACEMENT}{table}"


def replacements_of(positions: Positions) -> dict[TableId, StoredReplacement]:
    """Tables whose rows in the log may differ from their source."""
    return {each.table: each for each in _stored(positions) if not each.has_ended}


def beginnings_of(positions: Positions, topic_ids: Mapping[str, str]) -> dict[TopicPartition, int]:
    """From where on the records of these very topics are their whole tables."""
    return {
        TopicPartition(each.topic, partition): offset
        for each in _stored(positions)
        if each.has_ended and topic_ids.get(each.topic) == each.topic_id
        for partition, offset in each.starts.items()
    }


def _stored(positions: Positions) -> list[StoredReplacement]:
    return [
        StoredReplacement.parse(text)
        for part, text in positions.items()
        if part.startswith(REPLACEMENT)
    ]
