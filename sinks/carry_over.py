"""Deleted rows of a table whose copy takes its place."""

import logging
from collections.abc import Collection

from headwater.core_log.model.table_schema import TableId

logger = logging.getLogger(__name__)


def warn_of_other_key(table: TableId) -> None:
    logger.warning(
        "deleted rows of %s stay in its old table: they do not have the columns of the new key, or"
        " not their types",
        table,
    )


def warn_of_other_types(table: TableId, columns: Collection[str]) -> None:
    if columns:
        logger.warning(
            "deleted rows of %s have null in columns of another type, and their values in the old"
            " table: %s",
            table,
            ", ".join(sorted(columns)),
        )
