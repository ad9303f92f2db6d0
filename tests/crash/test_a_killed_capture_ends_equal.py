"""Whoever is killed, at whatever moment between PostgreSQL and target, while rows are read, while
the stream takes over or later: the target ends equal to the source, and no change is in the log
twice."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from scripts.embedded_postgres import EmbeddedPostgres, embedded_postgres
from tests.budget import IS_LONG
from tests.crash.audit import sinks_of
from tests.crash.audited_life import (
    AUDIT_SEED,
    FEW,
    WORKERS,
    Audited,
    live_as_long_as_there_is_time,
    live_audited,
)
from tests.crash.capture import Capture
from tests.crash.captured_server import PostgresServer
from tests.crash.postgres_audit import CHANGES, TABLES, AuditWriter
from tests.crash.postgres_load import ShopWriter
from tests.crash.source_load import source_load

LIVES = range(50) if IS_LONG else (0, 3)
KILLS = 2
ROWS_MAX = 9_000
"""Written between a start and the kill: from the first moment until well after the handover."""


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedPostgres]:
    with embedded_postgres(settings={"track_commit_timestamp": "on"}) as server:
        yield server


@pytest.mark.crash
@pytest.mark.parametrize("life", LIVES)
def test_a_capture_killed_at_random_ends_equal(
    life: int, server: EmbeddedPostgres, tmp_path: Path
) -> None:
    random = Random(life)
    workers = WORKERS[life // 2 % 2]
    capture = Capture(PostgresServer(server), f"life_{life}", tmp_path, workers=workers)
    load = source_load(capture.server, capture.name, ShopWriter(seed=life))
    capture.broker.start()
    capture.runner.start()
    load.start()
    try:
        possible = capture.disasters()
        for number in range(KILLS):
            load.wait_for(random.randrange(ROWS_MAX))
            possible[(life + number * (1 + life // len(possible))) % len(possible)]()
        load.wait_for(random.randrange(ROWS_MAX))
        load.stop()
        capture.finish()

        assert capture.differences() == {}
        assert capture.repeated() == {}
    finally:
        load.stop()
        capture.close()


@pytest.mark.crash
def test_a_capture_killed_at_random_ends_as_an_audit_says(
    server: EmbeddedPostgres, tmp_path: Path
) -> None:
    """Last values and times of deletes among it, in targets that slice the log as they like."""
    sinks = sinks_of(FEW, seed=AUDIT_SEED)
    live_audited(audited(server), tmp_path, sinks, seed=AUDIT_SEED, disasters=1)


@pytest.mark.long("crash")
def test_every_mode_and_target_ends_as_an_audit_says_for_as_long_as_there_is_time(
    server: EmbeddedPostgres, mariadb: str, tmp_path: Path
) -> None:
    """`verify` says the same, and so it is after a rebuild."""
    databases = {"postgres": server.address, "mariadb": mariadb}
    live_as_long_as_there_is_time(audited(server), databases, tmp_path)


def audited(server: EmbeddedPostgres) -> Audited:
    return Audited(PostgresServer(server), TABLES, CHANGES, AuditWriter)
