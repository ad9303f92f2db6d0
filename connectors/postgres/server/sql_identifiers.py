"""Names of tables and columns in SQL and in messages."""

from collections.abc import Iterable, Sequence

from headwater.core_log.model.table_schema import TableId

SHOWN_MAX = 5


def quote(name: str) -> str:
    """Returns the identifier in quotes, so that case and keywords do not matter."""
    return '"' + name.replace('"', '""') + '"'


def quoted_table(table: TableId) -> str:
    return f"{quote(table.namespace)}.{quote(table.name)}"


def table_list(tables: Iterable[TableId]) -> str:
    return ", ".join(map(quoted_table, sorted(tables)))


def member_list(tables: Iterable[TableId]) -> str:
    """Returns the list with ONLY: the server would otherwise add or drop inheriting tables, which
    are listed separately."""
    return ", ".join(f"ONLY {quoted_table(each)}" for each in sorted(tables))


def few(tables: Sequence[object]) -> str:
    """Returns the first names and the number of the others."""
    shown = ", ".join(map(str, tables[:SHOWN_MAX]))
    return shown + (f" and {len(tables) - SHOWN_MAX} more" if len(tables) > SHOWN_MAX else "")
