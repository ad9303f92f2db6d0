"""A table that is read again as a whole, beside 10,000 changes a second of other tables."""

# Run it on a quiet machine: python -m benchmarks.reread [--rounds 3] [--rows 2000000] [--only ...]

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import quantiles
from typing import Any

import psycopg

from benchmarks.bytecode import compile_as_installed
from benchmarks.figures import Figures
from benchmarks.goals import Row, table_of
from benchmarks.pipelines import ENVIRONMENT, wait_for
from benchmarks.postgres_history import COLUMNS, ROW, TABLE, Database
from benchmarks.postgres_readers import PATIENCE_S, consumer_of
from benchmarks.processes import PeakMemory, busy_s
from scripts.embedded_postgres import embedded_postgres

RESULTS = Path(__file__).parent / "results"
SERVER = {"max_wal_size": "16GB", "shared_buffers": "512MB", "wal_sender_timeout": "5min"}
ROWS, LARGE_ROWS = 2_000_000, 20_000_000
COUNTERS, ROWS_EACH, PER_S = 10_000, 99, 100
"""Rows of the other table; how many of them a transaction changes, with one tick; and how many
transactions there are in a second."""
QUIET_S, LOOK_S = 10, 0.2
"""Of changes before the statement, by which those beside the reading are measured."""
PIPELINE = """
pipeline: reread
source: {{type: postgres, url: '{url}', tables: [public.{table}, public.others, public.ticks]}}
sink: {{type: files, path: lake}}
"""
WIDE = f"SELECT {ROW} FROM generate_series(1, {{rows}}) i"
NARROW = "SELECT i, i % 1000, i % 7 FROM generate_series(1, {rows}) i"
STATEMENT = f"ALTER TABLE {TABLE} ALTER quantity TYPE int8 USING quantity * 2"


class Load:
    """Every transaction has a tick that says when it was written."""

    def __init__(self, address: str) -> None:
        self._address, self._is_over = address, threading.Event()
        self._thread = threading.Thread(target=self._run)

    @contextmanager
    def running(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._is_over.set()
            self._thread.join()

    def _run(self) -> None:
        with psycopg.connect(self._address, autocommit=True) as connection:
            connection.execute("SET synchronous_commit = off")
            begun, number = time.perf_counter(), 0
            while not self._is_over.is_set():
                first, number = number * ROWS_EACH % COUNTERS, number + 1
                connection.execute(
                    f"UPDATE others SET n = n + 1 WHERE id >= {first} AND id < {first + ROWS_EACH};"
                    f" INSERT INTO ticks VALUES ({number}, {time.time_ns() // 1_000})".encode()
                )
                self._is_over.wait(max(0.0, begun + number / PER_S - time.perf_counter()))


class Arrivals:
    """By the moment when each tick was written, how much later it could be read in the log."""

    def __init__(self, address: str) -> None:
        self._lags = list[tuple[float, float]]()
        self._consumer = consumer_of(address, "reread.public.ticks")
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    @contextmanager
    def taken(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._is_over.set()
            self._thread.join()
            self._consumer.close()

    def _run(self) -> None:
        while not self._is_over.is_set():
            message = self._consumer.poll(LOOK_S)
            if message is not None and message.error() is None:
                written_s = json.loads(message.value())["after"]["at_us"] / 1e6
                self._lags.append((written_s, time.time() - written_s))

    def between(self, begun_s: float, ended_s: float) -> list[float]:
        """Once a tick has come that was written later."""
        while not self._lags or self._lags[-1][0] < ended_s:
            time.sleep(LOOK_S)
        return [lag for at_s, lag in self._lags if begun_s <= at_s <= ended_s]


def measure(database: Database, *, rows: int, columns: str, made: str) -> Figures:
    """From the statement until all rows are in the log again."""
    make_tables(database, columns=columns, made=made.format(rows=rows))
    with (
        tempfile.TemporaryDirectory(prefix="headwater-bench-") as name,
        running(database, Path(name)) as (process, address),
    ):
        topic = Topic(address, f"reread.public.{TABLE}")
        topic.wait_for(rows)
        arrivals, load = Arrivals(address), Load(database.address)
        with load.running(), arrivals.taken():
            time.sleep(QUIET_S)
            quiet = arrivals.between(time.time() - QUIET_S / 2, time.time())
            before = topic.count()
            database.execute(STATEMENT)
            topic.wait_for(before + 1)
            begun_s, busy = time.time(), busy_s()
            with PeakMemory(process.pid).watching() as peak:
                topic.wait_for(before + rows)
            ended_s = time.time()
            cores = (busy_s() - busy) / (ended_s - begun_s)
            lags = arrivals.between(begun_s, ended_s)
    return {
        "seconds": ended_s - begun_s,
        "per_second": rows / (ended_s - begun_s),
        "lag_max_s": max(lags),
        "lag_p99_s": quantiles(lags, n=100)[98],
        "quiet_lag_max_s": max(quiet),
        "pss_mb": peak.mb,
        "busy_cores": cores,
    }


def make_tables(database: Database, *, columns: str, made: str) -> None:
    database.execute(
        f"DROP TABLE IF EXISTS {TABLE}, others, ticks",
        f"CREATE TABLE {TABLE} ({columns})",
        "CREATE TABLE others (id int PRIMARY KEY, n int NOT NULL)",
        "CREATE TABLE ticks (id int8 PRIMARY KEY, at_us int8 NOT NULL)",
        "INSERT INTO ticks VALUES (0, 0)",
        f"INSERT INTO others SELECT i, 0 FROM generate_series(0, {COUNTERS - 1}) i",
        f"INSERT INTO {TABLE} {made}",
        f"VACUUM ANALYZE {TABLE}",
        "CHECKPOINT",
    )


@contextmanager
def running(database: Database, directory: Path) -> "Iterator[tuple[subprocess.Popen[bytes], str]]":
    """`headwater run` as users start it."""
    pipeline = PIPELINE.format(url=database.address, table=TABLE)
    (directory / "pipeline.yaml").write_text(pipeline)
    command = [sys.executable, "-m", "headwater.pipelines.cli", "run", "--quiet"]
    process = subprocess.Popen(command, cwd=directory, env=ENVIRONMENT)
    try:
        endpoint = directory / "data" / "endpoint.json"
        wait_for(endpoint.exists)
        yield process, json.loads(endpoint.read_text())["kafka"]
    finally:
        process.terminate()
        process.wait(PATIENCE_S)
        database.drop("headwater_reread")


class Topic:
    """How many records a table's topic has, transaction markers among them."""

    def __init__(self, address: str, name: str) -> None:
        self._consumer, self._name = consumer_of(address, name), name
        found: Any = self._consumer.list_topics(name, timeout=5).topics[name]
        self._partitions = sorted(found.partitions)

    def wait_for(self, count: int) -> None:
        while self.count() < count:
            time.sleep(LOOK_S)

    def count(self) -> int:
        from confluent_kafka import TopicPartition

        places = (TopicPartition(self._name, number) for number in self._partitions)
        return sum(self._consumer.get_watermark_offsets(each)[1] for each in places)


def measured_wide(database: Database, rows: int) -> Figures:
    return measure(database, rows=rows, columns=COLUMNS, made=WIDE)


def measured_narrow(database: Database, rows: int) -> Figures:
    narrow = "id int8 PRIMARY KEY, customer int4, quantity int4"
    return measure(database, rows=rows, columns=narrow, made=NARROW)


def table_rows(rows: int, large: int) -> tuple[Row, ...]:
    wide, narrow = partial(measured_wide, rows=rows), partial(measured_narrow, rows=large)
    what = f"{rows:,} rows of 10 columns are read again"
    much = f"{large:,} rows of 3 columns are read again"
    return (
        Row("lag", f"{what}: lag of other tables at 10,000 changes/s, largest, s", "lag_max_s", 5,
            False, wide),
        Row("lag", "the same, p99, s", "lag_p99_s", None, False, wide),
        Row("lag", "the same, just before it, largest, s", "quiet_lag_max_s", None, False, wide),
        Row("lag", "rows/s that are read again meanwhile", "per_second", None, True, wide),
        Row("lag", "all processes of the run, MB PSS", "pss_mb", None, False, wide),
        Row("memory", f"{much}: all processes of the run, MB PSS", "pss_mb", None, False, narrow),
        Row("memory", "the same: lag of other tables, largest, s", "lag_max_s", 5, False, narrow),
        Row("memory", "rows/s that are read again meanwhile", "per_second", None, True, narrow),
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--large", type=int, default=LARGE_ROWS)
    parser.add_argument("--only", nargs="*", default=["lag", "memory"], choices=["lag", "memory"])
    chosen = parser.parse_args()
    compile_as_installed()
    table = table_rows(chosen.rows, chosen.large)
    found = dict[str, list[Figures]]()
    with embedded_postgres(settings=SERVER) as server:
        database = Database(server.address, server.home)
        for name in chosen.only:
            row = next(row for row in table if row.name == name)
            for _ in range(chosen.rounds if name == "lag" else 1):
                found.setdefault(name, []).append(row.measure(database))
                print(f"{name}: {found[name][-1]}", file=sys.stderr)
    if (chosen.rows, chosen.large) == (ROWS, LARGE_ROWS):
        kept = RESULTS / "reread.json"
        found = {**json.loads(kept.read_text()), **found}  # what is not measured now stays
        kept.write_text(json.dumps(found, indent=1) + "\n")
        RESULTS.joinpath("reread.md").write_text(page(table, found))
    print(page(table, found))


def page(table: tuple[Row, ...], found: dict[str, list[Figures]]) -> str:
    busy = [each["busy_cores"] for rounds in found.values() for each in rounds]
    lines = [
        "# A table that is read again, measured",
        "",
        f"Written by `benchmarks/reread.py`: {os.cpu_count()} cores shared by the server, a"
        " `headwater run` with a target of",
        "files, the load and the reader of the log; all of it together kept"
        f" {max(busy):.1f} cores busy. A lag is from the",
        "statement that writes a row until somebody else's client has it from the log. Medians,"
        " with the least, the largest and",
        "the number of rounds.",
        "",
        *table_of(table, found),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
