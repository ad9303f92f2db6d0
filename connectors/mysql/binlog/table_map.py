"""TABLE_MAP: the columns of a table as the rows after it have them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from headwater.connectors.mysql.binlog.byte_reader import ByteReader
from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.model.table_schema import TableId

TINY, SHORT, LONG, FLOAT, DOUBLE, NULL = 1, 2, 3, 4, 5, 6
TIMESTAMP, LONGLONG, INT24, DATE, TIME, DATETIME, YEAR, NEWDATE = 7, 8, 9, 10, 11, 12, 13, 14
VARCHAR, BIT, TIMESTAMP2, DATETIME2, TIME2 = 15, 16, 17, 18, 19
BLOB_COMPRESSED, VARCHAR_COMPRESSED = 140, 141
VECTOR, JSON, NEWDECIMAL, ENUM, SET = 242, 245, 246, 247, 248
TINY_BLOB, MEDIUM_BLOB, LONG_BLOB, BLOB, VAR_STRING, STRING, GEOMETRY = (
    249, 250, 251, 252, 253, 254, 255,
)  # fmt: skip

META_1 = {FLOAT, DOUBLE, BLOB, GEOMETRY, JSON, TIMESTAMP2, DATETIME2, TIME2, VECTOR,
          BLOB_COMPRESSED}  # fmt: skip
META_2_LITTLE = {VARCHAR, BIT, VARCHAR_COMPRESSED}
META_2_BIG = {NEWDECIMAL, STRING}
NUMERIC = {TINY, SHORT, INT24, LONG, LONGLONG, FLOAT, DOUBLE, NEWDECIMAL}
POINT = 1
"""The number of this kind of geometry."""
COLUMNS_MAX = 4_096
"""Both servers' limit of columns per table."""

(
    SIGNEDNESS, DEFAULT_CHARSET, COLUMN_CHARSET, COLUMN_NAME, SET_LABELS, ENUM_LABELS,
    GEOMETRY_TYPE, SIMPLE_KEY, PREFIX_KEY, LABEL_DEFAULT_CHARSET, LABEL_COLUMN_CHARSET, VISIBILITY,
    DIMENSIONS,
) = range(1, 14)  # fmt: skip
DEFAULTS = {DEFAULT_CHARSET, LABEL_DEFAULT_CHARSET}
CHARSETS = {*DEFAULTS, COLUMN_CHARSET, LABEL_COLUMN_CHARSET}


class YearSign(Enum):
    """Whether a column of type YEAR has its bit among the signs of numbers."""

    LOGGED = auto()
    LEFT_OUT = auto()
    UNKNOWN = auto()


YEARS_LEFT_OUT_BELOW, YEARS_LOGGED_FROM = (8, 0, 21), (8, 0, 29)
"""Versions of MySQL: 8.0.15 and 8.0.20 have no such bit; 8.0.29 and 9.7.4 have it."""


def year_sign(version: str, *, is_mariadb: bool) -> YearSign:
    """Returns it by the version of the server that has written a file."""
    if is_mariadb:
        return YearSign.LOGGED
    found = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    numbers = tuple(map(int, found.groups())) if found else ()
    if numbers >= YEARS_LOGGED_FROM:
        return YearSign.LOGGED
    return YearSign.LEFT_OUT if numbers and numbers < YEARS_LEFT_OUT_BELOW else YearSign.UNKNOWN


@dataclass(frozen=True, slots=True)
class WireColumn:
    """A column as the log describes it."""

    type: int
    meta: int
    """Two bytes of STRING are the first times 256 plus the second."""
    is_nullable: bool
    name: str | None = None
    """Unknown unless the server logs full metadata, like the collation and the labels."""
    is_unsigned: bool = False
    collation: int | None = None
    labels: tuple[bytes, ...] | None = None
    geometry: int | None = field(default=None, repr=False)
    """The kind of shapes; 0 for any."""

    @property
    def real_type(self) -> int:
        """Returns ENUM or SET where STRING hides it."""
        if self.type == STRING and self.meta >> 8 in (ENUM, SET):
            return self.meta >> 8
        return self.type

    @property
    def length(self) -> int:
        """Returns the largest number of bytes of a STRING."""
        high = self.meta >> 8
        return ((high & 0x30 ^ 0x30) << 4) | (self.meta & 0xFF)


@dataclass(frozen=True, slots=True)
class TableMap:
    """The structure of a table, valid for the row events with its number."""

    number: int
    database: str
    name: str
    columns: tuple[WireColumn, ...]
    key: tuple[int, ...] | None = None
    """Places of the columns of the primary key; None if it has none, or it is not logged."""
    flags: int = 0
    has_unsure_signs: bool = field(default=False, repr=False)
    """Whether the log does not say which of its numbers are unsigned."""
    id: TableId = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "id", TableId(self.database, self.name))


@dataclass(slots=True)
class _Metadata:
    """The optional part, by column."""

    names: list[str] = field(default_factory=list)
    unsigned: set[int] = field(default_factory=set)
    collations: dict[int, int] = field(default_factory=dict)
    labels: dict[int, tuple[bytes, ...]] = field(default_factory=dict)
    geometries: dict[int, int] = field(default_factory=dict)
    key: tuple[int, ...] | None = None
    has_unsure_signs: bool = False


def parse_table_map(body: bytes, *, is_mariadb: bool, year: YearSign) -> TableMap:
    reader = ByteReader(body)
    number, flags = reader.uint(6), reader.uint(2)
    database = reader.text(reader.byte())
    reader.skip(1)
    name = reader.text(reader.byte())
    reader.skip(1)
    count = reader.lenenc()
    if count > COLUMNS_MAX:
        raise DecodeError("a table of the binary log has too many columns", columns=count)
    types = reader.take(count)
    metas = _metas(types, reader)
    nullable = reader.take((count + 7) // 8)
    found = _metadata(reader, types, metas, is_mariadb=is_mariadb, year=year)
    if found.names and len(found.names) != count:
        raise DecodeError("a table of the binary log has another number of names than of columns")
    columns = tuple(
        WireColumn(
            kind,
            meta,
            bool(nullable[place // 8] >> place % 8 & 1),
            found.names[place] if found.names else None,
            place in found.unsigned,
            found.collations.get(place),
            found.labels.get(place),
            found.geometries.get(place),
        )
        for place, (kind, meta) in enumerate(zip(types, metas, strict=True))
    )
    return TableMap(number, database, name, columns, found.key, flags, found.has_unsure_signs)


def _metas(types: bytes, reader: ByteReader) -> list[int]:
    part = _part(reader)
    found: list[int] = []
    for kind in types:
        if kind in META_1:
            found.append(part.byte())
        elif kind in META_2_LITTLE:
            found.append(part.uint(2))
        elif kind in META_2_BIG:
            found.append(int.from_bytes(part.take(2), "big"))
        else:
            found.append(0)
    return found


def _part(reader: ByteReader) -> ByteReader:
    """Returns the reader of a part that begins with its length."""
    start = reader.skip(reader.lenenc())
    return ByteReader(reader.data, start, reader.pos)


def _metadata(
    reader: ByteReader,
    types: Sequence[int],
    metas: Sequence[int],
    *,
    is_mariadb: bool,
    year: YearSign,
) -> _Metadata:
    columns = [WireColumn(*pair, False) for pair in zip(types, metas, strict=True)]
    kinds = [column.real_type for column in columns]
    found = _Metadata()
    while reader.left:
        kind = reader.byte()
        part = _part(reader)
        if kind == SIGNEDNESS:
            bits = part.rest()
            if year is YearSign.UNKNOWN and YEAR in kinds:
                found.has_unsure_signs = _depends_on_years(bits, kinds)
                year = YearSign.LEFT_OUT
            found.unsigned = _unsigned(bits, kinds, year)
        elif kind == COLUMN_NAME:
            while part.left:
                found.names.append(part.text(part.lenenc()))
        elif kind in CHARSETS:
            is_text = kind in (DEFAULT_CHARSET, COLUMN_CHARSET)
            places = [
                place
                for place, each in enumerate(kinds)
                if (_has_charset(each, is_mariadb) if is_text else each in (ENUM, SET))
            ]
            found.collations |= _collations(part, places, has_default=kind in DEFAULTS)
        elif kind in (SET_LABELS, ENUM_LABELS):
            places = _places_of(SET if kind == SET_LABELS else ENUM, kinds)
            found.labels |= {place: _labels(part) for place in places}
        elif kind == GEOMETRY_TYPE:
            found.geometries = {place: part.lenenc() for place in _places_of(GEOMETRY, kinds)}
        elif kind in (SIMPLE_KEY, PREFIX_KEY):
            found.key = _key(part, len(types), has_prefixes=kind == PREFIX_KEY)
    return found


def _places_of(kind: int, kinds: Sequence[int]) -> list[int]:
    return [place for place, each in enumerate(kinds) if each == kind]


def _unsigned(bits: bytes, kinds: Sequence[int], year: YearSign) -> set[int]:
    signed = NUMERIC | {YEAR} if year is YearSign.LOGGED else NUMERIC
    numbers = [place for place, each in enumerate(kinds) if each in signed]
    if len(bits) * 8 < len(numbers):
        raise DecodeError("a table of the binary log has too few signs of its numbers")
    return {place for at, place in enumerate(numbers) if bits[at // 8] >> (7 - at % 8) & 1}


def _depends_on_years(bits: bytes, kinds: Sequence[int]) -> bool:
    left_out = _unsigned(bits, kinds, YearSign.LEFT_OUT)
    try:
        logged = _unsigned(bits, kinds, YearSign.LOGGED)
    except DecodeError:  # too few bits for years as well
        return False
    return logged - set(_places_of(YEAR, kinds)) != left_out


def _collations(part: ByteReader, places: Sequence[int], *, has_default: bool) -> dict[int, int]:
    if not has_default:
        return {place: part.lenenc() for place in places}
    found = dict.fromkeys(places, part.lenenc())
    while part.left:
        place = _at(places, part.lenenc())
        found[place] = part.lenenc()
    return found


def _key(part: ByteReader, count: int, *, has_prefixes: bool) -> tuple[int, ...]:
    key: list[int] = []
    while part.left:
        key.append(_at(range(count), part.lenenc()))
        if has_prefixes:
            part.lenenc()
    return tuple(key)


def _labels(part: ByteReader) -> tuple[bytes, ...]:
    count = part.lenenc()
    if count > part.left:
        raise DecodeError("a column of the binary log has more labels than bytes", labels=count)
    return tuple(part.take(part.lenenc()) for _ in range(count))


def _at(places: Sequence[int], at: int) -> int:
    if at >= len(places):
        raise DecodeError("a table of the binary log describes a column that it has not", column=at)
    return places[at]


def _has_charset(kind: int, is_mariadb: bool) -> bool:
    if kind in (VARCHAR, STRING, VAR_STRING, BLOB, TINY_BLOB, MEDIUM_BLOB, LONG_BLOB,
                BLOB_COMPRESSED, VARCHAR_COMPRESSED):  # fmt: skip
        return True
    return kind == (GEOMETRY if is_mariadb else VECTOR)
