"""Whoever is killed, at whatever moment between PostgreSQL and target, while rows are read, while
the stream takes over or later: the target ends equal to the source, and no change is in the log
twice."""

import os
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from scripts.embedded_postgres import EmbeddedPostgres, embedded_postgres
from tests.crash.audit import TABLES, Audit, AuditWriter, pipeline_of, sinks_of
from tests.crash.capture import Capture
from tests.crash.postgres_load import PostgresLoad, ShopWriter
from tests.sinks.histories import KEPT

IS_LONG = os.environ.get("HEADWATER_BUDGET") == "long"
LIVES = 50 if IS_LONG else 4
KILLS = 2
WORKERS = ("auto", "0")
"""Two lives in turn each: with source and sink in processes of their own, as by default, and in one
with the runner."""
ROWS_MAX = 9_000
"""Written between a start and the kill: from the first moment until well after the handover."""
AUDITED = 12 if IS_LONG else 1
AUDITED_ROWS_MAX = 4_000 if IS_LONG else 300
ATTEMPTS = 20
KINDS = [
    *(("sql", kept) for kept in KEPT),
    *(("delta", kept) for kept in KEPT),
    ("iceberg", "soft_delete"),
]


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedPostgres]:
    with embedded_postgres(settings={"track_commit_timestamp": "on"}) as server:
        yield server


@pytest.mark.crash
@pytest.mark.parametrize("life", range(LIVES))
def test_killed_at_random_it_ends_equal(
    life: int, server: EmbeddedPostgres, tmp_path: Path
) -> None:
    random = Random(life)
    capture = Capture(server, f"life_{life}", tmp_path, workers=WORKERS[life // 2 % 2])
    load = PostgresLoad(capture.address, ShopWriter(seed=life))
    capture.broker.start()
    capture.runner.start()
    load.start()
    try:
        possible = capture.disasters()
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


@pytest.mark.crash
@pytest.mark.parametrize("life", range(AUDITED))
def test_killed_and_paused_at_random_every_mode_keeps_what_an_audit_says(
    life: int, server: EmbeddedPostgres, tmp_path: Path
) -> None:
    """Last values and times of deletes among it, in targets that slice the log as they like. In the
    long run `verify` says the same, and so it is after a rebuild."""
    random = Random(life)
    kinds = KINDS if IS_LONG else [KINDS[2], KINDS[4], KINDS[7]]
    sinks = sinks_of(kinds, seed=life)
    capture = Capture(
        server, f"audited_{life}", tmp_path, pipeline=pipeline_of(sinks), tables=TABLES
    )
    table, at = f"{capture.name}/public.orders", ("--bootstrap", capture.log)
    load = PostgresLoad(capture.address, AuditWriter(seed=life))
    capture.broker.start()
    capture.runner.start()
    try:
        audit = Audit(capture, sinks)
        load.start()
        for _ in range(6 if IS_LONG else 1):
            load.wait_for_rows(random.randrange(AUDITED_ROWS_MAX))
            random.choice(capture.disasters())()
            if IS_LONG and random.random() < 0.5:
                capture.command("pause", table, *at, attempts=ATTEMPTS)
                load.wait_for_rows(random.randrange(AUDITED_ROWS_MAX))
                capture.command("resume", table, *at, attempts=ATTEMPTS)
        load.wait_for_rows(random.randrange(AUDITED_ROWS_MAX))
        load.stop()
        capture.finish()

        assert audit.differences() == {}
        if IS_LONG:
            capture.command("verify", capture.name, "-f", capture.file)
            chosen = random.choice([name for name in sinks if "append" not in name])
            capture.command("rebuild", table, "-f", capture.file, "--sink", chosen, "--swap")
            assert audit.differences() == {}
    finally:
        load.stop()
        capture.close()
