"""Whatever becomes of the forms of tables, at whatever moment, and whoever is killed meanwhile:
each target ends equal to the source, in every mode."""

import logging
import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from scripts.embedded_postgres import EmbeddedPostgres, embedded_postgres
from tests.crash.captured_server import PostgresServer
from tests.crash.ddl_targets import Target
from tests.crash.ddl_world import World, lived, targets_of
from tests.crash.postgres_ddl import PostgresDdl
from tests.databases import database_in

logger = logging.getLogger(__name__)

SECONDS = int(os.environ.get("HEADWATER_DDL_SECONDS", 300))
SEED = int(os.environ.get("HEADWATER_DDL_SEED", 0))


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedPostgres]:
    with embedded_postgres(settings={"track_commit_timestamp": "on"}) as server:
        yield server


@pytest.mark.crash
def test_forms_change_at_random_and_targets_end_equal(
    server: EmbeddedPostgres, tmp_path: Path
) -> None:
    targets = [
        Target("sqlite", "mirror", f"sqlite:///{tmp_path}/mirror.db"),
        Target("delta", "soft_delete", f"{tmp_path}/lake"),
    ]
    with database_in(server.address, f"ddl{SEED}"):
        world = World(PostgresDdl(PostgresServer(server)), f"ddl{SEED}", tmp_path, targets, SEED)
        lived(world, disasters=1)


@pytest.mark.long("crash")
def test_random_ddl_ends_equal_in_every_mode_and_target_for_as_long_as_there_is_time(
    server: EmbeddedPostgres, mariadb: str, tmp_path: Path
) -> None:
    seed, begun = SEED, time.monotonic()
    total, until = Counter[str](), begun + SECONDS
    while seed == SEED or time.monotonic() < until:
        directory = tmp_path / str(seed)
        directory.mkdir()
        with (
            database_in(server.address, f"ddl{seed}"),
            database_in(server.address, f"ddl{seed}_target") as postgres,
            database_in(mariadb, f"ddl{seed}") as maria,
        ):
            targets = targets_of(Random(seed), directory, postgres, maria)
            dialect = PostgresDdl(PostgresServer(server))
            world = World(dialect, f"ddl{seed}", directory, targets, seed)
            lived(world, disasters=4)
        seed, total = seed + 1, total + world.counted()
        minutes = (time.monotonic() - begun) / 60
        logger.info("%.1f minutes without a difference: %s", minutes, dict(total))
