"""Deleted rows of a table whose copy takes its place."""

import logging

from core_log.table_schema import TableId

logger = logging.getLogger(__name__)


def warn_of_other_key(table: TableId) -> None:
    logger.warning(
        "deleted rows of %s stay in its old table: they do not have the columns of the new key",
        table,
    )
