"""One MySQL and one MariaDB per run, each test in a database of its own."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast
from uuid import uuid4

import pytest

from headwater.connectors.mysql.settings import MysqlSettings
from scripts.embedded_mysql import EmbeddedMysql, Kind, embedded_mysql

KINDS = cast("list[Kind]", os.environ.get("HEADWATER_MYSQL", "mysql-9,mariadb").split(","))
GUEST = "headwater_guest"
RIGHTS = (
    "GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {}",
    "GRANT SELECT, REPLICATION SLAVE, BINLOG MONITOR ON *.* TO {}",
)


@dataclass(frozen=True, slots=True)
class MysqlGuest:
    """A database of a server, and a user with the least rights."""

    server: EmbeddedMysql
    database: str
    user: str = f"{GUEST}:secret"

    @property
    def url(self) -> str:
        return f"mysql://{self.user}@127.0.0.1:{self.server.port}"

    def execute(self, *statements: str) -> list[tuple[Any, ...]]:
        return self.server.execute(*statements, database=self.database)

    def settings(self, **given: Any) -> MysqlSettings:
        return MysqlSettings.model_validate(
            {"url": self.url, "tables": [f"{self.database}.*"], **given}
        )


@pytest.fixture(scope="session", params=KINDS)
def mysql_server(request: pytest.FixtureRequest) -> Iterator[EmbeddedMysql]:
    with embedded_mysql(request.param) as server:
        server.execute(
            f"CREATE USER {GUEST}@'%' IDENTIFIED BY 'secret'",
            RIGHTS[server.is_mariadb].format(f"{GUEST}@'%'"),
        )
        yield server


@pytest.fixture
def mysql_guest(mysql_server: EmbeddedMysql) -> Iterator[MysqlGuest]:
    name = f"shop_{uuid4().hex[:12]}"
    mysql_server.execute(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
    yield MysqlGuest(mysql_server, name)
    mysql_server.execute(f"DROP DATABASE {name}")
