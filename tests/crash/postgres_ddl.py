"""Random DDL of PostgreSQL."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import Any

import psycopg

from tests.crash.captured_server import CapturedServer
from tests.crash.ddl_statements import (
    BOUNDS,
    CHANGES,
    COLUMNS,
    FIRST_COLUMNS,
    IN_PLACE,
    KEYS,
    Shape,
    change_of_rows,
    triggers_of,
    unlog,
)

CHANGED = "SELECT at::text, letter, id, v FROM audit WHERE of = %s AND number > %s ORDER BY number"
KEY = (
    "SELECT attname::text FROM pg_index JOIN pg_attribute ON attrelid = indrelid"
    " AND attnum = ANY (indkey) WHERE indisprimary AND indrelid = to_regclass(%s)"
)
REFUSED = (
    psycopg.ProgrammingError,
    psycopg.DataError,
    psycopg.IntegrityError,
    psycopg.NotSupportedError,
    psycopg.errors.ObjectNotInPrerequisiteState,
    psycopg.errors.ObjectInUse,
)
AUDIT = (
    "CREATE TYPE mood AS ENUM ('sad', 'fine', 'great')",
    "CREATE SEQUENCE versions",
    "CREATE TABLE audit (number bigserial PRIMARY KEY, at xid DEFAULT pg_current_xact_id()::xid,"
    " of text, letter text NOT NULL, id int, v bigint)",
    "CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
    " IF TG_OP = 'TRUNCATE' THEN INSERT INTO audit (of, letter) VALUES (TG_ARGV[0], 't');"
    " RETURN NULL; END IF;"
    " IF TG_OP = 'DELETE' OR (TG_OP = 'UPDATE' AND OLD.id <> NEW.id) THEN"
    " INSERT INTO audit (of, letter, id, v) VALUES (TG_ARGV[0], 'd', OLD.id, OLD.v); END IF;"
    " IF TG_OP <> 'DELETE' THEN INSERT INTO audit (of, letter, id, v) VALUES (TG_ARGV[0],"
    " CASE WHEN TG_OP = 'INSERT' OR OLD.id <> NEW.id THEN 'c' ELSE 'u' END, NEW.id, NEW.v);"
    " END IF; RETURN NULL; END $$",
)
ADDED = ", ".join(FIRST_COLUMNS)
TABLES = {
    "plain": [f"CREATE TABLE plain (id int PRIMARY KEY, v bigint, {ADDED})"],
    "keyed": [
        f"CREATE TABLE keyed (id int PRIMARY KEY, v bigint, k int NOT NULL DEFAULT 1, {ADDED})"
    ],
    "parts": [
        f"CREATE TABLE parts (id int PRIMARY KEY, v bigint, {ADDED}) PARTITION BY RANGE (id)",
        *(
            f"CREATE TABLE parts_p{lower} PARTITION OF parts FOR VALUES FROM ({lower}) TO ({upper})"
            for lower, upper in pairwise(BOUNDS)
        ),
    ],
}


def statements_of(tables: Sequence[str]) -> list[str]:
    """What makes them, with their first rows and triggers."""
    made = [*AUDIT]
    for name in tables:
        made += TABLES[name]
        made += [
            f"INSERT INTO {name} (id, v, a, b) SELECT i, nextval('versions'), 'a' || i, i"
            f" FROM generate_series(0, {KEYS - 1}) i WHERE i % 5 <> 0",
            *triggers_of(name),
        ]
    return made


@dataclass(frozen=True)
class PostgresDdl:
    server: CapturedServer
    tables: Sequence[str] = tuple(TABLES)
    changes: Any = field(default_factory=lambda: CHANGES)
    in_place: Any = IN_PLACE

    def made(self) -> Sequence[str]:
        return statements_of(list(TABLES))

    def publish(self, database: str, pipeline: str) -> None:
        self.server.execute(
            database,
            f"CREATE PUBLICATION headwater_{pipeline} FOR TABLES IN SCHEMA public"
            " WITH (publish_via_partition_root = true)",
        )

    def unlog(self, random: Random, shape: Any) -> Sequence[str]:
        return unlog(random, shape)

    def shape_of(self, connection: psycopg.Connection, table: str, *, keeps_types: bool) -> Shape:
        return Shape.of(connection, table, keeps_types=keeps_types)

    def change_of_rows(self, random: Random, shape: Shape) -> str:
        return change_of_rows(random, shape)

    def is_alone(self, statements: str) -> bool:
        words = ("VACUUM", "CONCURRENTLY", "ADD VALUE", "UNLOGGED")
        return any(each in statements for each in words)

    def execute(self, connection: psycopg.Connection, statements: str) -> None:
        connection.execute(statements.encode())

    def is_locked(self, error: Exception) -> bool:
        return isinstance(error, psycopg.errors.LockNotAvailable)

    def is_refused(self, error: Exception) -> bool:
        return isinstance(error, REFUSED)

    def columns_of(self, database: str, table: str) -> dict[str, str]:
        return dict(self.server.execute(database, COLUMNS, table))

    def key_of(self, database: str, table: str) -> list[str]:
        return [name for name, *_ in self.server.execute(database, KEY, table)]

    def audit_of(self, database: str, table: str, since: int) -> list[tuple[str, str, int, int]]:
        return self.server.execute(database, CHANGED, table, since)
