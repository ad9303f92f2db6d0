"""One key of a table by its name, and what became of it in words that JSON holds."""

from typing import Any

from headwater.core_log.foundation.errors import ConfigError
from headwater.core_log.model.log import Log
from headwater.pipelines.dead_letters.row_display import to_json_value
from headwater.pipelines.journal.inventory import schemas_of
from headwater.pipelines.journal.schemas import StoredSchema
from headwater.pipelines.terminal.confirmation import find_table
from headwater.pipelines.terminal.times import time_text
from headwater.pipelines.time_travel.history.key_history import KeyChange


async def stored_schema(log: Log, pipeline: str, table: str) -> StoredSchema:
    """The newest schema of a table by the name that the source gives it."""
    if not table:
        raise ConfigError("a key belongs to a table", hint=f"name it: {pipeline}/TABLE")
    known = {str(each.schema.table): each for each in (await schemas_of(log, pipeline)).values()}
    stored = known[find_table(table, known, pipeline=pipeline)]
    if not stored.schema.key:
        raise ConfigError(
            "the table has no key, so that no row of it can be named",
            table=str(stored.schema.table),
        )
    return stored


def change_facts(change: KeyChange) -> dict[str, Any]:
    """For programs."""
    return {
        "partition": change.partition,
        "offset": change.offset,
        "op": change.operation,
        "committed": time_text(change.committed_ms),
        "appended": time_text(change.appended_ms),
        "at": change.at,
        "row": None if change.row is None else to_json_value(change.row),
    }
