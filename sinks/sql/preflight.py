"""Checks of a database without changes: tables to create, and problems."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa

from headwater.core_log.foundation.errors import Diagnostic, HeadwaterError
from headwater.core_log.model.log import first_generation, generation_name, generation_number
from headwater.core_log.model.table_schema import TableSchema
from headwater.sinks.sql.failures import is_of_driver, ours, translate_errors

if TYPE_CHECKING:
    from headwater.sinks.sql.target import SqlTarget

MAY_CREATE = {
    "postgresql": "SELECT has_schema_privilege(current_schema(), 'CREATE')",
}
"""Dialect to a query whose result must be true."""


def plan(target: "SqlTarget", schemas: Sequence[TableSchema]) -> list[str]:
    """Yields the statements that `schemas` would need now, and notes on tables without a key."""
    if _is_missing_file(target):
        return _plan_in_memory(target, schemas)
    found: list[str] = []
    with translate_errors(target.dialect):
        try:
            for schema in schemas:
                fed = target.fed_by(target.tables.live(schema.table))
                next_topics = [
                    generation_name(first_generation(each), generation_number(each) + 1)
                    for each in fed
                ]
                shaping = target.shaping(schema, next_topics)
                if shaping.is_of_key:
                    found.append(f"-- after `run --migrate` has given {schema.table} its new key:")
                found += [f"{each};" for each in (*shaping.statements, *shaping.drops)]
                found += _remarks(schema)
        finally:
            target.connect().rollback()
    return found


def examine(target: "SqlTarget") -> list[Diagnostic]:
    """Checks whether the database answers and lets us create tables."""
    if _is_missing_file(target):
        directory = Path(str(target.engine.url.database)).parent
        if directory.is_dir():
            return []
        return [
            Diagnostic("the directory of the database file is missing", f"mkdir -p {directory}")
        ]
    try:
        connection = target.connect()
        question = MAY_CREATE.get(target.dialect.name)
        is_allowed = question is None or connection.execute(sa.text(question)).scalar()
        connection.rollback()
    except HeadwaterError as error:
        return [_finding(error)]
    except Exception as error:
        if not is_of_driver(error):
            raise
        reason = ours(target.dialect, error)
        return [_finding(reason) if isinstance(reason, HeadwaterError) else _unclear(reason)]
    if is_allowed:
        return []
    return [
        Diagnostic(
            "the role must not create tables in its schema",
            f"GRANT USAGE, CREATE ON SCHEMA public TO {target.engine.url.username};",
        )
    ]


def _finding(error: HeadwaterError) -> Diagnostic:
    return Diagnostic(error.statement, error.hint or "correct `url` of the sink")


def _unclear(error: Exception) -> Diagnostic:
    return Diagnostic(f"the database is busy: {error}", "try again", is_fatal=False)


def _remarks(schema: TableSchema) -> list[str]:
    if schema.key:
        return []
    return [f"-- {schema.table} has no key: every change is appended as a row of its own"]


def _is_missing_file(target: "SqlTarget") -> bool:
    url = target.engine.url
    if url.get_backend_name() != "sqlite" or not url.database or url.database == ":memory:":
        return False
    return not Path(url.database).exists()


def _plan_in_memory(target: "SqlTarget", schemas: Sequence[TableSchema]) -> list[str]:
    """Plans in memory, so that a missing database file is not created."""
    engine = sa.create_engine("sqlite://")
    with engine.connect() as connection:
        found: list[str] = []
        for schema in schemas:
            shaping = target.tables.plan_layout(
                connection, schema, next_generation=1, may_drop=False
            )
            found += [f"{each};" for each in shaping.statements] + _remarks(schema)
    engine.dispose()
    return found
