"""The database server that a pipeline captures: asked, killed and started again."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, closing, suppress
from dataclasses import dataclass
from typing import Any, Protocol

import psycopg
import pymysql

from scripts.embedded_mysql import EmbeddedMysql
from scripts.embedded_postgres import EmbeddedPostgres


class CapturedServer(Protocol):
    """Each test has a database of its own in it."""

    def address_of(self, database: str) -> str: ...

    def namespace_of(self, database: str) -> str:
        """The first part of the names of its tables."""
        ...

    def source_of(self, database: str) -> dict[str, Any]:
        """Keys of the pipeline's source, without `url` and `tables`."""
        ...

    def create(self, database: str, statements: Sequence[str]) -> None: ...
    def drop(self, database: str) -> None: ...

    def connect(self, database: str) -> AbstractContextManager[Any]:
        """A connection on which each statement commits by itself."""
        ...

    def is_failure(self, error: Exception) -> bool:
        """Whether the server has gone, or a lock was waited for in vain."""
        ...

    def execute(self, database: str, statement: str, *values: Any) -> list[Any]: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...
    def kill(self) -> None: ...


@dataclass(frozen=True, slots=True)
class PostgresServer:
    server: EmbeddedPostgres

    def address_of(self, database: str) -> str:
        return self.server.address_of(database)

    def namespace_of(self, database: str) -> str:
        return "public"

    def source_of(self, database: str) -> dict[str, Any]:
        snapshot = {"parallel": 2, "chunk_rows": 1_000}
        return {"type": "postgres", "heartbeat": "500ms", "snapshot": snapshot}

    def create(self, database: str, statements: Sequence[str]) -> None:
        self.execute("postgres", f"CREATE DATABASE {database}")
        for statement in statements:
            self.execute(database, statement)

    def drop(self, database: str) -> None:
        with (
            suppress(psycopg.OperationalError),  # it may be gone for good
            psycopg.connect(self.address_of("postgres"), autocommit=True) as connection,
        ):
            connection.execute(
                "SELECT pg_terminate_backend(active_pid, 10000) FROM pg_replication_slots"
                " WHERE active"
            )
            connection.execute(f"DROP DATABASE {database} WITH (FORCE)".encode())

    def connect(self, database: str) -> AbstractContextManager[psycopg.Connection]:
        options = "-c lock_timeout=200ms"
        return psycopg.connect(self.address_of(database), autocommit=True, options=options)

    def is_failure(self, error: Exception) -> bool:
        return isinstance(error, psycopg.OperationalError)

    def execute(self, database: str, statement: str, *values: Any) -> list[Any]:
        with psycopg.connect(self.address_of(database), autocommit=True) as connection:
            done = connection.execute(statement.encode(), values or None)
            return done.fetchall() if done.description is not None else []

    def start(self) -> None:
        self.server.start()

    def stop(self) -> None:
        self.server.stop("fast")

    def kill(self) -> None:
        self.server.kill()


@dataclass(frozen=True, slots=True)
class MysqlServer:
    server: EmbeddedMysql

    def address_of(self, database: str) -> str:
        return self.server.address_of("")

    def namespace_of(self, database: str) -> str:
        return database

    def source_of(self, database: str) -> dict[str, Any]:
        snapshot = {"parallel": 2, "chunk_rows": 300}
        return {"type": self.server.scheme, "heartbeat": "1s", "snapshot": snapshot}

    def create(self, database: str, statements: Sequence[str]) -> None:
        self.execute("", f"CREATE DATABASE {database} CHARACTER SET utf8mb4")
        for statement in statements:
            self.execute(database, statement)

    def drop(self, database: str) -> None:
        self.execute("", f"DROP DATABASE {database}")

    def connect(self, database: str) -> AbstractContextManager["pymysql.Connection[Any]"]:
        return closing(self.server.connect(database))

    def is_failure(self, error: Exception) -> bool:
        return isinstance(error, pymysql.OperationalError | pymysql.InterfaceError)

    def execute(self, database: str, statement: str, *values: Any) -> list[Any]:
        with self.connect(database) as connection, connection.cursor() as cursor:
            cursor.execute(statement, values or None)
            return list(cursor.fetchall())

    def start(self) -> None:
        self.server.start()

    def stop(self) -> None:
        self.server.stop()

    def kill(self) -> None:
        self.server.kill()
