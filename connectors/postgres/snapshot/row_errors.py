"""Errors of the server that are about rows of one table."""

from typing import TypeGuard

from headwater.core_log.foundation.errors import (
    HeadwaterError,
    SourceRejected,
    SourceUnavailable,
)

CHANGED = {"42P01", "42703", "3F000"}
"""The table, column or schema no longer exists: the next run looks again."""


def is_of_rows(error: HeadwaterError) -> TypeGuard[SourceRejected]:
    """Whether the server refused to read rows of one table, which says nothing of others."""
    state = error.facts.get("sqlstate")
    is_of_table = isinstance(error, SourceRejected) and "table" in error.facts
    return is_of_table and state is not None and state not in CHANGED


def broken_off(error: SourceRejected) -> SourceUnavailable:
    """Returns the error for a table of which rows were emitted, without a position, before one that
    cannot be read. The next start leaves the table out, which reads it beside the stream."""
    return SourceUnavailable(
        "a table cannot be read to its end: it is left out from the next start on",
        table=error.facts["table"],
        why=error.statement,
    )
