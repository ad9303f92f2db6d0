"""Names the differences between two forms of a table, for `schema_changes`."""

from headwater.connectors.mysql.server.catalog import MysqlTable
from headwater.connectors.mysql.types.column_definition import ColumnDefinition
from headwater.connectors.schema_policies import (
    ADD_COLUMN,
    CHANGE_KEY,
    CHANGE_ROWS,
    CHANGE_TYPE,
    DROP_COLUMN,
    WIDEN_TYPE,
)

INTEGER_BITS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
LENGTHS = (
    {"char", "varchar", "tinytext", "text", "mediumtext", "longtext"},
    {"varbinary", "tinyblob", "blob", "mediumblob", "longblob"},
)
"""Types of which the longer one holds the values of the shorter one."""
FRACTIONS = {"time", "datetime", "timestamp"}


def kinds_of_change(before: MysqlTable, now: MysqlTable) -> tuple[str, ...]:
    """Returns the kinds; without any difference, rows may have changed."""
    old = {each.name: each for each in before.definitions}
    new = {each.name: each for each in now.definitions}
    kinds = []
    if new.keys() - old.keys():
        kinds.append(ADD_COLUMN)
    if old.keys() - new.keys():
        kinds.append(DROP_COLUMN)
    both = [(old[name], new[name]) for name in sorted(old.keys() & new.keys())]
    changed = [(was, becomes) for was, becomes in both if was.column_type != becomes.column_type]
    kinds += sorted({WIDEN_TYPE if is_wider(*each) else CHANGE_TYPE for each in changed})
    if before.schema.key != now.schema.key:
        kinds.append(CHANGE_KEY)
    return tuple(kinds or [CHANGE_ROWS])


def is_wider(before: ColumnDefinition, now: ColumnDefinition) -> bool:
    """Returns whether each value of before fits into the new type, as far as types tell."""
    old, new = before.data_type, now.data_type
    if old in INTEGER_BITS and new in INTEGER_BITS:
        return _highest_bit(now) >= _highest_bit(before) and (
            before.is_unsigned or not now.is_unsigned
        )
    if old == new == "decimal":
        digits = now.precision - now.scale >= before.precision - before.scale
        return digits and now.scale >= before.scale and (before.is_unsigned or not now.is_unsigned)
    if old == new == "enum":
        return now.labels[: len(before.labels)] == before.labels
    if old == new and old in FRACTIONS:
        return now.fraction >= before.fraction
    is_longer = any(old in kind and new in kind - {"char"} for kind in LENGTHS)
    return is_longer and now.charset == before.charset and now.octets >= before.octets


def _highest_bit(column: ColumnDefinition) -> int:
    return INTEGER_BITS[column.data_type] - (not column.is_unsigned)
