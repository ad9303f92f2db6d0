"""How a transform fails: for single rows, which can be set aside, or for a table."""

from collections.abc import Mapping

from headwater.core_log.foundation.errors import (
    ConfigError,
    HeadwaterError,
    TransformFailed,
    TransformRejected,
)
from headwater.core_log.model.changes import TableChanges
from headwater.core_log.model.table_schema import TableSchema


def rejection(problem: str, changes: TableChanges, reasons: Mapping[int, str]) -> HeadwaterError:
    """The error for the rows at these places: by their offsets, where they have some."""
    if changes.log_partition is None or changes.log_offsets is None:
        return TransformFailed(
            problem,
            table=str(changes.schema.table),
            rows=sorted(reasons)[:20],
            why=min(reasons.items())[1],
        )
    return TransformRejected(
        problem,
        topic=changes.log_partition.topic,
        partition=changes.log_partition.partition,
        reasons={changes.log_offsets[row].as_py(): reason for row, reason in reasons.items()},
    )


def at_table(error: ConfigError, schema: TableSchema) -> ConfigError:
    """A mistake of the file as it is met at a table, which can then be stopped alone."""
    facts = {"table": str(schema.table)} | error.facts
    return ConfigError(error.problem, hint=error.hint, **facts)
