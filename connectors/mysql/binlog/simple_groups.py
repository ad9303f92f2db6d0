"""Finds transactions of one row event each, many at a time: their events cost more than rows do."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple
from uuid import UUID
from zlib import crc32

import numpy as np
import numpy.typing as npt

from headwater.connectors.mysql.binlog.decoder import (
    COMPLETED_XA,
    ORIGINAL_TIME,
    PREPARED_XA,
    QUERY_HEAD,
    STANDALONE,
    BinlogDecoder,
)
from headwater.connectors.mysql.binlog.event import CRC_BYTES, HEADER_BYTES, KIND_AT, EventType
from headwater.connectors.mysql.binlog.rows import RowsLayout
from headwater.core_log.foundation.array_types import BoolArray, Int64Array, UInt8Array

GROUPS_MIN = 10
"""Fewer are read one after the other in less time."""
CHECKED = 0x2144DF1C
"""The CRC-32 of anything with its own CRC-32 behind it."""
SERVER_AT, SIZE_AT, END_AT = 5, 9, 13
LONGEST_READ = 8

_E = EventType
MYSQL_SHAPE = (
    {_E.GTID}, {_E.QUERY}, {_E.TABLE_MAP}, {_E.WRITE_ROWS, _E.UPDATE_ROWS, _E.DELETE_ROWS}, {_E.XID}
)  # fmt: skip
MARIADB_SHAPE = (
    {_E.MARIADB_GTID}, {_E.TABLE_MAP}, {_E.WRITE_ROWS_V1, _E.UPDATE_ROWS_V1, _E.DELETE_ROWS_V1},
    {_E.XID},
)  # fmt: skip
BEGIN = int.from_bytes(b"BEGIN", "little")
NUMBER_AT, TIME_KIND_AT, TIME_AT, TIME_END = 17, 25, 42, 49
"""In the body of a GTID event of MySQL, behind flags and uuid."""
DOMAIN_AT, FLAGS_AT = 8, 12
"""In that of MariaDB, behind the number."""


class SimpleGroups(NamedTuple):
    """Transactions that follow one another, each of one row event of the same layout."""

    events: Sequence[bytes]
    layout: RowsLayout
    rows: Sequence[bytes]
    source: tuple[str, str] | tuple[int, int]
    """The common part of their GTIDs: uuid and no tag; domain and server."""
    numbers: Sequence[int]
    committed_us: Sequence[int]
    positions: Sequence[int]
    """Where each row event begins; 0 if the server does not say it."""
    threads: Sequence[int | None]
    server_ids: Sequence[int]
    ends: Sequence[int]
    """Where each transaction ends."""

    @property
    def gtids(self) -> list[str]:
        first, second = self.source
        prefix = f"{first}:" if isinstance(first, str) else f"{first}-{second}-"
        return [f"{prefix}{number}" for number in self.numbers]


def find_simple_groups(
    events: Sequence[bytes], decoder: BinlogDecoder
) -> Iterator[bytes | SimpleGroups]:
    """Yields events one by one, or many of them as transactions. A table's first event has to be
    decoded before those behind it can be found, and a format before all that are behind it."""
    if len(events) < GROUPS_MIN or min(map(len, events)) <= HEADER_BYTES + CRC_BYTES:
        yield from events
        return
    kinds, at = bytes(map(itemgetter(KIND_AT), events)), 0
    while (end := kinds.find(EventType.FORMAT_DESCRIPTION, at)) >= 0:
        yield from _found(events[at:end], kinds[at:end], decoder)
        yield events[end]
        at = end + 1
    yield from _found(events[at:], kinds[at:], decoder)


def _found(
    events: Sequence[bytes], kinds: bytes, decoder: BinlogDecoder
) -> Iterator[bytes | SimpleGroups]:
    if (found := _EventColumns.of(events, kinds, decoder)) is None:
        yield from events
        return
    at = 0
    for begin in found.begins:
        while at < begin:
            yield events[at]
            at += 1
        if at == begin and (groups := found.groups_from(at)) is not None:
            yield groups
            at += len(groups.events)
    yield from events[at:]


@dataclass(slots=True)
class _EventColumns:
    """The heads of all events that came together, as columns."""

    events: Sequence[bytes]
    decoder: BinlogDecoder
    data: UInt8Array
    starts: Int64Array
    ends: Int64Array
    """Without the checksums."""
    shape: tuple[set[EventType], ...]
    begins: list[int]
    """The events with which a simple transaction begins."""
    _is_begin: BoolArray
    _breaks: list[int]
    """Those of them that have another source, or another kind of rows, than the one before."""

    @classmethod
    def of(
        cls, events: Sequence[bytes], kinds_of: bytes, decoder: BinlogDecoder
    ) -> "_EventColumns | None":
        """Returns None if there are few such transactions."""
        shape = MARIADB_SHAPE if decoder.is_mariadb else MYSQL_SHAPE
        count = len(events) - len(shape) + 1
        if count < GROUPS_MIN:
            return None
        kinds = np.frombuffer(kinds_of, np.uint8)
        is_begin = np.ones(count, np.bool_)
        for place, wanted in enumerate(shape):
            is_begin &= np.isin(kinds[place : place + count], list(wanted))
        if is_begin.sum() < GROUPS_MIN:
            return None
        sizes = np.fromiter(map(len, events), np.int64, len(events))
        data = np.frombuffer(b"".join([*events, bytes(LONGEST_READ)]), np.uint8)
        starts = np.cumsum(sizes) - sizes
        is_sound = _numbers(data, starts + SIZE_AT, "<u4") == sizes
        if decoder.has_checksum:
            is_sound &= np.fromiter(map(crc32, events), np.uint32, len(events)) == CHECKED
        for place in range(len(shape)):
            is_begin &= is_sound[place : place + count]
        ends = starts + sizes - (CRC_BYTES if decoder.has_checksum else 0)
        self = cls(events, decoder, data, starts, ends, shape, [], is_begin, [])
        places = np.flatnonzero(is_begin)
        is_begin[places] = self._are_plain(places)
        begins = np.flatnonzero(is_begin)
        self.begins = begins.tolist()
        told = [kinds[begins + len(shape) - 2].astype(np.int64), *self._sources(begins)]
        is_break = np.zeros(len(begins), np.bool_)
        for each in told:
            is_break[1:] |= each[1:] != each[:-1]
        self._breaks = begins[is_break].tolist()
        return self

    def _sources(self, begins: Int64Array) -> list[Int64Array]:
        """Returns what names the server of each transaction."""
        starts = self.starts[begins]
        if self.decoder.is_mariadb:
            places = [starts + HEADER_BYTES + DOMAIN_AT, starts + SERVER_AT]
            return [_numbers(self.data, each, "<u4") for each in places]
        uuid = starts + HEADER_BYTES + 1
        return [_numbers(self.data, uuid + half, "<i8") for half in (0, 8)]

    def _are_plain(self, begins: Int64Array) -> BoolArray:
        """Whether transactions begin here that are neither XA nor DDL, nor have two times."""
        body, end = self.starts[begins] + HEADER_BYTES, self.ends[begins]
        if self.decoder.is_mariadb:
            flags = self.data[body + FLAGS_AT]
            return np.asarray(
                (end > body + FLAGS_AT) & (flags & (STANDALONE | PREPARED_XA | COMPLETED_XA) == 0)
            )
        is_long = end >= body + TIME_END
        safe = np.where(is_long, body, 0)
        time = _numbers(self.data, safe + TIME_AT, "<i8")
        is_plain = is_long & (self.data[safe + TIME_KIND_AT] == 2) & (time & ORIGINAL_TIME == 0)
        is_plain &= _numbers(self.data, safe + NUMBER_AT, "<i8") > 0
        query, query_end = self.starts[begins + 1] + HEADER_BYTES, self.ends[begins + 1]
        database = self.data[query + 8].astype(np.int64)
        status = _numbers(self.data, query + 11, "<u2")
        text = query + QUERY_HEAD.size + status + database + 1
        is_plain &= query_end == text + 5
        word = _numbers(self.data, np.where(is_plain, text, 0), "<i8")
        return np.asarray(is_plain & (word & ((1 << 40) - 1) == BEGIN))

    def groups_from(self, begin: int) -> SimpleGroups | None:
        """Returns the transactions from there on that have the same table, layout and source."""
        events, step = self.events, len(self.shape)
        rows_at = step - 2
        tail = CRC_BYTES if self.decoder.has_checksum else 0
        table_map = events[begin + rows_at - 1]
        body = table_map[HEADER_BYTES : len(table_map) - tail]
        known = self.decoder.known_layout(
            body, events[begin + rows_at][KIND_AT], events[begin + rows_at][HEADER_BYTES:]
        )
        if known is None:
            return None
        layout, head = known
        fixed = events[begin + rows_at][HEADER_BYTES : HEADER_BYTES + head]
        head += HEADER_BYTES
        stop = bisect_right(self._breaks, begin)
        end = self._breaks[stop] if stop < len(self._breaks) else len(self._is_begin)
        at, rows = begin, list[bytes]()
        while at < end and self._is_begin[at]:
            event, named = events[at + rows_at], events[at + rows_at - 1]
            named = named[HEADER_BYTES : len(named) - tail]
            if named != body or event[HEADER_BYTES:head] != fixed:
                break
            rows.append(event[head : len(event) - tail])
            at += step
        self.decoder.use_table(body)
        return self._groups(np.arange(begin, at, step), layout, rows, self._source(begin))

    def _source(self, begin: int) -> bytes:
        event = self.events[begin]
        if self.decoder.is_mariadb:
            domain = HEADER_BYTES + DOMAIN_AT
            return event[domain : domain + 4] + event[SERVER_AT : SERVER_AT + 4]
        return event[HEADER_BYTES + 1 : HEADER_BYTES + NUMBER_AT]

    def _groups(
        self, begins: Int64Array, layout: RowsLayout, rows: Sequence[bytes], source: bytes
    ) -> SimpleGroups:
        data, starts = self.data, self.starts[begins]
        changed, last = begins + len(self.shape) - 2, begins + len(self.shape) - 1
        events = self.events[int(begins[0]) : int(last[-1]) + 1]
        ends = _numbers(data, self.starts[changed] + END_AT, "<u4")
        sizes = _numbers(data, self.starts[changed] + SIZE_AT, "<u4")
        threads: list[int | None] = [None] * len(begins)
        if self.decoder.is_mariadb:
            named: tuple[str, str] | tuple[int, int] = (
                int.from_bytes(source[:4], "little"),
                int.from_bytes(source[4:], "little"),
            )
            numbers = _numbers(data, starts + HEADER_BYTES, "<i8")
            times = _numbers(data, starts, "<u4") * 1_000_000
        else:
            named = (str(UUID(bytes=source)), "")
            numbers = _numbers(data, starts + HEADER_BYTES + NUMBER_AT, "<i8")
            times = _numbers(data, starts + HEADER_BYTES + TIME_AT, "<i8") & ((1 << 55) - 1)
            threads = _numbers(data, self.starts[begins + 1] + HEADER_BYTES, "<u4").tolist()
        return SimpleGroups(
            events,
            layout,
            rows,
            named,
            numbers.tolist(),
            times.tolist(),
            np.where(ends > 0, ends - sizes, 0).tolist(),
            threads,
            _numbers(data, self.starts[changed] + SERVER_AT, "<u4").tolist(),
            _numbers(data, self.starts[last] + END_AT, "<u4").tolist(),
        )


def _numbers(data: UInt8Array, places: Int64Array, kind: str) -> Int64Array:
    """Returns the numbers that begin at these places."""
    size = np.dtype(kind).itemsize
    every: npt.NDArray[Any] = np.ndarray((len(data) - size + 1,), kind, data, 0, (1,))
    return every[places].astype(np.int64)
