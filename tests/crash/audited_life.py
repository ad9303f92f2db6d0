"""A life of a pipeline whose table is audited: processes and servers are killed, and targets end as
the audit says."""

import logging
import os
import shutil
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, Protocol

from tests.budget import IS_LONG
from tests.crash.audit import FILES, Audit, pipeline_of, sinks_of
from tests.crash.capture import Capture
from tests.crash.captured_server import CapturedServer
from tests.crash.source_load import Writer, source_load
from tests.databases import database_in
from tests.sinks.histories import KEPT

logger = logging.getLogger(__name__)

WORKERS = ("auto", "0")
"""Two lives in turn each: with source and sink in processes of their own, as by default, and in one
with the runner."""
ROWS_MAX = 2_500 if IS_LONG else 300
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


class MakesWriter(Protocol):
    def __call__(self, *, seed: int) -> Writer: ...


class Audited(NamedTuple):
    """A server whose table has triggers."""

    server: CapturedServer
    tables: tuple[str, ...]
    changes: str
    """The question for the changes behind a number."""
    writer: MakesWriter


def live_as_long_as_there_is_time(
    audited: Audited, databases: Mapping[str, str], directory: Path
) -> None:
    """`databases` are addresses of servers for targets, by kind."""
    seed, until = AUDIT_SEED, time.monotonic() + AUDIT_S
    total = Counter[str]()
    while seed == AUDIT_SEED or time.monotonic() < until:
        within = directory / str(seed)
        within.mkdir()
        with (
            database_in(databases["postgres"], f"target_{seed}") as postgres,
            database_in(databases["mariadb"], f"target_{seed}") as maria,
        ):
            made = {"postgres": postgres, "mariadb": maria}
            sinks = sinks_of(kinds_of(seed), seed=seed, databases=made)
            total += live_audited(audited, within, sinks, seed=seed, disasters=6)
        logger.info("HEADWATER_AUDIT_SEED=%d held, so far %s", seed, dict(total))
        shutil.rmtree(within)
        seed += 1


def kinds_of(seed: int) -> list[tuple[str, str]]:
    """A few of all in the order of chance, so that some lives in turn have had each."""
    around, place = divmod(seed * AT_ONCE, len(KINDS))
    rounds = [Random(around + later).sample(KINDS, len(KINDS)) for later in range(2)]
    return list(dict.fromkeys([*rounds[0], *rounds[1]][place : place + AT_ONCE]))


def live_audited(
    audited: Audited, directory: Path, sinks: dict[str, Any], *, seed: int, disasters: int
) -> Counter[str]:
    """How many changes it saw, and how often which disaster."""
    random, seen = Random(seed), Counter[str]()
    logger.info("HEADWATER_AUDIT_SEED=%d: %s in %s", seed, {**sinks}, directory)
    capture = Capture(
        audited.server,
        f"audited_{seed}",
        directory,
        workers=WORKERS[1 - seed % 2],
        pipeline=pipeline_of(sinks, slice_rows=random.choice(SLICES)),
        tables=audited.tables,
        captured="orders",
    )
    table, at = f"{capture.name}/{capture.namespace}.orders", ("--bootstrap", capture.log)
    load = source_load(capture.server, capture.name, audited.writer(seed=seed))
    capture.broker.start()
    capture.runner.start()
    try:
        audit = Audit(capture, sinks, audited.changes)
        load.start()
        for _ in range(disasters):
            load.wait_for(random.randrange(ROWS_MAX))
            disaster = random.choice(capture.disasters())
            disaster()
            seen[disaster.__name__] += 1
            if IS_LONG and random.random() < 0.5:
                capture.command("pause", table, *at, attempts=ATTEMPTS)
                load.wait_for(random.randrange(ROWS_MAX))
                capture.command("resume", table, *at, attempts=ATTEMPTS)
                seen["pause"] += 1
        load.wait_for(random.randrange(ROWS_MAX))
        load.stop()
        capture.finish(CATCH_UP_S)

        differences = audit.differences()
        assert differences == {}, differences
        if IS_LONG:
            capture.command("verify", capture.name, "-f", capture.file, patience_s=CATCH_UP_S)
            chosen = [name for name, sink in sinks.items() if can_be_rebuilt(name, sink)]
            if chosen:
                sink = random.choice(chosen)
                rebuild = ("rebuild", table, "-f", capture.file, "--sink", sink, "--swap")
                capture.command(*rebuild, patience_s=CATCH_UP_S)
                differences = audit.differences()
                assert differences == {}, differences
                seen["rebuild"] += 1
        counts = {"changes": audit.changes(), "slices": audit.slices(), "targets": len(sinks)}
        return seen + Counter({**counts, "lives": 1})
    finally:
        load.stop()
        capture.close()


def can_be_rebuilt(name: str, sink: dict[str, Any]) -> bool:
    return sink["type"] != "files" and not name.endswith("append")
