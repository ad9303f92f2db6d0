"""A PostgreSQL and a MariaDB of the tests' own, on free ports, in temporary directories."""

import asyncio
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest
import sqlalchemy as sa

from scripts.embedded_postgres import (
    POLL_S,
    PostgresMissing,
    embedded_postgres,
    run_as_nobody,
    start_as_nobody,
    temporary_directory,
)
from scripts.free_port import free_port

INSTALL = "scripts/databases.sh installs it"
GUEST = "headwater_guest"
LOCK_TIMEOUT = "-c lock_timeout=2min"
"""A statement fails where it waits for a source that waits for the test: nobody else would."""


@contextmanager
def running_postgres() -> Iterator[str]:
    """The address of a server in which everybody may do everything."""
    try:
        with embedded_postgres(settings={"timezone": "Asia/Tokyo"}) as server:
            yield server.address
    except PostgresMissing as missing:
        pytest.fail(str(missing))


@dataclass(frozen=True, slots=True)
class Guest:
    """A database, and a role that may do no more in it than docs/postgres-role.md asks for."""

    owner: str
    """Its address for who may do everything."""
    url: str
    """Its address for the source."""

    def execute(self, *statements: str) -> None:
        """As the owner, each committed by itself. What this creates the guest may read."""
        with psycopg.connect(self.owner, autocommit=True, options=LOCK_TIMEOUT) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    async def run(self, *statements: str) -> None:
        """The same while a source runs in this loop: it gives up the locks that they wait for."""
        await asyncio.to_thread(self.execute, *statements)

    def rows(self, question: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.owner, autocommit=True) as connection:
            return connection.execute(question.encode()).fetchall()

    def value(self, question: str) -> Any:
        return self.rows(question)[0][0]

    def until_nobody_streams(self) -> None:
        """The server sees a moment later that a reader has gone, and lets nobody drop a slot, or
        move it on, from which one still streams."""
        streaming = (
            "SELECT FROM pg_replication_slots WHERE active AND database = current_database()"
        )
        while self.rows(streaming):
            time.sleep(POLL_S)

    def publish(self, *tables: str, name: str = "headwater_shop") -> None:
        """What the page asks the owner to do beforehand: for these tables, or for all."""
        wanted = f"TABLE {', '.join(tables)}" if tables else "ALL TABLES"
        self.execute(
            f"CREATE PUBLICATION {name} FOR {wanted} WITH (publish_via_partition_root = true)"
        )


@contextmanager
def guest_in(address: str, name: str, *, encoding: str = "UTF8") -> Iterator[Guest]:
    """Such a database, and the role."""
    with database_in(address, name, encoding=encoding) as owner:
        guest = Guest(owner, owner.replace("//headwater@", f"//{GUEST}@"))
        is_new = not guest.rows(f"SELECT 1 FROM pg_roles WHERE rolname = '{GUEST}'")
        guest.execute(
            *([f"CREATE ROLE {GUEST} LOGIN REPLICATION"] if is_new else []),
            f"GRANT USAGE ON SCHEMA public TO {GUEST}",
            f"ALTER DEFAULT PRIVILEGES GRANT USAGE ON SCHEMAS TO {GUEST}",
            f"ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO {GUEST}",
        )
        yield guest


@contextmanager
def sql_mode(address: str, mode: str) -> Iterator[None]:
    """While a MariaDB or MySQL has this mode for new sessions."""
    url = sa.make_url(address).set(drivername="mysql+pymysql")
    with sa.create_engine(url, poolclass=sa.NullPool).begin() as owner:
        before = owner.exec_driver_sql("SELECT @@GLOBAL.sql_mode").scalar()
        owner.exec_driver_sql(f"SET GLOBAL sql_mode = '{mode}'")
        try:
            yield
        finally:
            owner.exec_driver_sql(f"SET GLOBAL sql_mode = '{before}'")


@contextmanager
def database_in(address: str, name: str, *, encoding: str = "UTF8") -> Iterator[str]:
    """The address of a new database of that server, dropped at the end with the slots that are left
    in it."""
    import sqlalchemy as sa

    if address.startswith("postgresql"):
        with psycopg.connect(address, autocommit=True) as connection:
            choices = f"ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0"
            chosen = "" if encoding == "UTF8" else choices
            if connection.info.server_version >= 15_0000:
                chosen += " STRATEGY FILE_COPY"  # needs a checkpoint, which costs nothing here
            connection.execute(f'CREATE DATABASE "{name}" {chosen}'.encode())
        try:
            yield sa.make_url(address).set(database=name).render_as_string(hide_password=False)
        finally:
            with psycopg.connect(
                address, autocommit=True
            ) as connection:  # it may have been restarted
                connection.execute(
                    "SELECT pg_terminate_backend(active_pid, 10000) FROM pg_replication_slots"
                    " WHERE database = %s AND active",
                    [name],
                )
                connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)'.encode())
        return
    url = sa.make_url(address)
    login: dict[str, Any] = {"host": url.host, "port": url.port, "user": url.username}
    with pymysql.connect(**login, ssl_disabled=True) as server, server.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE `{name}`")
        try:
            yield url.set(database=name).render_as_string(hide_password=False)
        finally:
            cursor.execute(f"DROP DATABASE `{name}`")


@contextmanager
def running_mariadb() -> Iterator[str]:
    with temporary_directory("mariadb") as directory:
        data, port = directory / "data", free_port()
        own = f"--tmpdir={directory}"  # a server that starts removes temporary tables from there
        run_as_nobody([_program("mariadb-install-db"), "--no-defaults", f"--datadir={data}", own,
              "--auth-root-authentication-method=normal", "--skip-test-db",
              "--skip-name-resolve"])  # fmt: skip
        command = [_program("mariadbd"), "--no-defaults", f"--datadir={data}", own,
                   f"--port={port}",
                   "--bind-address=127.0.0.1", f"--socket={directory}/socket",
                   f"--pid-file={directory}/pid", "--innodb-flush-log-at-trx-commit=0",
                   "--innodb-buffer-pool-size=64M", "--innodb-flush-method=nosync",
                   "--innodb-file-per-table=0", "--innodb-log-file-size=8M",
                   "--default-time-zone=+09:00", "--skip-name-resolve"]  # fmt: skip
        with _serving(command, log=directory / "log") as server:
            login: dict[str, Any] = {"host": "127.0.0.1", "port": port, "user": "root"}
            _wait_for(server, lambda: pymysql.connect(**login).close(), pymysql.OperationalError)
            yield f"mariadb://root@127.0.0.1:{port}/?ssl_disabled=1"


def _program(name: str) -> str:
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"])
    found = shutil.which(name, path=path)
    if found is None:
        pytest.fail(f"{name} is missing: {INSTALL}")
    return found


@contextmanager
def _serving(command: Sequence[object], *, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    server = start_as_nobody(command, log=log)
    try:
        yield server
    finally:
        server.terminate()
        server.wait()


def _wait_for(server: subprocess.Popen[bytes], connect: Any, refused: type[Exception]) -> None:
    """Until the server answers, or has ended."""
    while True:
        try:
            connect()
            return
        except refused:
            assert server.poll() is None, "the server ended while it was starting"
            try:
                server.wait(timeout=0.05)
            except subprocess.TimeoutExpired:
                continue
