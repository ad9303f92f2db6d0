"""Row events, and all of their rows as columns."""

from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from headwater.connectors.mysql.binlog.byte_reader import (
    ByteReader,
    decimal_reader,
    decompress_column,
    inflate,
)
from headwater.connectors.mysql.binlog.event import EventType
from headwater.connectors.mysql.binlog.json_document import whole_updates
from headwater.connectors.mysql.binlog.table_map import (
    BLOB_COMPRESSED,
    NEWDECIMAL,
    VARCHAR_COMPRESSED,
    TableMap,
    WireColumn,
)
from headwater.connectors.mysql.binlog.wire_columns import FixedCells, fixed_reader, width_of
from headwater.connectors.mysql.kernels.kernels import (
    BUFFER_BYTES_MAX,
    MysqlKernels,
    RowLayout,
    RowSpans,
    with_slack,
)
from headwater.core_log.foundation.array_types import Int64Array, UInt8Array
from headwater.core_log.foundation.errors import DecodeError

NUMBER_BYTES, HEADS_MAX = 6, 1_000
COMPRESSED = 0x80
COMPRESSED_COLUMNS = (BLOB_COMPRESSED, VARCHAR_COMPRESSED)


class RowChange(Enum):
    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"


_E = EventType
CHANGES: Mapping[int, RowChange] = {
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
WITH_EXTRA: Set[int] = {
    _E.WRITE_ROWS,
    _E.UPDATE_ROWS,
    _E.DELETE_ROWS,
    _E.PARTIAL_UPDATE_ROWS,
}
"""Version 2 of MySQL, with a part of its own length before the columns. MariaDB's has it too."""
COMPRESSED_EVENTS: Set[int] = {
    _E.MARIADB_WRITE_ROWS_COMPRESSED_V1,
    _E.MARIADB_UPDATE_ROWS_COMPRESSED_V1,
    _E.MARIADB_DELETE_ROWS_COMPRESSED_V1,
    _E.MARIADB_WRITE_ROWS_COMPRESSED,
    _E.MARIADB_UPDATE_ROWS_COMPRESSED,
    _E.MARIADB_DELETE_ROWS_COMPRESSED,
}
EXTRA_COMPRESSED: Set[int] = {
    _E.MARIADB_WRITE_ROWS_COMPRESSED,
    _E.MARIADB_UPDATE_ROWS_COMPRESSED,
    _E.MARIADB_DELETE_ROWS_COMPRESSED,
}


@dataclass(frozen=True, slots=True, eq=False)
class RowsLayout:
    """The common layout of row events of one kind: the table, and the columns of each image."""

    table: TableMap
    change: RowChange
    images: tuple[tuple[int, ...], ...]
    """Places of the columns that are present, before and after for an update."""
    spans: RowLayout

    @classmethod
    def of(
        cls, table: TableMap, change: RowChange, images: Sequence[tuple[int, ...]]
    ) -> "RowsLayout":
        widths = [width_of(table.columns[place]) for image in images for place in image]
        counts = np.array([len(image) for image in images], np.int32)
        spans = RowLayout(counts, np.array(widths, np.int32))
        return cls(table, change, tuple(images), spans)

    def has_all(self, places: Sequence[int]) -> bool:
        """Whether every image has these columns."""
        return all(set(places) <= set(image) for image in self.images)


class RowsEvent(NamedTuple):
    """Rows that are still bytes: all events of a table are read in one pass."""

    layout: RowsLayout
    rows: bytes
    has_unapplied_json: bool = False
    """Whether a part of a JSON value came without the value that it changes."""

    @property
    def table(self) -> TableMap:
        return self.layout.table


@dataclass(frozen=True, slots=True)
class RowColumns:
    """Rows of events of one layout, as columns."""

    counts: Int64Array
    """Rows of each event."""
    before: Mapping[int, pa.Array]
    """Columns by place; empty for an insert."""
    after: Mapping[int, pa.Array]
    """The same; empty for a delete."""


def read_rows(
    layout: RowsLayout, chunks: Sequence[bytes], kernels: MysqlKernels, wanted: Collection[int]
) -> RowColumns:
    """Reads the rows of events; only the wanted columns."""
    buffer = with_slack(chunks)
    ends = np.cumsum([len(each) for each in chunks], dtype=np.int64)
    begins = np.append(0, ends[:-1])
    if ends[-1] > BUFFER_BYTES_MAX:
        raise DecodeError("the row events of a transaction are too large", bytes=int(ends[-1]))
    spans = kernels.rows(buffer, begins, ends, layout.spans)
    if (spans.counts < 0).any():
        table = layout.table
        raise DecodeError(
            "a row event ends inside of a row", table=f"{table.database}.{table.name}"
        )
    images, first = list[dict[int, pa.Array]](), 0
    for image in layout.images:
        chosen = [(place, first + at) for at, place in enumerate(image) if place in wanted]
        images.append(_columns(layout.table, buffer, spans, chosen, kernels))
        first += len(image)
    before = {} if layout.change is RowChange.INSERT else images[0]
    after = {} if layout.change is RowChange.DELETE else images[-1]
    return RowColumns(spans.counts, before, after)


def _columns(
    table: TableMap,
    buffer: UInt8Array,
    spans: RowSpans,
    chosen: Sequence[tuple[int, int]],
    kernels: MysqlKernels,
) -> dict[int, pa.Array]:
    found, bare = dict[int, pa.Array](), list[tuple[int, int]]()
    for place, column in chosen:
        read = fixed_reader(table.columns[place])
        if read is None:
            bare.append((place, column))
            continue
        is_null = spans.is_null[column]
        begins = spans.bounds[column, 0::2].astype(np.int64)
        found[place] = read(FixedCells(buffer, begins, is_null if is_null.any() else None))
    if bare:
        columns = [column for _, column in bare]
        if spans.is_null.shape[1]:
            texts = kernels.gather(buffer, spans.bounds[columns], spans.is_null[columns])
        else:
            texts = [pa.array([], pa.binary())] * len(bare)
        for (place, _), text in zip(bare, texts, strict=True):
            found[place] = _opened(table.columns[place], text)
    return found


def _opened(column: WireColumn, values: pa.BinaryArray) -> pa.Array:
    """Returns the texts of long decimals and of compressed columns."""
    if column.type == NEWDECIMAL:
        read = decimal_reader(column.meta >> 8, column.meta & 0xFF)
        texts = [None if each is None else read(each) for each in values.to_pylist()]
        return pa.array(texts, pa.string())
    if column.type in COMPRESSED_COLUMNS:
        found = [None if each is None else decompress_column(each) for each in values.to_pylist()]
        return pa.array(found, pa.binary())
    return values


def table_number_of(body: bytes) -> int:
    """Returns the number of the table without reading the rows."""
    if len(body) < NUMBER_BYTES:
        ByteReader(body).skip(NUMBER_BYTES)  # fails
    return int.from_bytes(body[:NUMBER_BYTES], "little")


@dataclass(slots=True)
class RowDecoder:
    """Finds the rows in the events of one table; their layouts are made once."""

    table: TableMap
    _layouts: dict[tuple[RowChange, bytes], RowsLayout] = field(default_factory=dict)
    _heads: dict[tuple[int, bytes], RowsLayout] = field(default_factory=dict)
    """Layouts of plain events by what stands before their rows, which repeats."""
    _head_bytes: dict[int, int] = field(default_factory=dict)
    """The end of the last such head, by the kind of event."""

    def __post_init__(self) -> None:
        for column in self.table.columns:
            width_of(column)

    def decode(self, kind: int, body: bytes) -> RowsEvent:
        if (known := self.known_layout(kind, body)) is not None:
            layout, end = known
            return RowsEvent(layout, body[end:])
        return self._decode(kind, body)

    def known_layout(self, kind: int, body: bytes) -> tuple[RowsLayout, int] | None:
        """Returns the layout of a plain event, and the bytes before its rows, if it is known."""
        end = self._head_bytes.get(kind, 0)
        layout = self._heads.get((kind, body[NUMBER_BYTES:end])) if end else None
        return None if layout is None else (layout, end)

    def _decode(self, kind: int, body: bytes) -> RowsEvent:
        reader = ByteReader(body)
        reader.skip(8)
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
        width = (count + 7) // 8
        layout = self._layout(
            change, reader.take(2 * width if change is RowChange.UPDATE else width)
        )
        head_end = reader.pos
        rows = reader.rest()
        if kind in COMPRESSED_EVENTS:
            return RowsEvent(layout, inflate_rows(rows))
        if kind == EventType.PARTIAL_UPDATE_ROWS:
            rows, is_unapplied = whole_updates(
                rows, self.table, layout.images, layout.spans.widths.tolist()
            )
            return RowsEvent(layout, rows, is_unapplied)
        if len(self._heads) < HEADS_MAX:
            self._heads[kind, body[NUMBER_BYTES:head_end]] = layout
        self._head_bytes[kind] = head_end
        return RowsEvent(layout, rows)

    def _layout(self, change: RowChange, bits: bytes) -> RowsLayout:
        if (change, bits) not in self._layouts:
            width = (len(self.table.columns) + 7) // 8
            images = [self._present(bits[at : at + width]) for at in range(0, len(bits), width)]
            self._layouts[change, bits] = RowsLayout.of(self.table, change, images)
        return self._layouts[change, bits]

    def _present(self, bits: bytes) -> tuple[int, ...]:
        places = range(len(self.table.columns))
        return tuple(place for place in places if bits[place // 8] >> place % 8 & 1)


def inflate_rows(data: bytes) -> bytes:
    """Returns the bytes of a compressed string of MariaDB."""
    reader = ByteReader(data)
    first = reader.byte()
    if not first & COMPRESSED:
        raise DecodeError("a compressed event of the binary log has an unknown algorithm")
    size = int.from_bytes(reader.take(first & 7), "big")
    return inflate(reader.rest(), size)
