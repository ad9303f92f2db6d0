"""Row events: their images, column by column."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from headwater.connectors.mysql.binlog.byte_reader import ByteReader
from headwater.connectors.mysql.binlog.event import EventType
from headwater.connectors.mysql.binlog.json_diff import partial_reader
from headwater.connectors.mysql.binlog.table_map import JSON, TableMap
from headwater.connectors.mysql.binlog.values import ReadValue, inflate, reader_of
from headwater.core_log.foundation.errors import DecodeError

PARTIAL_JSON = 1
STATEMENT_END = 1
COMPRESSED = 0x80


class RowChange(Enum):
    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"


_E = EventType
CHANGES = {
    _E.WRITE_ROWS_V1: RowChange.INSERT,
    _E.WRITE_ROWS: RowChange.INSERT,
    _E.MARIADB_WRITE_ROWS_COMPRESSED_V1: RowChange.INSERT,
    _E.MARIADB_WRITE_ROWS_COMPRESSED: RowChange.INSERT,
    _E.UPDATE_ROWS_V1: RowChange.UPDATE,
    _E.UPDATE_ROWS: RowChange.UPDATE,
    _E.PARTIAL_UPDATE_ROWS: RowChange.UPDATE,
    _E.MARIADB_UPDATE_ROWS_COMPRESSED_V1: RowChange.UPDATE,
    _E.MARIADB_UPDATE_ROWS_COMPRESSED: RowChange.UPDATE,
    _E.DELETE_ROWS_V1: RowChange.DELETE,
    _E.DELETE_ROWS: RowChange.DELETE,
    _E.MARIADB_DELETE_ROWS_COMPRESSED_V1: RowChange.DELETE,
    _E.MARIADB_DELETE_ROWS_COMPRESSED: RowChange.DELETE,
}
"""The row events, and how each changes its rows."""
WITH_EXTRA = {
    _E.WRITE_ROWS,
    _E.UPDATE_ROWS,
    _E.DELETE_ROWS,
    _E.PARTIAL_UPDATE_ROWS,
}
"""Version 2 of MySQL, with a part of its own length before the columns. MariaDB's has it too."""
COMPRESSED_EVENTS = {
    _E.MARIADB_WRITE_ROWS_COMPRESSED_V1,
    _E.MARIADB_UPDATE_ROWS_COMPRESSED_V1,
    _E.MARIADB_DELETE_ROWS_COMPRESSED_V1,
    _E.MARIADB_WRITE_ROWS_COMPRESSED,
    _E.MARIADB_UPDATE_ROWS_COMPRESSED,
    _E.MARIADB_DELETE_ROWS_COMPRESSED,
}
EXTRA_COMPRESSED = {
    _E.MARIADB_WRITE_ROWS_COMPRESSED,
    _E.MARIADB_UPDATE_ROWS_COMPRESSED,
    _E.MARIADB_DELETE_ROWS_COMPRESSED,
}


@dataclass(slots=True)
class RowImages:
    """One side of the rows of an event: the columns that are present, by their place."""

    columns: dict[int, list[Any]]

    def is_whole(self, places: Sequence[int]) -> bool:
        return all(place in self.columns for place in places)


@dataclass(slots=True)
class RowsEvent:
    table: TableMap
    change: RowChange
    count: int
    before: RowImages | None
    after: RowImages | None
    is_statement_end: bool = True
    has_unapplied_json: bool = False
    """Whether a part of a JSON value came without the value that it changes."""


def table_number_of(body: bytes) -> int:
    """Returns the number of the table without reading the rows."""
    return ByteReader(body).uint(6)


@dataclass(slots=True)
class RowDecoder:
    """Decodes the row events of one table; its value readers are made once."""

    table: TableMap
    _readers: tuple[ReadValue, ...] = ()
    _json_places: tuple[int, ...] = ()
    _partial: dict[int, ReadValue] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._readers = tuple(map(reader_of, self.table.columns))
        self._json_places = tuple(
            place for place, column in enumerate(self.table.columns) if column.type == JSON
        )

    def decode(self, kind: EventType, body: bytes) -> RowsEvent:
        reader = ByteReader(body)
        reader.skip(6)
        flags = reader.uint(2)
        if kind in WITH_EXTRA or kind in EXTRA_COMPRESSED:
            extra = reader.uint(2)
            reader.skip(extra - 2)
        count = reader.lenenc()
        if count != len(self.table.columns):
            raise DecodeError(
                "a row event has another number of columns than its table",
                table=f"{self.table.database}.{self.table.name}",
                columns=count,
            )
        change = CHANGES[kind]
        present = [self._present(reader.take((count + 7) // 8))]
        if change is RowChange.UPDATE:
            present.append(self._present(reader.take((count + 7) // 8)))
        rows = reader.rest()
        if kind in COMPRESSED_EVENTS:
            rows = inflate_rows(rows)
        found = self._rows(rows, present, is_partial=kind == EventType.PARTIAL_UPDATE_ROWS)
        row_count, images, is_unapplied = found
        sides = [RowImages(image) for image in images]
        before = None if change is RowChange.INSERT else sides[0]
        after = None if change is RowChange.DELETE else sides[-1]
        is_end = bool(flags & STATEMENT_END)
        return RowsEvent(self.table, change, row_count, before, after, is_end, is_unapplied)

    def _present(self, bits: bytes) -> list[int]:
        return [
            place for place in range(len(self.table.columns)) if bits[place // 8] >> place % 8 & 1
        ]

    def _rows(
        self, rows: bytes, present: Sequence[Sequence[int]], *, is_partial: bool
    ) -> tuple[int, list[dict[int, list[Any]]], bool]:
        images: list[dict[int, list[Any]]] = [
            {place: list[Any]() for place in places} for places in present
        ]
        widths = [(len(places) + 7) // 8 for places in present]
        plans = [
            [(at // 8, 1 << at % 8, self._readers[place], images[side][place].append)
             for at, place in enumerate(places)]
            for side, places in enumerate(present)
        ]  # fmt: skip
        pos, end, count, is_unapplied = 0, len(rows), 0, False
        try:
            while pos < end:
                for side, plan in enumerate(plans):
                    if is_partial and side:
                        pos, missed = self._partial_after(rows, pos, present[1], images)
                        is_unapplied |= missed
                        continue
                    nulls, pos = rows[pos : pos + widths[side]], pos + widths[side]
                    for at, bit, read, keep in plan:
                        if nulls[at] & bit:
                            keep(None)
                        else:
                            value, pos = read(rows, pos)
                            keep(value)
                count += 1
                if pos > end or not (widths[0] or widths[-1]):
                    break
        except (IndexError, struct.error):
            pos = end + 1
        if pos != end:
            raise DecodeError(
                "a row event ends inside of a row",
                table=f"{self.table.database}.{self.table.name}",
                row=count,
            )
        return count, images, is_unapplied

    def _partial_after(
        self,
        rows: bytes,
        pos: int,
        places: Sequence[int],
        images: Sequence[dict[int, list[Any]]],
    ) -> tuple[int, bool]:
        """Reads the row after a partial update; returns its end, and whether a part of a JSON value
        has nothing to be applied to."""
        reader = ByteReader(rows, pos)
        partial = set[int]()
        if reader.lenenc() & PARTIAL_JSON:
            bits = reader.take((len(self._json_places) + 7) // 8)
            partial = {
                place for at, place in enumerate(self._json_places) if bits[at // 8] >> at % 8 & 1
            }
        nulls = reader.take((len(places) + 7) // 8)
        pos, is_unapplied = reader.pos, False
        for at, place in enumerate(places):
            keep = images[1][place].append
            if nulls[at // 8] >> at % 8 & 1:
                keep(None)
            elif place in partial:
                olds = images[0].get(place)
                value, pos = partial_reader(rows, pos, olds[-1] if olds else None)
                is_unapplied |= value is None
                keep(value)
            else:
                value, pos = self._readers[place](rows, pos)
                keep(value)
        return pos, is_unapplied


def inflate_rows(data: bytes) -> bytes:
    """Returns the bytes of a compressed string of MariaDB."""
    reader = ByteReader(data)
    first = reader.byte()
    if not first & COMPRESSED:
        raise DecodeError("a compressed event of the binary log has an unknown algorithm")
    size = int.from_bytes(reader.take(first & 7), "big")
    return inflate(reader.rest(), size)
