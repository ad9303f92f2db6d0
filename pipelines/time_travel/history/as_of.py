"""A moment of the past from a command: an offset, a time, or a source position."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from headwater.connectors.mysql.server.gtid_set import GtidSet, MariadbGtids
from headwater.core_log.foundation.errors import ConfigError
from headwater.pipelines.terminal.quantities import (
    PER_PARTITION,
    parse_count,
    parse_time,
    time_text,
)

NUMBER = re.compile(r"\d+")
LSN = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")
UUID = r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"
GTID_SET = re.compile(rf"{UUID}(:[\w-]+)+(,\s*{UUID}(:[\w-]+)+)*")
BINLOG_PLACE = re.compile(r"\S+\.(\d+):(\d+)")
MARIADB_GTIDS = re.compile(r"\d+-\d+-\d+(,\d+-\d+-\d+)*")
PARSED_MAX = 1_000
CLOCKS_APART_MS = 60_000
"""A source's clock may be ahead of ours by this much."""
STREAM = "stream"
"""The part of a position that moves with the source's own history."""
BOUNDS = ("number", "lsn")
"""Kinds of positions that are a place before or behind a transaction, and no set of them."""
PART = re.compile(r"([a-z][\w-]*)=(\S+)")
HINT = (
    "write an offset such as 42, offsets per partition such as 0:42,1:7, a time such as"
    " 2026-01-31T12:00, how long ago, such as 10m, or a position of the source such as 0/16B3748"
)


@dataclass(frozen=True, slots=True)
class ParsedPosition:
    """A position that can be compared with others of its kind."""

    kind: str
    value: Any
    """A number; or the transactions that a reader at this position has."""

    def is_within(self, other: "ParsedPosition") -> bool:
        """Whether all that was sent up to this position was sent up to the other one as well."""
        assert self.kind == other.kind, "positions of one kind are compared"
        is_within: bool = WITHIN[self.kind](self.value, other.value)
        return is_within


@lru_cache(PARSED_MAX)
def parse_position(text: str) -> ParsedPosition | None:
    """Returns None for a position without an order."""
    if NUMBER.fullmatch(text):
        return ParsedPosition("number", int(text))
    if (parts := LSN.fullmatch(text)) is not None:
        return ParsedPosition("lsn", (int(parts[1], 16) << 32) | int(parts[2], 16))
    if GTID_SET.fullmatch(text):
        return ParsedPosition("gtid", GtidSet.parse(text))
    if (parts := BINLOG_PLACE.fullmatch(text)) is not None:
        return ParsedPosition("file", (int(parts[1]), int(parts[2])))
    if MARIADB_GTIDS.fullmatch(text):
        return ParsedPosition("mariadb", MariadbGtids.parse(text))
    return None


def _has_number(one: Any, other: Any) -> bool:
    is_before: bool = one <= other
    return is_before


WITHIN: dict[str, Callable[[Any, Any], bool]] = {
    "number": _has_number,
    "lsn": _has_number,
    "file": _has_number,
    "gtid": GtidSet.is_within,
    "mariadb": MariadbGtids.is_within,
}


@dataclass(frozen=True, slots=True)
class OffsetsAsOf:
    """Everything below these offsets."""

    offsets: Mapping[int, int]
    """By partition; -1 stands for a single partition."""

    def __str__(self) -> str:
        named = (f"{part}:{at}" if part >= 0 else str(at) for part, at in self.offsets.items())
        return f"offset {','.join(named)}"


@dataclass(frozen=True, slots=True)
class TimeAsOf:
    """All source transactions before the first one that was committed later."""

    at_ms: int

    def __str__(self) -> str:
        return time_text(self.at_ms)


@dataclass(frozen=True, slots=True)
class PositionAsOf:
    """All source transactions up to a source position."""

    position: str
    is_included: bool
    """Whether a transaction at exactly that position is included."""

    def is_behind(self, position: ParsedPosition) -> bool:
        """Whether a source that has come to this position has sent later transactions."""
        return not position.is_within(self._parsed)

    def excludes(self, commit: str) -> bool:
        """Whether the transaction at that place is a later one; one without an order is not."""
        parsed = parse_position(commit)
        if parsed is None or parsed.kind != self._parsed.kind:
            return False
        is_bound = parsed.value == self._parsed.value and not self.is_included
        return self.is_behind(parsed) or (is_bound and parsed.kind in BOUNDS)

    def is_reached(self, position: ParsedPosition) -> bool:
        """Whether a source at that position has sent everything up to here."""
        return self._parsed.is_within(position)

    @property
    def _parsed(self) -> ParsedPosition:
        found = parse_position(self.position)
        assert found is not None, "a position that cannot be compared is refused before"
        return found

    def __str__(self) -> str:
        return f"position {self.position}"


AsOf = OffsetsAsOf | TimeAsOf | PositionAsOf


def parse_as_of(text: str, *, now_ms: int) -> AsOf:
    """Parses a moment; a time is the source's commit time. Raises ConfigError for other text."""
    if (offset := parse_count(text)) is not None:
        return OffsetsAsOf({-1: offset})
    if PER_PARTITION.fullmatch(text):
        pairs = (pair.split(":") for pair in text.split(","))
        return OffsetsAsOf({int(partition): int(offset) for partition, offset in pairs})
    if LSN.fullmatch(text):
        return PositionAsOf(text, is_included=True)
    part = PART.fullmatch(text)
    if part and part[1] == STREAM:
        return before(part[2])
    time_ms = parse_time(text, now_ms)
    if time_ms is None:
        raise ConfigError(
            "the text is not a point in time: a time, an age, an offset or a source position",
            given=text,
            hint=HINT,
        )
    if time_ms > now_ms + CLOCKS_APART_MS:
        raise ConfigError(
            "the point in time is in the future",
            given=text,
            hint="leave it out to include everything up to now",
        )
    return TimeAsOf(time_ms)


def before(position: str) -> PositionAsOf:
    """Returns the moment before which everything lies that a source at this position has sent."""
    if parse_position(position) is None:
        raise ConfigError(
            "positions of this source have no order",
            hint="give a time, or offsets of the log: headwater status --positions shows both",
            position=position,
        )
    return PositionAsOf(position, is_included=False)


def format_position(position: str) -> str:
    """Returns the position in the form of `parse_as_of`: a bare number would be an offset of the
    log."""
    return position if LSN.fullmatch(position) else f"{STREAM}={position}"


def check_same_kind(as_of: PositionAsOf, position: str) -> ParsedPosition:
    """Returns the position; each kind has an order, but no two have a common one."""
    found, wanted = parse_position(position), parse_position(as_of.position)
    if found is None:
        raise ConfigError(
            "positions of this source have no order",
            hint="give a time, or offsets of the log: headwater status --positions shows both",
        )
    if wanted is None or found.kind != wanted.kind:
        raise ConfigError(
            "positions of this source have another form",
            position=as_of.position,
            hint=f"such as {format_position(position)}: headwater status --positions shows them",
        )
    return found
