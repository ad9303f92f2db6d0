"""A password in a file is changed while the pipeline runs, at servers that check passwords."""

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import psycopg
import pymysql
import pytest

from scripts.embedded_mysql import EmbeddedMysql, embedded_mysql
from scripts.embedded_postgres import embedded_postgres
from tests.pipelines.run_process import COMMAND, running

pytestmark = [pytest.mark.integration, pytest.mark.slow]

FILE = """\
pipeline: shop
source: {{type: {kind}, url: "{source}", tables: ["{schema}.orders"]}}
sink: {{type: sql, url: "{target}", commit_every: 0s}}
"""
USER = "app"


class Server(Protocol):
    """A source and a target, both of which ask the user for a password."""

    def file(self) -> str: ...

    def lets_in(self, password: str) -> bool: ...

    def set_password(self, password: str) -> None:
        """Sessions go on with the former one."""

    def end_sessions(self) -> None: ...

    def insert(self, number: int) -> None: ...

    def arrived(self) -> set[int]: ...


class PostgresServer:
    def __init__(self, address: str) -> None:
        self._address = address
        self._place = address.partition("@")[2].partition("/")[0]
        self._execute(
            "CREATE DATABASE shop",
            "CREATE DATABASE copy",
            f"CREATE ROLE {USER} LOGIN REPLICATION SUPERUSER PASSWORD 'first'",
        )
        with psycopg.connect(address, autocommit=True) as owner:
            found = owner.execute("SHOW hba_file").fetchone()
            assert found is not None
            rules = Path(str(found[0]))
            rules.write_text(f"host all,replication {USER} all scram-sha-256\n{rules.read_text()}")
            owner.execute("SELECT pg_reload_conf()")
        while self.lets_in("wrong"):
            continue
        self._execute("CREATE TABLE orders (id int PRIMARY KEY)", database="shop")

    def _execute(self, *statements: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        with psycopg.connect(self._address, dbname=database, autocommit=True) as owner:
            for statement in statements:
                found = owner.execute(statement.encode())
            return found.fetchall() if found.description else []

    def file(self) -> str:
        base = f"postgresql://{USER}:${{file:password}}@{self._place}"
        return FILE.format(
            kind="postgres", source=f"{base}/shop", target=f"{base}/copy", schema="public"
        )

    def lets_in(self, password: str) -> bool:
        try:
            psycopg.connect(self._address, user=USER, password=password, dbname="shop").close()
        except psycopg.OperationalError:
            return False
        return True

    def set_password(self, password: str) -> None:
        self._execute(f"ALTER ROLE {USER} PASSWORD '{password}'")

    def end_sessions(self) -> None:
        self._execute(
            f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{USER}'"
        )

    def insert(self, number: int) -> None:
        self._execute(f"INSERT INTO orders VALUES ({number})", database="shop")

    def arrived(self) -> set[int]:
        try:
            return {row[0] for row in self._execute("SELECT id FROM orders", database="copy")}
        except psycopg.errors.UndefinedTable:
            return set()


class MysqlServer:
    def __init__(self, server: EmbeddedMysql) -> None:
        self._server = server
        server.execute(
            "CREATE DATABASE shop",
            "CREATE DATABASE copy",
            f"CREATE USER {USER}@'%' IDENTIFIED BY 'first'",
            f"GRANT ALL ON *.* TO {USER}@'%'",
            "CREATE TABLE shop.orders (id int PRIMARY KEY)",
        )

    def file(self) -> str:
        base = f"mysql://{USER}:${{file:password}}@127.0.0.1:{self._server.port}"
        return FILE.format(kind="mysql", source=base, target=f"{base}/copy", schema="shop")

    def lets_in(self, password: str) -> bool:
        try:
            pymysql.connect(
                host="127.0.0.1", port=self._server.port, user=USER, password=password
            ).close()
        except pymysql.err.OperationalError:
            return False
        return True

    def set_password(self, password: str) -> None:
        self._server.execute(f"ALTER USER {USER}@'%' IDENTIFIED BY '{password}'")

    def end_sessions(self) -> None:
        found = self._server.execute(
            f"SELECT id FROM information_schema.processlist WHERE user = '{USER}'"
        )
        for (session,) in found:
            try:
                self._server.execute(f"KILL {session}")
            except pymysql.err.OperationalError:
                continue  # it has ended by itself

    def insert(self, number: int) -> None:
        self._server.execute(f"INSERT INTO shop.orders VALUES ({number})")

    def arrived(self) -> set[int]:
        found = self._server.execute(
            "SELECT 1 FROM information_schema.tables"
            " WHERE table_schema = 'copy' AND table_name = 'orders'"
        )
        if not found:
            return set()
        return {row[0] for row in self._server.execute("SELECT id FROM copy.orders")}


@pytest.fixture(
    params=["postgres", "mariadb", pytest.param("mysql-9", marks=pytest.mark.long("compat"))]
)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    if request.param == "postgres":
        with embedded_postgres() as postgres:
            yield PostgresServer(postgres.address)
    else:
        with embedded_mysql(request.param) as mysql:
            yield MysqlServer(mysql)


def told(file: Path, *arguments: str) -> Any:
    """The status of the pipeline."""
    found = subprocess.run(
        [*COMMAND, "--json", *arguments, "-f", str(file)],
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(found.stdout)["data"]


def states(file: Path) -> dict[str, str]:
    tasks = told(file, "status")["pipelines"]["shop"]["tasks"]
    return {name: each["state"] for name, each in tasks.items()}


def until_arrived(server: Server, number: int) -> None:
    while number not in server.arrived():
        time.sleep(0.05)


def test_a_password_is_changed_without_a_stop(server: Server, tmp_path: Path) -> None:
    password, file = tmp_path / "password", tmp_path / "pipeline.yaml"
    password.write_text("first")
    file.write_text(server.file())
    assert server.lets_in("first") and not server.lets_in("wrong")
    server.insert(1)

    with running("run", file, "-q"):
        until_arrived(server, 1)

        password.write_text("second")
        server.set_password("second")
        server.end_sessions()
        server.insert(2)
        until_arrived(server, 2)
        assert not server.lets_in("first")

        server.set_password("third")  # the server is first this time
        server.end_sessions()
        while states(file)["source"] == "running":
            time.sleep(0.1)
        server.insert(3)
        password.write_text("third")
        told(file, "resume", "shop")
        until_arrived(server, 3)
        assert server.arrived() == {1, 2, 3}
