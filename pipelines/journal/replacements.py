"""Tables that their source reads again as a whole: from where on the log has their rows anew."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import orjson

from core_log.changes import Positions, Replacement
from core_log.errors import DecodeError
from core_log.table_schema import TableId

REPLACEMENT = "replacement/"
"""Before a table's name, the part of a position that says so."""
FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True)
class StartedReplacement:
    """One that is stored in the log."""

    table: TableId
    topic: str
    starts: Mapping[int, int]
    """By partition: rows that were emitted since the start stand here or behind."""
    is_complete: bool = False
    """The source has emitted everything; deletes of missing rows are still to be appended."""
    commit: str = ""
    source: Mapping[str, str | int | None] = field(default_factory=dict)

    @property
    def part(self) -> str:
        return part_of(self.table)

    def completed(self, end: Replacement) -> "StartedReplacement":
        return replace(self, is_complete=True, commit=end.commit, source=end.source)

    def text(self) -> str:
        said = {
            "version": FORMAT_VERSION,
            "table": list(self.table),
            "topic": self.topic,
            "starts": {str(partition): offset for partition, offset in self.starts.items()},
        }
        if self.is_complete:
            said |= {"complete": {"commit": self.commit, "source": dict(self.source)}}
        return orjson.dumps(said).decode()

    @classmethod
    def parse(cls, text: str) -> "StartedReplacement":
        said = orjson.loads(text)
        if said["version"] > FORMAT_VERSION:
            raise DecodeError(
                "a replacement of a table was written by a newer Headwater",
                hint="upgrade Headwater here",
            )
        complete = said.get("complete")
        return cls(
            TableId(*said["table"]),
            said["topic"],
            {int(partition): offset for partition, offset in said["starts"].items()},
            complete is not None,
            **({} if complete is None else complete),
        )


def part_of(table: TableId) -> str:
    return f"{REPLACEMENT}{table}"


def replacements_of(positions: Positions) -> dict[TableId, StartedReplacement]:
    found = [
        StartedReplacement.parse(text)
        for part, text in positions.items()
        if part.startswith(REPLACEMENT)
    ]
    return {each.table: each for each in found}
