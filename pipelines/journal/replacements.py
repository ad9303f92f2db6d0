"""Tables that their source reads again as a whole: from where on the log has their rows anew."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import orjson

from headwater.core_log.foundation.errors import (
    BeingReadAgain,
    LogRejected,
    check_format,
)
from headwater.core_log.model.changes import ColumnOrValue, Phase, Positions, Replacement
from headwater.core_log.model.log import Log, TopicPartition
from headwater.core_log.model.table_schema import TableId
from headwater.pipelines.journal.commits import load_positions

REPLACEMENT = "replacement/"
"""Before a table's name, the part of a position that says so."""
FORMAT_VERSION = 1


MIXED_MAX = 20
"""Offset ranges that are remembered of a table; of more, the oldest two become one."""


class MixedTopic(NamedTuple):
    """An offset range of a table's topic within which no state was ever its source's."""

    since: Mapping[int, int]
    """Where it ended when the log learnt that the table differs; from 0 in a new topic."""
    until: Mapping[int, int]
    """Where it ended when all of it had been read again; empty as long as that is to come."""

    def has(self, ends: Mapping[int, int]) -> bool:
        """Whether the state of a topic below `ends` is in it."""
        is_before = all(end <= self.since.get(part, 0) for part, end in ends.items())
        is_behind = bool(self.until) and all(
            end >= self.until.get(part, 0) for part, end in ends.items()
        )
        return not (is_before or is_behind)


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
    source: Mapping[str, ColumnOrValue] = field(default_factory=dict)
    has_ended: bool = False
    """The deletes are appended too: the records from `starts` on are the whole table."""
    mixed: MixedTopic = field(default_factory=lambda: MixedTopic({}, {}))
    """Its own offset range."""
    former: tuple[MixedTopic, ...] = ()
    """Those of earlier ones in the same topic."""
    whole_from: Mapping[int, int] = field(default_factory=dict)
    """The starts of the last one before it that has ended in the same topic."""

    @property
    def part(self) -> str:
        return part_of(self.table)

    def start(
        self, topic_id: str, ends: Mapping[int, int]
    ) -> tuple[MixedTopic, tuple[MixedTopic, ...]]:
        """The range of the next one, which begins at these ends of a topic or goes on with this
        one, and those before it."""
        if topic_id != self.topic_id:
            return MixedTopic({} if not self.has_ended else ends, {}), ()
        if not self.has_ended:
            return self.mixed, self.former
        former = (*self.former, self.mixed)
        if len(former) > MIXED_MAX:
            former = (MixedTopic(former[0].since, former[1].until), *former[2:])
        return MixedTopic(ends, {}), former

    @property
    def beginning(self) -> Mapping[int, int]:
        """From where on the records of the topic are the whole table; empty: from 0."""
        return self.starts if self.has_ended else self.whole_from

    def end_at(self, ends: Mapping[int, int]) -> "StoredReplacement":
        """With the ends of its topic behind the deletes."""
        return replace(self, has_ended=True, mixed=MixedTopic(self.mixed.since, ends))

    def give_up(self, ends: Mapping[int, int]) -> "StoredReplacement":
        """Without its rows: up to these ends its topic is no state of its table."""
        return replace(self, starts=self.whole_from).end_at(ends)

    def complete(self, end: Replacement) -> "StoredReplacement":
        return replace(self, phase=Phase.COMPLETE, commit=end.commit, source=end.source)

    def text(self) -> str:
        content = {
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
            "mixed": [
                [{str(part): offset for part, offset in ends.items()} for ends in each]
                for each in (*self.former, self.mixed)
            ],
            "whole_from": {str(part): offset for part, offset in self.whole_from.items()},
        }
        return orjson.dumps(content).decode()

    @classmethod
    def parse(cls, text: str) -> "StoredReplacement":
        content = orjson.loads(text)
        check_format(content["version"], FORMAT_VERSION, "a re-read of a table was written")
        *former, mixed = [MixedTopic(*map(_number, each)) for each in content["mixed"]]
        return cls(
            TableId(*content["table"]),
            content["topic"],
            content["topic_id"],
            Phase(content["phase"]),
            content["why"],
            content["since_ms"],
            _number(content["starts"]),
            content["commit"],
            content["source"],
            content["ended"],
            mixed,
            tuple(former),
            _number(content.get("whole_from", {})),
        )


async def give_up(log: Log, stored: StoredReplacement) -> StoredReplacement | None:
    """Ends a re-read whose rows nobody reads any more. Returns None if its topic is gone, or is
    another one of the name."""
    try:
        if await log.topic_id(stored.topic) != stored.topic_id:
            return None
    except LogRejected:
        return None
    count = await log.partition_count(stored.topic)
    bounds = await log.bounds([TopicPartition(stored.topic, each) for each in range(count)])
    return stored.give_up({part.partition: bound.end for part, bound in bounds.items()})


def _number(offsets: Mapping[str, int]) -> dict[int, int]:
    return {int(partition): offset for partition, offset in offsets.items()}


def part_of(table: TableId) -> str:
    return f"{REPLACEMENT}{table}"


def last_replacements(positions: Positions) -> dict[TableId, StoredReplacement]:
    """Those that have ended, too."""
    return {each.table: each for each in _read_stored(positions)}


def replacements_of(positions: Positions) -> dict[TableId, StoredReplacement]:
    """Tables whose rows in the log may differ from their source."""
    return {each.table: each for each in _read_stored(positions) if not each.has_ended}


def mixed_in(positions: Positions, topic_id: str) -> list[MixedTopic]:
    """Offset ranges of a topic whose states are none of its table's."""
    return [
        each
        for stored in _read_stored(positions)
        if stored.topic_id == topic_id
        for each in (*stored.former, stored.mixed)
    ]


def mixed_topics(
    positions: Positions, offsets: Mapping[TopicPartition, int], topic_ids: Mapping[str, str]
) -> set[str]:
    """Returns the topics in which an offset lies within a re-read: the rows there are no state of
    their tables' source."""
    found = set[str]()
    for stored in _read_stored(positions):
        ends = {part.partition: end for part, end in offsets.items() if part.topic == stored.topic}
        is_same = topic_ids.get(stored.topic) == stored.topic_id
        offset_ranges = (*stored.former, stored.mixed) if is_same and ends else ()
        if not stored.has_ended or any(each.has(ends) for each in offset_ranges):
            found.add(stored.topic)
    return found


def beginnings_of(positions: Positions, topic_ids: Mapping[str, str]) -> dict[TopicPartition, int]:
    """From where on the records of these very topics are their whole tables."""
    return {
        TopicPartition(each.topic, partition): offset
        for each in _read_stored(positions)
        if topic_ids.get(each.topic) == each.topic_id
        for partition, offset in each.beginning.items()
    }


def _read_stored(positions: Positions) -> list[StoredReplacement]:
    return [
        StoredReplacement.parse(text)
        for part, text in positions.items()
        if part.startswith(REPLACEMENT)
    ]


async def check_not_reread(log: Log, pipeline: str, tables: Iterable[TableId]) -> None:
    """Raises BeingReadAgain for the first source table that is being read again."""
    found = replacements_of(await load_positions(log, pipeline))
    for table in tables:
        if table in found:
            raise being_read_again(
                found[table], "targets follow automatically: headwater status shows the progress"
            )


def being_read_again(stored: StoredReplacement, hint: str) -> BeingReadAgain:
    """`hint`: what to do while it is read again automatically."""
    if stored.phase is Phase.QUARANTINED:
        return BeingReadAgain(
            "the table is quarantined: it differs from its source until it is read again",
            table=str(stored.table),
            why=stored.why,
            hint="run the command that `why` names",
        )
    return BeingReadAgain(
        "the table is being read again at its source: its log has old and new rows",
        table=str(stored.table),
        why=stored.why,
        hint=hint,
    )
