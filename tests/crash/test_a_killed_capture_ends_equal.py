"""Whoever is killed, at whatever moment between PostgreSQL and target, while rows are read, while
the stream takes over or later: the target ends equal to the source, and no change is in the log
twice."""

import logging
import os
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from scripts.embedded_postgres import EmbeddedPostgres, embedded_postgres
from tests.crash.audit import FILES, TABLES, Audit, AuditWriter, pipeline_of, sinks_of
from tests.crash.capture import Capture
from tests.crash.postgres_load import PostgresLoad, ShopWriter
from tests.databases import database_in
from tests.sinks.histories import KEPT

logger = logging.getLogger(__name__)

IS_LONG = os.environ.get("HEADWATER_BUDGET") == "long"
LIVES = 50 if IS_LONG else 4
KILLS = 2
WORKERS = ("auto", "0")
"""Two lives in turn each: with source and sink in processes of their own, as by default, and in one
with the runner."""
ROWS_MAX = 9_000
"""Written between a start and the kill: from the first moment until well after the handover."""
AUDITED_ROWS_MAX = 2_500 if IS_LONG else 300
AUDIT_S = int(os.environ.get("HEADWATER_AUDIT_SECONDS", 600))
AUDIT_SEED = int(os.environ.get("HEADWATER_AUDIT_SEED", 0))
ATTEMPTS = 20
CATCH_UP_S = 1_800
"""Small slices of many targets take long on a busy machine."""
AT_ONCE = 7
"""Targets of one life; the next life has the next ones."""
SLICES = (None, 100, 500, 2_000)
KINDS = [
    *((kind, kept) for kept in KEPT for kind in ("sqlite", "postgres", "mariadb")),
    *((kind, kept) for kept in KEPT for kind in ("delta", "iceberg")),
    *((kind, "append") for kind in ("parquet", *FILES)),
]
FEW = [("sqlite", "soft_delete"), ("sqlite", "scd2"), ("delta", "soft_delete")]


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedPostgres]:
    with embedded_postgres(settings={"track_commit_timestamp": "on"}) as server:
        yield server


@pytest.mark.crash
@pytest.mark.parametrize("life", range(LIVES))
def test_a_capture_killed_at_random_ends_equal(
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
def test_a_capture_killed_at_random_ends_as_an_audit_says(
    server: EmbeddedPostgres, tmp_path: Path
) -> None:
    """Last values and times of deletes among it, in targets that slice the log as they like."""
    audited_life(server, tmp_path, sinks_of(FEW, seed=AUDIT_SEED), seed=AUDIT_SEED, disasters=1)


@pytest.mark.crash
@pytest.mark.skipif(not IS_LONG, reason="make crash has the time")
def test_every_mode_and_target_ends_as_an_audit_says_for_as_long_as_there_is_time(
    server: EmbeddedPostgres, mariadb: str, tmp_path: Path
) -> None:
    """`verify` says the same, and so it is after a rebuild."""
    seed, until = AUDIT_SEED, time.monotonic() + AUDIT_S
    total = Counter[str]()
    while seed == AUDIT_SEED or time.monotonic() < until:
        directory = tmp_path / str(seed)
        directory.mkdir()
        with (
            database_in(server.address, f"target_{seed}") as postgres,
            database_in(mariadb, f"target_{seed}") as maria,
        ):
            databases = {"postgres": postgres, "mariadb": maria}
            sinks = sinks_of(kinds_of(seed), seed=seed, databases=databases)
            total += audited_life(server, directory, sinks, seed=seed, disasters=6)
        logger.info("HEADWATER_AUDIT_SEED=%d held, so far %s", seed, dict(total))
        shutil.rmtree(directory)
        seed += 1


def kinds_of(seed: int) -> list[tuple[str, str]]:
    """A few of all in the order of chance, so that some lives in turn have had each."""
    around, place = divmod(seed * AT_ONCE, len(KINDS))
    rounds = [Random(around + later).sample(KINDS, len(KINDS)) for later in range(2)]
    return list(dict.fromkeys([*rounds[0], *rounds[1]][place : place + AT_ONCE]))


def audited_life(
    server: EmbeddedPostgres, directory: Path, sinks: dict[str, Any], *, seed: int, disasters: int
) -> Counter[str]:
    """How many changes it saw, and how often which disaster."""
    random, seen = Random(seed), Counter[str]()
    logger.info("HEADWATER_AUDIT_SEED=%d: %s in %s", seed, {**sinks}, directory)
    capture = Capture(
        server,
        f"audited_{seed}",
        directory,
        workers=WORKERS[1 - seed % 2],
        pipeline=pipeline_of(sinks, slice_rows=random.choice(SLICES)),
        tables=TABLES,
    )
    table, at = f"{capture.name}/public.orders", ("--bootstrap", capture.log)
    load = PostgresLoad(capture.address, AuditWriter(seed=seed))
    capture.broker.start()
    capture.runner.start()
    try:
        audit = Audit(capture, sinks)
        load.start()
        for _ in range(disasters):
            load.wait_for_rows(random.randrange(AUDITED_ROWS_MAX))
            disaster = random.choice(capture.disasters())
            disaster()
            seen[disaster.__name__] += 1
            if IS_LONG and random.random() < 0.5:
                capture.command("pause", table, *at, attempts=ATTEMPTS)
                load.wait_for_rows(random.randrange(AUDITED_ROWS_MAX))
                capture.command("resume", table, *at, attempts=ATTEMPTS)
                seen["pause"] += 1
        load.wait_for_rows(random.randrange(AUDITED_ROWS_MAX))
        load.stop()
        capture.finish(CATCH_UP_S)

        assert audit.differences() == {}
        if IS_LONG:
            capture.command("verify", capture.name, "-f", capture.file, patience_s=CATCH_UP_S)
            chosen = [name for name, sink in sinks.items() if can_be_rebuilt(name, sink)]
            if chosen:
                sink = random.choice(chosen)
                rebuild = ("rebuild", table, "-f", capture.file, "--sink", sink, "--swap")
                capture.command(*rebuild, patience_s=CATCH_UP_S)
                assert audit.differences() == {}
                seen["rebuild"] += 1
        counts = {"changes": audit.changes(), "slices": audit.slices(), "targets": len(sinks)}
        return seen + Counter({**counts, "lives": 1})
    finally:
        load.stop()
        capture.close()


def can_be_rebuilt(name: str, sink: dict[str, Any]) -> bool:
    return sink["type"] != "files" and not name.endswith("append")
