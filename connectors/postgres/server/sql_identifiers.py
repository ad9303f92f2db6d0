"""Names of tables and columns, as SQL and for people."""

from collections.abc import Iterable, Sequence

from headwater.core_log.model.table_schema import TableId

SHOWN_MAX = 5


def quote(name: str) -> str:
    """An identifier, quoted in any case, so that case and keywords have no meaning."""
    return '"' + name.replace('"', '""') + '"'


def quoted_table(table: TableId) -> str:
    return f"{quote(table.namespace)}.{quote(table.name)}"


def table_list(tables: Iterable[TableId]) -> str:
    return ", ".join(map(quoted_table, sorted(tables)))


def member_list(tables: Iterable[TableId]) -> str:
    """Without the tables that inherit from them, which are tables of their own: the server would
    add these again, or drop them."""
    return ", ".join(f"ONLY {quoted_table(each)}" for each in sorted(tables))


def few(tables: Sequence[object]) -> str:
    """Their names, as far as anybody wants to read them."""
    shown = ", ".join(map(str, tables[:SHOWN_MAX]))
    return shown + (f" and {len(tables) - SHOWN_MAX} more" if len(tables) > SHOWN_MAX else "")
