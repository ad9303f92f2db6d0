"""Columns and indexes of a temporary table, which the catalogue lacks, from SHOW statements."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from headwater.connectors.mysql.server.catalog import definition_of
from headwater.connectors.mysql.server.connection import MysqlConnection, in_our_words
from headwater.connectors.mysql.types.column_definition import (
    BINARY,
    TEXT_LENGTHS,
    TIMES,
    ColumnDefinition,
)

WIDTHS = "SELECT character_set_name, maxlen FROM information_schema.character_sets"
TYPE = re.compile(r"(\w+)(?:\((\d+)(?:,(\d+))?\))?")


def shown_columns(connection: MysqlConnection, name: str) -> list[ColumnDefinition]:
    """Returns what the catalogue would say of the table; `name` is quoted."""
    with in_our_words("the columns of a copy cannot be read"):
        widths = {str(charset): int(width) for charset, width in connection.rows(WIDTHS)}
        rows = connection.rows(f"SHOW FULL COLUMNS FROM {name}")
    return [_definition(row, widths) for row in rows]


def shown_indexes(connection: MysqlConnection, name: str) -> dict[str, list[tuple[str, bool]]]:
    """Returns the columns of each unique index, and whether each may be null."""
    with in_our_words("the indexes of a copy cannot be read"):
        rows = connection.rows(f"SHOW INDEX FROM {name}")
    found: dict[str, list[tuple[str, bool]]] = {}
    for _, is_not_unique, index, _, column, _, _, _, _, nullable, *_ in rows:
        if not int(is_not_unique):
            found.setdefault(str(index), []).append((column, nullable == "YES"))
    return found


def _definition(row: Sequence[Any], widths: Mapping[str, int]) -> ColumnDefinition:
    name, column_type, collation, nullable, _, _, extra, *_ = row
    found = TYPE.match(column_type)
    assert found is not None, "a type begins with its name"
    kind = found[1].lower()
    size, scale = int(found[2] or 0), int(found[3] or 0)
    charset = str(collation or "").partition("_")[0]
    charset = "" if charset == BINARY else charset
    octets = size * widths.get(charset, 1)
    if kind in TEXT_LENGTHS:
        octets = 256 ** TEXT_LENGTHS[kind] - 1
    fraction = size if kind in TIMES else 0
    return definition_of(
        (name, kind, column_type, nullable, charset, octets, size, scale, fraction, extra)
    )
