"""Which topic a table's changes go to now, where several have followed one another."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from headwater.core_log.foundation.errors import check_format
from headwater.core_log.model.changes import Positions
from headwater.core_log.model.log import Log, TopicPartition, generation_name, generation_number
from headwater.pipelines.journal.commits import load_positions
from headwater.pipelines.journal.replacements import REPLACEMENT

GENERATION, FILLING = "generation/", "migration/"
"""Before the name of a table's first topic, the parts of a position that say which topics have
followed it, and how far the next one has been filled."""
FORMAT_VERSION = 1

PartitionOffsets = Mapping[int, int]
"""By partition of one topic."""


@dataclass(frozen=True, slots=True)
class TopicSwitch:
    """From one topic to the next: no change of the source is in both."""

    former: str
    topic: str
    former_ends: PartitionOffsets
    """Everything of the former topic is below."""
    ends: PartitionOffsets
    """Below is what was filled in from the former topic."""
    cleaned_to: PartitionOffsets
    """The new topic's: compaction may have taken older values below this before they came here."""
    is_filled: bool = True
    """False where nothing went over: the source reads the table into the new topic as a whole."""


@dataclass(frozen=True, slots=True)
class TopicLineage:
    """The topics of one table, by the name of the first."""

    switches: tuple[TopicSwitch, ...] = ()
    given_up: tuple[str, ...] = ()
    """Topics that were begun to be filled, for what is not wanted any more."""


@dataclass(frozen=True, slots=True)
class MigrationProgress:
    """How far a topic that nobody reads yet has been filled."""

    topic: str
    wanted: str
    """Names what it is made for."""
    read: PartitionOffsets
    """The former topic's offsets."""
    ends: PartitionOffsets = field(default_factory=dict)
    marks: PartitionOffsets = field(default_factory=dict)
    """The later `Switch.cleaned_to`."""
    cleaned_to: PartitionOffsets = field(default_factory=dict)
    deletes_dropped_to: PartitionOffsets = field(default_factory=dict)
    """The former topic's, both, when the filling began."""
    records: PartitionOffsets = field(default_factory=dict)
    bytes: PartitionOffsets = field(default_factory=dict)
    newest_ms: int = 0
    has_truncates: bool = False


@dataclass(frozen=True, slots=True)
class Generations:
    """The generations of all tables of a pipeline; tables that never had but one topic are not
    mentioned."""

    lines: Mapping[str, TopicLineage] = field(default_factory=dict)
    filled: Mapping[str, MigrationProgress] = field(default_factory=dict)

    @classmethod
    def of(cls, positions: Positions) -> "Generations":
        lines, filled = dict[str, TopicLineage](), dict[str, MigrationProgress]()
        for part, text in positions.items():
            if part.startswith(GENERATION):
                content = _loads(text)
                switches = tuple(_switch(each) for each in content["switches"])
                lines[part.removeprefix(GENERATION)] = TopicLineage(
                    switches, tuple(content["given_up"])
                )
            elif part.startswith(FILLING):
                filled[part.removeprefix(FILLING)] = _fill(_loads(text))
        return cls(lines, filled)

    def present(self, first: str) -> str:
        """Where changes go of the table whose first topic was called so."""
        line = self.lines.get(first)
        return line.switches[-1].topic if line and line.switches else first

    def first(self, topic: str) -> str:
        """Returns the name of a table's first topic, by any of its topics."""
        return next((each.first for each in self._steps() if each.switch.topic == topic), topic)

    def add_switch(self, first: str, switch: TopicSwitch) -> "Generations":
        """With one more topic of a table."""
        line = self.lines.get(first, TopicLineage())
        lines = {**self.lines, first: replace(line, switches=(*line.switches, switch))}
        return replace(self, lines=lines)

    def next_topic(self, first: str) -> str:
        line = self.lines.get(first, TopicLineage())
        return generation_name(first, len(line.switches) + len(line.given_up) + 2)

    @property
    def switches(self) -> list[TopicSwitch]:
        """Returns the switches of each table in their order."""
        return [each.switch for each in self._steps()]

    @property
    def former(self) -> Mapping[str, str]:
        """Topics that nothing is appended to any more, and the present one instead of each. Those
        that were given up are among them."""
        found = {each.switch.former: self.present(each.first) for each in self._steps()}
        for first, line in self.lines.items():
            found |= dict.fromkeys(line.given_up, self.present(first))
        return found

    @property
    def hidden(self) -> frozenset[str]:
        """Topics that do not count, since another one does."""
        return frozenset(self.former) | {each.topic for each in self.filled.values()}

    def line_of(self, topics: Collection[str]) -> list[str]:
        """These topics, and all that came before them."""
        chosen = {self.first(topic) for topic in topics}
        before = [each.switch.former for each in self._steps() if each.first in chosen]
        return [*dict.fromkeys([*before, *topics])]

    def _steps(self) -> Iterator["_Step"]:
        for first, line in self.lines.items():
            for switch in line.switches:
                yield _Step(first, switch)


@dataclass(frozen=True, slots=True)
class _Step:
    first: str
    switch: TopicSwitch


NONE = Generations()
"""The generations of tables that have never had but one topic."""


async def load_generations(log: Log, pipeline: str, topics: Collection[str]) -> Generations:
    """Looked for only where one of the topics is called like a later generation."""
    if not any(generation_number(topic) > 1 for topic in topics):
        return NONE
    return Generations.of(await load_positions(log, pipeline))


async def carried_marks(
    log: Log, pipeline: str, partitions: Collection[TopicPartition]
) -> Mapping[TopicPartition, int]:
    """Below which offsets compaction may have taken older values before they came to a topic."""
    found = await load_generations(log, pipeline, {each.topic for each in partitions})
    return {
        TopicPartition(switch.topic, partition): offset
        for switch in found.switches
        for partition, offset in switch.cleaned_to.items()
    }


def is_of_source(part: str) -> bool:
    """Whether a part of a position says where the source stands."""
    return not part.startswith((GENERATION, FILLING, REPLACEMENT))


def source_parts(positions: Positions) -> dict[str, str]:
    return {part: at for part, at in positions.items() if is_of_source(part)}


def line_part(first: str, line: TopicLineage) -> dict[str, str | None]:
    switches = [
        {
            "former": each.former,
            "topic": each.topic,
            "former_ends": _write(each.former_ends),
            "ends": _write(each.ends),
            "cleaned_to": _write(each.cleaned_to),
            "filled": each.is_filled,
        }
        for each in line.switches
    ]
    content = {"version": FORMAT_VERSION, "switches": switches, "given_up": line.given_up}
    return {f"{GENERATION}{first}": orjson.dumps(content).decode()}


def filled_part(first: str, filled: MigrationProgress | None) -> dict[str, str | None]:
    if filled is None:
        return {f"{FILLING}{first}": None}
    content: dict[str, Any] = {"version": FORMAT_VERSION}
    content |= {name: _write(getattr(filled, name)) for name in COUNTED}
    content |= {name: getattr(filled, name) for name in PLAIN}
    return {f"{FILLING}{first}": orjson.dumps(content).decode()}


PLAIN = ("topic", "wanted", "newest_ms", "has_truncates")
COUNTED = ("read", "ends", "marks", "cleaned_to", "deletes_dropped_to", "records", "bytes")


def _loads(text: str) -> dict[str, Any]:
    content: dict[str, Any] = orjson.loads(text)
    check_format(content["version"], FORMAT_VERSION, "the topics of a table were written")
    return content


def _switch(content: Mapping[str, Any]) -> TopicSwitch:
    return TopicSwitch(
        content["former"],
        content["topic"],
        _read(content["former_ends"]),
        _read(content["ends"]),
        _read(content["cleaned_to"]),
        content.get("filled", True),
    )


def _fill(content: Mapping[str, Any]) -> MigrationProgress:
    fields: dict[str, Any] = {name: _read(content[name]) for name in COUNTED}
    return MigrationProgress(**fields, **{name: content[name] for name in PLAIN})


def _write(offsets: PartitionOffsets) -> dict[str, int]:
    return {str(partition): offset for partition, offset in offsets.items()}


def _read(content: Mapping[str, int]) -> dict[int, int]:
    return {int(partition): offset for partition, offset in content.items()}
