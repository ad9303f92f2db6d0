"""The SELECT of a chunk: rows after a key, in the order of the key."""

import re
from collections.abc import Sequence

from headwater.connectors.mysql.server.catalog import MysqlTable, identifier, text_literal
from headwater.connectors.mysql.types.column_definition import ColumnDefinition
from headwater.connectors.mysql.types.column_plan import inet6_text
from headwater.core_log.foundation.errors import DecodeError

NUMBER = re.compile(rb"-?\d+(\.\d+)?(e[-+]?\d+)?", re.IGNORECASE)
NUMBERS = {"tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "float", "double",
           "year"}  # fmt: skip
TEXTS = {"char", "varchar", "tinytext", "text", "mediumtext", "longtext"}
BYTES = {"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"}
BY_NUMBER = {"bit", "enum", "set"}
"""Types that are ordered by a number, which is compared."""


def chunk_query(
    table: MysqlTable,
    after: Sequence[bytes] | None,
    upto: Sequence[bytes] | None = None,
    *,
    rows: int,
) -> str:
    """Returns the SELECT; `after` and `upto` have the key's cells of the row before the first, and
    of the last one. Without `upto` it has so many rows."""
    asked = ", ".join(plan.asked.format(identifier(plan.column.name)) for plan in table.plans)
    name = f"{identifier(table.table.namespace)}.{identifier(table.table.name)}"
    where, order = _range(table, after, upto)
    limit = f" LIMIT {rows}" if upto is None else ""
    return f"SELECT {asked} FROM {name}{where} ORDER BY {order}{limit}"


def bound_query(table: MysqlTable, after: Sequence[bytes] | None, *, rows: int) -> str:
    """Returns the SELECT of the key of the last row of a chunk, of which there may be none."""
    plans = [plan for column in table.schema.key for plan in table.plans
             if plan.column.name == column]  # fmt: skip
    asked = ", ".join(plan.asked.format(identifier(plan.column.name)) for plan in plans)
    name = f"{identifier(table.table.namespace)}.{identifier(table.table.name)}"
    where, order = _range(table, after, None)
    return f"SELECT {asked} FROM {name}{where} ORDER BY {order} LIMIT 1 OFFSET {rows - 1}"


def _range(
    table: MysqlTable, after: Sequence[bytes] | None, upto: Sequence[bytes] | None
) -> tuple[str, str]:
    """Returns the condition, and the columns to order by."""
    key = [_definition(table, column) for column in table.schema.key]
    bounds = [
        _beyond(key, cells, sign)
        for cells, sign in ((after, ">"), (upto, "<"))
        if cells is not None
    ]
    where = f" WHERE {' AND '.join(bounds)}" if bounds else ""
    return where, ", ".join(map(_ordered, key))


def whole_query(table: MysqlTable) -> str:
    asked = ", ".join(plan.asked.format(identifier(plan.column.name)) for plan in table.plans)
    name = f"{identifier(table.table.namespace)}.{identifier(table.table.name)}"
    return f"SELECT {asked} FROM {name}"


def key_cells(table: MysqlTable, row: Sequence[bytes | None]) -> tuple[bytes, ...]:
    names = table.schema.names
    cells = [row[names.index(column)] for column in table.schema.key]
    return tuple(b"" if cell is None else cell for cell in cells)


def _definition(table: MysqlTable, column: str) -> ColumnDefinition:
    return next(each for each in table.definitions if each.name == column)


def _ordered(definition: ColumnDefinition) -> str:
    name = identifier(definition.name)
    return f"CAST({name} AS UNSIGNED)" if definition.data_type in BY_NUMBER else name


def _beyond(key: Sequence[ColumnDefinition], cells: Sequence[bytes], sign: str) -> str:
    """Returns the comparison of rows, written out: older servers use no index for the short form.
    The row itself is among those up to it, and not among those after it."""
    if len(cells) != len(key):
        raise DecodeError("the progress of a snapshot has another key than its table")
    columns, literals = list(map(_ordered, key)), list(map(_literal, key, cells))
    last = len(key) - 1
    parts = []
    for at in range(len(key)):
        same = [f"{columns[before]} = {literals[before]}" for before in range(at)]
        compare = "<=" if at == last and sign == "<" else sign
        parts.append(" AND ".join([*same, f"{columns[at]} {compare} {literals[at]}"]))
    first = f"{columns[0]} {sign}= {literals[0]} AND " if last else ""
    return f"{first}({' OR '.join(f'({part})' for part in parts)})"


def _literal(definition: ColumnDefinition, cell: bytes) -> str:
    kind = definition.data_type
    if kind in NUMBERS:
        if not NUMBER.fullmatch(cell):
            raise DecodeError("a cell of a key is no number")
        return cell.decode()
    if kind == "bit":
        return str(int.from_bytes(cell, "big"))
    if kind in ("enum", "set"):
        return str(_label_number(definition, cell))
    if kind in TEXTS:
        return f"_{definition.charset} X'{cell.hex()}'"
    if kind in BYTES:
        return f"X'{cell.hex()}'"
    if kind == "inet6":
        return text_literal(inet6_text(cell))
    return text_literal(cell.decode("ascii"))


def _label_number(definition: ColumnDefinition, cell: bytes) -> int:
    from headwater.connectors.mysql.types.charsets import text_decoder

    text = text_decoder(definition.charset, column=definition.name)(cell)
    if definition.data_type == "enum":
        return definition.labels.index(text) + 1 if text in definition.labels else 0
    chosen = set(filter(None, text.split(",")))
    return sum(1 << at for at, label in enumerate(definition.labels) if label in chosen)
