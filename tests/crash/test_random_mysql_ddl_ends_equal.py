"""Forms of tables of MySQL and MariaDB change at random, and anybody is killed meanwhile: each
target ends equal to the source, in every mode."""

import logging
import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from scripts.embedded_mysql import embedded_mysql
from scripts.embedded_postgres import embedded_postgres
from tests.connectors.mysql.conftest import KINDS
from tests.crash.captured_server import MysqlServer
from tests.crash.ddl_targets import Target
from tests.crash.ddl_world import World, lived, targets_of
from tests.crash.mysql_ddl import MysqlDdl
from tests.databases import database_in

logger = logging.getLogger(__name__)

SECONDS = int(os.environ.get("HEADWATER_DDL_SECONDS", 300))
SEED = int(os.environ.get("HEADWATER_DDL_SEED", 0))


@pytest.fixture(scope="module", params=KINDS)
def server(request: pytest.FixtureRequest) -> Iterator[MysqlServer]:
    with embedded_mysql(request.param) as server:
        yield MysqlServer(server)


@contextmanager
def database_of(server: MysqlServer, name: str) -> Iterator[str]:
    server.create(name, [])
    yield name
    server.drop(name)


@pytest.mark.long("crash")
def test_forms_of_mysql_change_at_random_and_targets_end_equal(
    server: MysqlServer, tmp_path: Path
) -> None:
    with database_of(server, f"ddl{SEED}") as database:
        targets = [
            Target("sqlite", "mirror", f"sqlite:///{tmp_path}/mirror.db", database),
            Target("delta", "soft_delete", f"{tmp_path}/lake", database),
        ]
        lived(World(MysqlDdl(server), database, tmp_path, targets, SEED), disasters=1)


@pytest.mark.long("crash")
def test_random_ddl_of_mysql_ends_equal_in_every_mode_for_as_long_as_there_is_time(
    server: MysqlServer, mariadb: str, tmp_path: Path
) -> None:
    seed, begun = SEED, time.monotonic()
    total, until = Counter[str](), begun + SECONDS
    with embedded_postgres() as targets_server:
        while seed == SEED or time.monotonic() < until:
            directory = tmp_path / str(seed)
            directory.mkdir()
            with (
                database_of(server, f"ddl{seed}") as database,
                database_in(targets_server.address, f"ddl{seed}") as postgres,
                database_in(mariadb, f"ddl{seed}_target") as maria,
            ):
                targets = targets_of(Random(seed), directory, postgres, maria, namespace=database)
                world = World(MysqlDdl(server), database, directory, targets, seed)
                lived(world, disasters=4)
            seed, total = seed + 1, total + world.counted()
            minutes = (time.monotonic() - begun) / 60
            logger.info("%.1f minutes without a difference: %s", minutes, dict(total))
