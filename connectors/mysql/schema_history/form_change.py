"""Names the differences between two forms of a table, for `schema_changes`."""

from headwater.connectors.mysql.server.catalog import MysqlTable
from headwater.connectors.schema_policies import (
    ADD_COLUMN,
    CHANGE_KEY,
    CHANGE_ROWS,
    CHANGE_TYPE,
    DROP_COLUMN,
)


def kinds_of_change(before: MysqlTable, now: MysqlTable) -> tuple[str, ...]:
    """Returns the kinds; without any difference, rows may have changed."""
    old = {each.name: each.column_type for each in before.definitions}
    new = {each.name: each.column_type for each in now.definitions}
    kinds = []
    if new.keys() - old.keys():
        kinds.append(ADD_COLUMN)
    if old.keys() - new.keys():
        kinds.append(DROP_COLUMN)
    if any(new[name] != old[name] for name in old.keys() & new.keys()):
        kinds.append(CHANGE_TYPE)
    if before.schema.key != now.schema.key:
        kinds.append(CHANGE_KEY)
    return tuple(kinds or [CHANGE_ROWS])
