"""The definition of a column, as far as the binary log alone proves it."""

from collections.abc import Mapping
from typing import Any

from headwater.connectors.mysql.binlog import table_map as wire
from headwater.connectors.mysql.binlog.table_map import WireColumn
from headwater.connectors.mysql.types import charsets
from headwater.connectors.mysql.types.column_definition import (
    BINARY,
    COMPRESSED,
    FIXED,
    INTEGER_TYPES,
    TEXT_LENGTHS,
    TIMES,
    ColumnDefinition,
)

INTEGERS = {kind: name for name, kind in INTEGER_TYPES.items()}
MOMENTS = {kind: name for name, kind in TIMES.items()}
PLAIN = {wire.FLOAT: "float", wire.DOUBLE: "double", wire.YEAR: "year", wire.DATE: "date",
         wire.JSON: "json", wire.VECTOR: "vector"}  # fmt: skip
TEXTS = {size: name for name, size in TEXT_LENGTHS.items() if "text" in name}
BLOBS = {size: name for name, size in TEXT_LENGTHS.items() if "blob" in name}
VECTOR_BYTES = 4
"""Of each number of a vector, which MariaDB logs as bytes."""


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
    if column.labels is None or not charset or not charsets.knows(charset):
        return None
    decode = charsets.text_decoder(charset, column=column.name or "")
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
