"""Sets of GTIDs, which say what transactions a reader has: those of MySQL, and of MariaDB."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from uuid import UUID

from headwater.connectors.mysql.binlog.byte_reader import ByteReader
from headwater.core_log.foundation.errors import DecodeError

TAGGED_FORM = 1
UUIDS_MAX = 1 << 20
INTERVAL = re.compile(r"(\d+)(?:-(\d+))?")
TAG = re.compile(r"[a-z_][a-z0-9_]{0,31}")

SourceTag = tuple[str, str]
"""The uuid of a server, and the tag of its transactions or ''."""


@dataclass(slots=True)
class GtidSet:
    """A set of MySQL: half-open intervals per source and tag, in order and apart."""

    _intervals: dict[SourceTag, list[tuple[int, int]]] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> "GtidSet":
        """Parses the server's text: `uuid:1-5:7:tag:1-3,uuid:...`."""
        found = cls()
        for part in filter(None, re.split(r"[,\s]+", text)):
            name, *rest = part.split(":")
            uuid, tag = _uuid(name), ""
            for each in rest:
                if (interval := INTERVAL.fullmatch(each)) is None:
                    if not TAG.fullmatch(each.lower()):
                        raise DecodeError("a GTID set is not one of MySQL")
                    tag = each.lower()
                    continue
                first, last = int(interval[1]), int(interval[2] or interval[1])
                found.add((uuid, tag), first, last + 1)
        return found

    def copy(self) -> "GtidSet":
        return GtidSet({source: list(each) for source, each in self._intervals.items()})

    def add(self, source: SourceTag, first: int, end: int) -> None:
        """Adds the numbers from `first` to before `end`."""
        intervals = self._intervals.setdefault(source, [])
        if intervals and intervals[-1][0] <= first <= intervals[-1][1]:
            intervals[-1] = (intervals[-1][0], max(intervals[-1][1], end))
            return
        intervals.append((first, end))
        intervals.sort()
        merged = [intervals[0]]
        for start, stop in intervals[1:]:
            if start <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(merged[-1][1], stop))
            else:
                merged.append((start, stop))
        self._intervals[source] = merged

    def has(self, source: SourceTag, number: int) -> bool:
        return any(first <= number < end for first, end in self._intervals.get(source, ()))

    def is_within(self, other: "GtidSet") -> bool:
        """Whether the other set has all of these."""
        return all(
            any(start <= first and end <= stop for start, stop in other._intervals.get(source, ()))
            for source, intervals in self._intervals.items()
            for first, end in intervals
        )

    def without(self, other: "GtidSet") -> "GtidSet":
        """Returns the transactions that the other set has not."""
        found = GtidSet()
        for source, intervals in self._intervals.items():
            for first, end in intervals:
                at = first
                for start, stop in other._intervals.get(source, ()):
                    if at < start < end:
                        found.add(source, at, min(start, end))
                    if stop > at and start < end:
                        at = max(at, stop)
                if at < end:
                    found.add(source, at, end)
        return found

    def __bool__(self) -> bool:
        return any(self._intervals.values())

    def __str__(self) -> str:
        parts: dict[str, list[str]] = {}
        for (uuid, tag), intervals in sorted(self._intervals.items()):
            texts = [f"{a}" if b == a + 1 else f"{a}-{b - 1}" for a, b in intervals]
            parts.setdefault(uuid, []).append(":".join([*([tag] if tag else []), *texts]))
        return ",".join(f"{uuid}:{':'.join(each)}" for uuid, each in parts.items())

    def encode(self) -> bytes:
        """Returns the form of COM_BINLOG_DUMP_GTID, with tags only where there are any."""
        has_tags = any(tag for _, tag in self._intervals)
        count = len(self._intervals)
        head = bytes([TAGGED_FORM]) + count.to_bytes(6, "little") + bytes([TAGGED_FORM])
        parts = [head if has_tags else count.to_bytes(8, "little")]
        for (uuid, tag), intervals in sorted(self._intervals.items()):
            parts.append(UUID(uuid).bytes)
            if has_tags:
                parts += [bytes([len(tag) << 1]), tag.encode()]
            parts.append(len(intervals).to_bytes(8, "little"))
            parts += [number.to_bytes(8, "little") for pair in intervals for number in pair]
        return b"".join(parts)

    @classmethod
    def decode(cls, data: bytes) -> "GtidSet":
        """Decodes PREVIOUS_GTIDS."""
        reader = ByteReader(data)
        head = reader.take(8)
        has_tags = head[7] == TAGGED_FORM
        count = int.from_bytes(head[1:7] if has_tags else head, "little")
        if count > UUIDS_MAX:
            raise DecodeError("a GTID set of the binary log has too many sources", sources=count)
        found = cls()
        for _ in range(count):
            uuid = str(UUID(bytes=reader.take(16)))
            tag = reader.text(reader.varint()) if has_tags else ""
            pairs = reader.uint(8)
            if pairs > reader.left // 16:
                raise DecodeError("a GTID set of the binary log has more intervals than bytes")
            for _ in range(pairs):
                found.add((uuid, tag), reader.uint(8), reader.uint(8))
        return found


@dataclass(slots=True)
class MariadbGtids:
    """A position of MariaDB: the last transaction of each domain."""

    _last: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Server and number by domain."""

    @classmethod
    def parse(cls, text: str) -> "MariadbGtids":
        found = cls()
        for part in filter(None, re.split(r"[,\s]+", text)):
            domain, server, number = _triple(part)
            found.add(domain, server, number)
        return found

    def copy(self) -> "MariadbGtids":
        return MariadbGtids(dict(self._last))

    def add(self, domain: int, server: int, number: int) -> None:
        self._last[domain] = (server, number)

    def has(self, domain: int, number: int) -> bool:
        """Whether the reader has it: numbers of a domain only grow."""
        return domain in self._last and number <= self._last[domain][1]

    def is_within(self, other: "MariadbGtids") -> bool:
        """Whether the other reader has all of these."""
        return all(other.has(domain, number) for domain, _, number in self)

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        return iter((domain, *last) for domain, last in sorted(self._last.items()))

    def __bool__(self) -> bool:
        return bool(self._last)

    def __str__(self) -> str:
        return ",".join(f"{domain}-{server}-{number}" for domain, server, number in self)


def _triple(text: str) -> tuple[int, int, int]:
    parts = text.split("-")
    if len(parts) != 3 or not all(part.isdecimal() for part in parts):
        raise DecodeError("a GTID is not one of MariaDB")
    domain, server, number = map(int, parts)
    return domain, server, number


def _uuid(text: str) -> str:
    try:
        return str(UUID(text))
    except ValueError:
        raise DecodeError("a GTID set is not one of MySQL") from None
