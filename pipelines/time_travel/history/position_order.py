"""The order of source positions: numbers, LSNs of PostgreSQL, GTIDs and places of binary logs."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from headwater.connectors.mysql.server.gtid_set import GtidSet, MariadbGtids

NUMBER = re.compile(r"\d+")
LSN = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")
UUID = r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"
GTID_SET = re.compile(rf"{UUID}(:[\w-]+)+(,\s*{UUID}(:[\w-]+)+)*")
BINLOG_PLACE = re.compile(r"\S+\.(\d+):(\d+)")
MARIADB_GTIDS = re.compile(r"\d+-\d+-\d+(,\d+-\d+-\d+)*")


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


PARSED_MAX = 1_000


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
