"""A column as the catalogue declares it, and the form in which the binary log must have it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headwater.connectors.mysql.binlog import table_map as wire
from headwater.connectors.mysql.binlog.table_map import TableMap, WireColumn
from headwater.core_log.foundation.errors import SourceRejected

INTEGER_TYPES = {
    "tinyint": wire.TINY, "smallint": wire.SHORT, "mediumint": wire.INT24, "int": wire.LONG,
    "bigint": wire.LONGLONG,
}  # fmt: skip
TEXT_LENGTHS = {
    "tinytext": 1, "text": 2, "mediumtext": 3, "longtext": 4,
    "tinyblob": 1, "blob": 2, "mediumblob": 3, "longblob": 4,
}  # fmt: skip
GEOMETRIES = {
    "geometry", "point", "linestring", "polygon", "multipoint", "multilinestring",
    "multipolygon", "geometrycollection", "geomcollection",
}  # fmt: skip
FIXED = {"uuid": 16, "inet6": 16, "inet4": 4}
PLAIN_TYPES = {
    "float": wire.FLOAT, "double": wire.DOUBLE, "year": wire.YEAR, "date": wire.DATE,
    "json": wire.JSON, **dict.fromkeys(GEOMETRIES, wire.GEOMETRY),
}  # fmt: skip
BINARY = "binary"
"""The character set that the log gives to bytes."""
COMPRESSED = "/*M!100301 COMPRESSED*/"
TIMES = {"time": wire.TIME2, "datetime": wire.DATETIME2, "timestamp": wire.TIMESTAMP2}

INTEGERS = {kind: name for name, kind in INTEGER_TYPES.items()}
MOMENTS = {kind: name for name, kind in TIMES.items()}
PLAIN = {wire.FLOAT: "float", wire.DOUBLE: "double", wire.YEAR: "year", wire.DATE: "date",
         wire.JSON: "json", wire.VECTOR: "vector"}  # fmt: skip
TEXTS = {size: name for name, size in TEXT_LENGTHS.items() if "text" in name}
BLOBS = {size: name for name, size in TEXT_LENGTHS.items() if "blob" in name}
VECTOR_BYTES = 4
"""Bytes of each number of a vector, which MariaDB logs as bytes."""

CODECS = {
    "utf8mb4": "utf-8",
    "utf8mb3": "utf-8",
    "utf8": "utf-8",
    "ascii": "ascii",
    "latin2": "iso8859_2",
    "latin5": "iso8859_9",
    "latin7": "iso8859_13",
    "greek": "iso8859_7",
    "hebrew": "iso8859_8",
    "cp1250": "cp1250",
    "cp1251": "cp1251",
    "cp1256": "cp1256",
    "cp1257": "cp1257",
    "cp850": "cp850",
    "cp852": "cp852",
    "cp866": "cp866",
    "koi8r": "koi8_r",
    "koi8u": "koi8_u",
    "gbk": "gbk",
    "gb2312": "gb2312",
    "gb18030": "gb18030",
    "big5": "big5",
    "sjis": "cp932",
    "cp932": "cp932",
    "ujis": "euc_jp",
    "euckr": "euc_kr",
    "utf16": "utf-16-be",
    "utf16le": "utf-16-le",
    "utf32": "utf-32-be",
    "ucs2": "utf-16-be",
}
"""latin1 is cp1252, but every byte means something."""
LATIN1 = "".join(
    bytes([code]).decode("cp1252", errors="replace").replace("\ufffd", chr(code))
    for code in range(256)
)
Decode = Callable[[bytes], str]


@dataclass(frozen=True, slots=True)
class ColumnDefinition:
    """One row of the catalogue."""

    name: str
    data_type: str
    """`int`, `varchar`; without sizes."""
    column_type: str
    """The whole declaration: `int(10) unsigned`."""
    is_nullable: bool
    is_key: bool = False
    charset: str = ""
    octets: int = 0
    """Length limit in bytes, of texts and bytes."""
    precision: int = 0
    scale: int = 0
    fraction: int = 0
    """Digits of fractions of a second."""
    labels: tuple[str, ...] = ()
    is_generated: bool = False

    @property
    def is_unsigned(self) -> bool:
        return " unsigned" in self.column_type

    @property
    def is_compressed(self) -> bool:
        return COMPRESSED.removesuffix("*/") in self.column_type

    @property
    def problem(self) -> str:
        """Returns why the column cannot be captured; '' if it can."""
        known = {*INTEGER_TYPES, *TEXT_LENGTHS, *PLAIN_TYPES, *FIXED, *TIMES, "decimal", "char",
                 "varchar", "binary", "varbinary", "bit", "enum", "set", "vector"}  # fmt: skip
        if self.data_type not in known:
            return f"column {self.name} has the unsupported type {self.data_type}"
        if self.charset and not _is_known(self.charset):
            return f"column {self.name} has the unsupported character set {self.charset}"
        return ""

    def to_json(self) -> list[Any]:
        return [self.name, self.data_type, self.column_type, self.is_nullable, self.is_key,
                self.charset, self.octets, self.precision, self.scale, self.fraction,
                list(self.labels), self.is_generated]  # fmt: skip

    @classmethod
    def from_json(cls, parts: Sequence[Any]) -> "ColumnDefinition":
        values = dict(zip(cls.__slots__, parts, strict=True))  # in the order of `to_json`
        return cls(**values | {"labels": tuple(values["labels"])})

    def is_logged_as(self, column: WireColumn, charsets_by_collation: Mapping[int, str]) -> bool:
        """Whether the log's column is this one, with this very type."""
        if column.name != self.name or column.is_nullable != self.is_nullable:
            return False
        if self._has_other_charset(column, charsets_by_collation):
            return False
        name, kind, meta = self.data_type, column.real_type, column.meta
        if name in INTEGER_TYPES:
            return (kind, column.is_unsigned) == (INTEGER_TYPES[name], self.is_unsigned)
        if name in ("enum", "set"):
            return self._has_labels(column)
        if name in ("char", "binary", *FIXED):
            return kind == wire.STRING and column.length == FIXED.get(name, self.octets)
        if name == "bit":
            return kind == wire.BIT and (meta >> 8) * 8 + (meta & 0xFF) == self.precision
        if name in GEOMETRIES and column.geometry is not None:
            return (name == "point") == (column.geometry == wire.POINT)
        if name in PLAIN_TYPES:
            return kind == PLAIN_TYPES[name]
        if name == "vector":
            return kind == wire.VECTOR or (kind == wire.VARCHAR and not meta % 4)
        return (kind, meta) in self._kinds_and_metas()

    def _has_other_charset(
        self, column: WireColumn, charsets_by_collation: Mapping[int, str]
    ) -> bool:
        if column.collation is None:
            return False
        return charsets_by_collation.get(column.collation) != (self.charset or BINARY)

    def _kinds_and_metas(self) -> set[tuple[int, int]]:
        """Returns the types and metadata by which the log may have it; a compressed column has no
        declared length."""
        name = self.data_type
        if name in TIMES:
            return {(TIMES[name], self.fraction)}
        if name in TEXT_LENGTHS:
            kind = wire.BLOB_COMPRESSED if self.is_compressed else wire.BLOB
            return {(kind, TEXT_LENGTHS[name])}
        if name == "decimal":
            return {(wire.NEWDECIMAL, self.precision << 8 | self.scale)}
        if self.is_compressed:
            return {(wire.VARCHAR_COMPRESSED, self.octets + more) for more in (0, 1)}
        return {(wire.VARCHAR, self.octets)}

    def _has_labels(self, column: WireColumn) -> bool:
        if column.real_type != (wire.ENUM if self.data_type == "enum" else wire.SET):
            return False
        decode = text_decoder(self.charset, column=self.name)
        found = tuple(decode(label) for label in column.labels or ())
        return found == self.labels


def is_logged_as(
    columns: Sequence[ColumnDefinition],
    key: Sequence[str],
    table: TableMap,
    charsets_by_collation: Mapping[int, str],
) -> bool:
    """Whether the log has the table in this form: the same columns, and the same primary key."""
    if len(columns) != len(table.columns):
        return False
    pairs = zip(columns, table.columns, strict=True)
    if not all(own.is_logged_as(each, charsets_by_collation) for own, each in pairs):
        return False
    names = tuple(columns[place].name for place in table.key or ())
    return names == tuple(key)


def definition_from_log(
    column: WireColumn, charset_names: Mapping[int, str], *, is_mariadb: bool
) -> ColumnDefinition | None:
    """Returns None if the log does not prove the type; it never tells generated columns."""
    charset = "" if column.collation is None else charset_names.get(column.collation)
    if column.name is None or charset is None:
        return None
    if column.real_type in (wire.ENUM, wire.SET):
        return _labelled(column, charset)
    found = _number(column) or _other(column)
    if found is None and charset:  # it tells texts from bytes
        return _text(column, charset, is_mariadb=is_mariadb)
    return found


def _defined(column: WireColumn, data_type: str, rest: str = "", **given: Any) -> ColumnDefinition:
    name = column.name or ""
    return ColumnDefinition(name, data_type, data_type + rest, column.is_nullable, **given)


def _number(column: WireColumn) -> ColumnDefinition | None:
    kind, meta = column.real_type, column.meta
    sign = " unsigned" if column.is_unsigned else ""
    if kind in INTEGERS:
        return _defined(column, INTEGERS[kind], sign)
    if kind == wire.NEWDECIMAL:
        digits, scale = meta >> 8, meta & 0xFF
        rest = f"({digits},{scale}){sign}"
        return _defined(column, "decimal", rest, precision=digits, scale=scale)
    if kind == wire.BIT:
        bits = (meta >> 8) * 8 + (meta & 0xFF)
        return _defined(column, "bit", f"({bits})", precision=bits)
    return None


def _other(column: WireColumn) -> ColumnDefinition | None:
    kind, meta = column.real_type, column.meta
    if kind in PLAIN:
        return _defined(column, PLAIN[kind])
    if kind in MOMENTS:
        return _defined(column, MOMENTS[kind], f"({meta})", fraction=meta)
    if kind == wire.GEOMETRY and column.geometry is not None:
        return _defined(column, "point" if column.geometry == wire.POINT else "geometry")
    return None


def _labelled(column: WireColumn, charset: str) -> ColumnDefinition | None:
    data_type = "enum" if column.real_type == wire.ENUM else "set"
    if column.labels is None or not charset or not _is_known(charset):
        return None
    decode = text_decoder(charset, column=column.name or "")
    labels = tuple(decode(each) for each in column.labels)
    quoted = ",".join("'" + each.replace("'", "''") + "'" for each in labels)
    return _defined(column, data_type, f"({quoted})", charset=charset, labels=labels)


def _text(column: WireColumn, charset: str, *, is_mariadb: bool) -> ColumnDefinition | None:
    kind, meta, is_bytes = column.real_type, column.meta, charset == BINARY
    more = f" {COMPRESSED}" if kind in (wire.BLOB_COMPRESSED, wire.VARCHAR_COMPRESSED) else ""
    if kind == wire.STRING:
        size, data_type = column.length, "binary" if is_bytes else "char"
        if is_mariadb and is_bytes and size in FIXED.values():
            return None  # it may be an address or a UUID
    elif kind in (wire.VARCHAR, wire.VARCHAR_COMPRESSED):
        size, data_type = meta - bool(more), "varbinary" if is_bytes else "varchar"
        if is_mariadb and is_bytes and not more and not size % VECTOR_BYTES:
            return None  # it may be a vector
    elif kind in (wire.BLOB, wire.BLOB_COMPRESSED) and meta in BLOBS:
        size, data_type = (1 << 8 * meta) - 1, (BLOBS if is_bytes else TEXTS)[meta]
    else:
        return None
    length = "" if kind in (wire.BLOB, wire.BLOB_COMPRESSED) else f"({size})"
    known = "" if is_bytes else charset
    return _defined(column, data_type, f"{length}{more}", charset=known, octets=size)


def _is_known(charset: str) -> bool:
    return charset == "latin1" or charset in CODECS


def text_decoder(charset: str, *, column: str) -> Decode:
    """Returns the decoder; it raises for bytes that are no text of the character set."""
    if charset == "latin1":
        return lambda data: data.decode("latin-1").translate(TRANSLATED)
    codec = CODECS[charset]

    def decode(data: bytes) -> str:
        try:
            return data.decode(codec)
        except UnicodeDecodeError:
            raise SourceRejected(
                "a text is not valid in the character set of its column",
                column=column,
                charset=charset,
                hint="correct the text, or convert the column to VARBINARY",
            ) from None

    return decode


TRANSLATED = {code: char for code, char in enumerate(LATIN1) if chr(code) != char}
