"""Names of tables and columns in SQL and in messages."""

from collections.abc import Iterable

from headwater.core_log.model.table_schema import TableId


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
