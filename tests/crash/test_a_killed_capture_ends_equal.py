"""Whoever is killed, at whatever moment between PostgreSQL and target, while rows are read, while
the stream takes over or later: the target ends equal to the source, and no change is in the log
twice."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from scripts.embedded_postgres import EmbeddedPostgres, embedded_postgres
from tests.crash.capture import Capture
from tests.crash.postgres_load import PostgresLoad

LIVES = 50 if os.environ.get("HEADWATER_BUDGET") == "long" else 4
KILLS = 2
WORKERS = ("auto", "0")
"""Two lives in turn each: with source and sink in processes of their own, as by default, and in one
with the runner."""
ROWS_MAX = 9_000
"""Written between a start and the kill: from the first moment until well after the handover."""


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedPostgres]:
    with embedded_postgres() as server:
        yield server


def disasters(capture: Capture) -> list[Callable[[], None]]:
    """What happens to whom; each is there again at once."""

    def kill_runner() -> None:
        capture.runner.kill()
        capture.runner.start()

    def kill_broker() -> None:
        capture.broker.kill()
        capture.broker.start()

    def kill_server() -> None:
        capture.server.kill()
        capture.server.start()

    def stop_server() -> None:
        capture.server.stop("fast")
        capture.server.start()

    everybody = [kill_runner, kill_broker, kill_server, stop_server]
    return everybody if capture.workers == "0" else [capture.runner.kill_children, *everybody]


@pytest.mark.crash
@pytest.mark.parametrize("life", range(LIVES))
def test_killed_at_random_it_ends_equal(
    life: int, server: EmbeddedPostgres, tmp_path: Path
) -> None:
    random = Random(life)
    capture = Capture(server, f"life_{life}", tmp_path, workers=WORKERS[life // 2 % 2])
    load = PostgresLoad(capture.address, seed=life)
    capture.broker.start()
    capture.runner.start()
    load.start()
    try:
        possible = disasters(capture)
        for number in range(KILLS):
            load.wait_for_rows(random.randrange(ROWS_MAX))
            possible[(life + number * (1 + life // len(possible))) % len(possible)]()
        load.wait_for_rows(random.randrange(ROWS_MAX))
        load.stop()
        capture.finish()

        assert capture.differences() == {}
        assert capture.repeated() == {}
    finally:
        load.stop()
        capture.close()
