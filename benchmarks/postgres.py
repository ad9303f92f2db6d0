"""PostgreSQL into the log, beside the server's own tools and real Debezium on the same history."""

# Run it on a quiet machine: python -m benchmarks.postgres [--rounds 3] [--shrink 1] [--only ...]
# Stages that are not named keep the figures that they have in results/postgres.json.

import argparse
import os
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.bytecode import compile_as_installed
from benchmarks.capture_report import (
    DEBEZIUM,
    LIMIT,
    OURS,
    PLAIN,
    TUNED,
    WARM_UP,
    Row,
    add_measured,
    end_of,
    fresh_ground,
    keep,
    table_of,
    ticked,
    waits,
)
from benchmarks.figures import Collected, Figures
from benchmarks.postgres_history import Database
from benchmarks.postgres_readers import Debezium, Headwater, copy, receive
from scripts.embedded_postgres import embedded_postgres

SNAPSHOT_ROWS, INSERTED, UPDATED, SINGLE = 2_000_000, 1_000_000, 500_000, 200_000
GIANT, TICKED = 5_000_000, 2_000
KEPT_ROWS = 200_000
"""Read before anything is measured: so many that the compiler is sent for, whose code is then kept.
Else the first measurement in a new copy of the sources would hold its work."""
SERVER = {"max_wal_size": "16GB", "shared_buffers": "512MB", "wal_sender_timeout": "5min"}


ROWS = (
    Row("snapshot-1", "snapshot, one connection, rows/s", "per_second", 400_000, True, times=5),
    Row("snapshot-2", "snapshot, two connections, rows/s", "per_second", 600_000, True, times=5),
    Row("catch-up", "catch-up, inserts in transactions of 1,000, rows/s", "per_second", 200_000,
        True, plain_goal=130_000, times=4),
    Row("full", "catch-up, updates with whole rows before, in 100s, rows/s", "per_second", 100_000,
        True),
    Row("single", "catch-up, transactions of one row, rows/s", "per_second", 60_000, True),
    Row("latency", "commit to readable in the log at 200/s, p50, ms", "p50_ms", 3, False),
    Row("latency", "the same, p99, ms", "p99_ms", 10, False),
    Row("giant", "one transaction of 5 M rows, source process, MB PSS", "pss_mb", 250, False),
    Row("catch-up", "catch-up, source process, MB PSS", "pss_mb", 250, False),
    Row("snapshot-2", "snapshot, two connections, source process, MB PSS", "pss_mb", None, False),
    Row("catch-up", "catch-up, CPU seconds per million rows", "cpu_s_per_million", None, False),
    Row("snapshot-1", "snapshot, CPU seconds per million rows", "cpu_s_per_million", None, False),
    Row("start", "start to the first event, s", "seconds", 1, False),
)  # fmt: skip
STAGES = ("snapshot", "catch-up", "full", "single", "latency", "start", "giant")


class Round:
    """Every reader in turn over the same history, alone each time."""

    def __init__(
        self,
        database: Database,
        ours: Headwater,
        debezium: Debezium,
        collected: Collected,
        shrink: int,
    ) -> None:
        self._database, self._ours, self._debezium = database, ours, debezium
        self._collected, self._shrink = collected, shrink

    def run(self, stage: str) -> None:
        measure: Callable[[], None] = getattr(self, stage.replace("-", "_"))
        measure()

    def snapshot(self) -> None:
        rows = SNAPSHOT_ROWS // self._shrink
        self._database.new_table(rows=rows)
        copy(self._database, rows, parts=1)  # brings the table into memory for everybody
        for parts in (1, 2):
            name, ours = f"snapshot-{parts}", partial(self._ours.snapshot, rows, parallel=parts)
            self._add(name, LIMIT, partial(copy, self._database, rows, parts=parts))
            self._add(name, OURS, ours)
            self._add(name, PLAIN, partial(ours, speed="python"))
        self._add("snapshot-1", DEBEZIUM, lambda: self._debezium.snapshot(rows))
        found = self._collected.figures["snapshot-1"][DEBEZIUM]
        if found:
            self._collected.add("snapshot-2", DEBEZIUM, found[-1])

    def catch_up(self) -> None:
        rows = INSERTED // self._shrink
        self._database.new_table()
        self._streamed("catch-up", rows, lambda: self._database.insert(rows, each=1_000))

    def full(self) -> None:
        rows = UPDATED // self._shrink
        self._database.new_table(rows=rows, identity="FULL")
        self._streamed("full", rows, lambda: self._database.update(rows, each=100))

    def single(self) -> None:
        rows = SINGLE // self._shrink
        self._database.new_table()
        self._streamed("single", rows, lambda: self._database.insert_singly(rows))

    def giant(self) -> None:
        rows = GIANT // self._shrink
        self._database.new_table()
        with self._database.slot_before(lambda: self._database.insert(rows, each=rows)) as slot:
            self._add("giant", OURS, lambda: self._ours.catch_up(slot, rows))

    def latency(self) -> None:
        """With the server's own disk synced too. What the stages before have left to be written is
        written first: it would be on its way beside whoever is measured first, and slow its syncs.
        """
        count = WARM_UP + TICKED // self._shrink
        self._database.execute(
            "ALTER SYSTEM SET fsync = on", "SELECT pg_reload_conf()", "CHECKPOINT"
        )
        os.sync()
        self._add("latency", OURS, lambda: self._ticks_in_log(count))
        self._add("latency", DEBEZIUM, lambda: self._ticks_at_debezium(count, {}))
        quick = {"poll.interval.ms": "5"}
        self._add("latency", TUNED, lambda: self._ticks_at_debezium(count, quick))
        self._database.execute("ALTER SYSTEM RESET fsync", "SELECT pg_reload_conf()")

    def start(self) -> None:
        self._database.new_table(rows=1)
        self._add("start", OURS, self._ours.start)
        self._add("start", DEBEZIUM, self._debezium.start)

    def _streamed(self, name: str, rows: int, history: Callable[[], None]) -> None:
        with self._database.slot_before(history) as origin:
            readers: tuple[tuple[str, Callable[[str], Figures]], ...] = (
                (LIMIT, lambda slot: receive(self._database, slot, rows)),
                (OURS, lambda slot: self._ours.catch_up(slot, rows)),
                (PLAIN, lambda slot: self._ours.catch_up(slot, rows, speed="python")),
                (DEBEZIUM, lambda slot: self._debezium.catch_up(slot, rows)),
            )
            for who, read in readers:
                with self._database.copied(origin) as slot:
                    self._add(name, who, partial(read, slot))

    def _add(self, name: str, who: str, measure: Callable[[], Figures]) -> None:
        add_measured(self._collected, name, who, measure)

    def _ticks_in_log(self, count: int) -> Figures:
        self._database.new_ticks()
        with self._ours.following(count) as arrivals:
            committed = ticked("benchmarks.postgres_history", self._database.address, str(count))
            return waits(committed, arrivals())

    def _ticks_at_debezium(self, count: int, more: dict[str, str]) -> Figures:
        self._database.new_ticks()
        with self._debezium.following(count, more) as arrivals:
            committed = ticked("benchmarks.postgres_history", self._database.address, str(count))
            return waits(committed, arrivals())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--shrink", type=int, default=1)
    parser.add_argument("--only", nargs="*", default=STAGES, choices=STAGES)
    chosen = parser.parse_args()
    compile_as_installed()
    collected = Collected()
    with embedded_postgres(settings=SERVER) as server:
        database = Database(server.address, server.home)
        for number in range(chosen.rounds):
            with tempfile.TemporaryDirectory(prefix="headwater-bench-") as directory:
                place = Path(directory)
                debezium = Debezium.made(place, database)
                if not number:
                    keep_compiled_code(place, database)
                for stage in chosen.only:
                    if stage == "giant" and number:
                        continue
                    # A new broker for each, so that no log grows into another's figures.
                    with fresh_ground(place, stage) as ours_in:
                        ours = Headwater(ours_in[0], database, ours_in[1])
                        Round(database, ours, debezium, collected, chosen.shrink).run(stage)
            if chosen.shrink == 1:
                keep("postgres", collected, page)
    print(page(collected, chosen.shrink))


def keep_compiled_code(place: Path, database: Database) -> None:
    database.new_table(rows=KEPT_ROWS)
    with fresh_ground(place, "compiled") as (directory, bootstrap):
        Headwater(directory, database, bootstrap).snapshot(KEPT_ROWS, parallel=1)


def page(collected: Collected, shrink: int) -> str:
    lines = [
        "# PostgreSQL into the log, measured",
        "",
        f"Written by `benchmarks/postgres.py`: {os.cpu_count()} cores shared by the server, the"
        " readers and",
        "a broker process; rows of 10 columns, about 250 bytes; TCP on the loopback, no TLS. Ours"
        " go into the embedded",
        "log: JSON envelope, keys, zstd, fsync, decimals as strings. Debezium 3.6.3's engine hands"
        " its events to a counter,",
        "without a broker; its rates are from its first event to its last, ours of the whole run."
        " The limit is pg_recvlogical, or",
        "COPY by psql, into nothing. Latencies leave out the first second of writing, in which all"
        " readers still start, and",
        "begin when all that was written before is on disk. What Headwater compiles was kept by an"
        " earlier run.",
        "Medians, with the least, the largest and the number of rounds.",
        "",
        *table_of(ROWS, collected),
    ]
    return "\n".join([*lines, *end_of(collected, shrink)])


if __name__ == "__main__":
    main()
