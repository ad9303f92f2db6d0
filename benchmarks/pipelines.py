"""Pipelines from end to end: rates per step, start, latency and memory."""

# Run it on a quiet machine: python -m benchmarks.pipelines [--rounds 5] [--only ROW ...]

import argparse
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from statistics import quantiles

import numpy as np
import pyarrow as pa
from pyarrow import csv

from benchmarks.bytecode import compile_as_installed
from benchmarks.figures import Figures
from benchmarks.goals import Row, table_of
from benchmarks.processes import PeakMemory, busy_s
from headwater.pipelines.cli import NO_MATRICES
from headwater.pipelines.running.worker_start import MEMORY
from tests.databases import running_postgres

ROOT = Path(__file__).resolve().parents[1]
RESULTS = Path(__file__).parent / "results"
ENVIRONMENT = {**MEMORY, **dict([NO_MATRICES]), **os.environ, "PYTHONPATH": str(ROOT)}
"""As workers have it."""
ROWS = 1_000_000
LATENCY_ROWS, LATENCY_PER_S = 1_000, 100
MEMORY_ROWS = 4_000_000
PATIENCE_S = 600

FILTERED = '[{table: "*", filter: "quantity >= 0", add: {twice: "quantity * 2"}}]'


class Ground:
    """A directory, a broker in it, and a log filled once per round for all sinks."""

    def __init__(self, directory: Path, postgres: str) -> None:
        self.directory, self.postgres = directory, postgres
        self.bootstrap = ""
        self._files = 0

    def pipeline(self, source: str, sink: str, *, name: str, more: str = "") -> Path:
        self._files += 1
        path = self.directory / f"{name}-{self._files}.yaml"
        path.write_text(
            f"pipeline: {name}\nsource: {source}\nsink: {sink}\n"
            f"log: {{type: kafka, bootstrap: '{self.bootstrap}'}}\n{more}\n"
        )
        return path

    def task(self, path: Path, task: str) -> Figures:
        command = [sys.executable, "-m", "benchmarks.pipeline_task", str(path), task]
        done = subprocess.run(
            command, env=ENVIRONMENT, stdout=subprocess.PIPE, check=True, timeout=PATIENCE_S
        )
        figures: Figures = json.loads(done.stdout)
        return figures


WIDE = f"{{type: generator, mode: wide, size: 1000, total: {ROWS}, rate: 0, updates: 0.2}}"
NOWHERE = "{type: console}"


def generator_to_log(ground: Ground) -> Figures:
    return ground.task(ground.pipeline(WIDE, NOWHERE, name=fresh("generator")), "source")


def csv_to_log(ground: Ground) -> Figures:
    return files_to_log(ground, "csv")


def jsonl_to_log(ground: Ground) -> Figures:
    return files_to_log(ground, "jsonl")


def files_to_log(ground: Ground, format: str) -> Figures:
    path = write_rows(ground.directory / f"rows.{format}", ROWS)
    source = f"{{type: files, path: {path}, format: {format}, key: [id], table: rows}}"
    return ground.task(ground.pipeline(source, NOWHERE, name=fresh(format)), "source")


def log_to_sqlite(ground: Ground) -> Figures:
    target = ground.directory / f"{fresh('target')}.db"
    return sink_of(ground, f"{{type: sql, url: 'sqlite:///{target}'}}")


def log_to_postgres(ground: Ground) -> Figures:
    sink = f"{{type: sql, url: '{ground.postgres}', table: '{fresh('t')}_{{table}}'}}"
    return sink_of(ground, sink)


def log_to_parquet(ground: Ground) -> Figures:
    return sink_of(ground, f"{{type: files, path: {ground.directory / fresh('lake')}}}")


def transformed(ground: Ground) -> Figures:
    """How much longer the same delivery takes with a filter and an added column."""
    name = filled(ground)

    def delivered(more: str) -> float:
        sink = f"{{type: files, path: {ground.directory / fresh('lake')}, name: {fresh('sink')}}}"
        path = ground.pipeline(WIDE, sink, name=name, more=more)
        [task] = [line.rpartition("name: ")[2].rstrip("}") for line in sink.splitlines()]
        return ground.task(path, task)["seconds"]

    plain = [delivered(""), delivered("")]
    changed = [delivered(f"transform: {FILTERED}"), delivered(f"transform: {FILTERED}")]
    return {"more": min(changed) / min(plain) - 1}


def sink_of(ground: Ground, sink: str) -> Figures:
    name = fresh("sink")
    sink = f"{sink.rstrip('}')}, name: {name}}}"
    return ground.task(ground.pipeline(WIDE, sink, name=filled(ground)), name)


def filled(ground: Ground) -> str:
    """The pipeline whose topic holds the rows; filled when first asked for."""
    if not (ground.directory / "filled").exists():
        ground.task(ground.pipeline(WIDE, NOWHERE, name="filled"), "source")
        (ground.directory / "filled").touch()
    return "filled"


def start(ground: Ground) -> Figures:
    """From the command to the first row in the target, everything new."""
    directory = ground.directory / fresh("start")
    directory.mkdir()
    (directory / "rows.csv").write_text("id,name\n1,a\n2,b\n")
    (directory / "pipeline.yaml").write_text(
        "pipeline: start\nsource: {type: files, path: rows.csv, key: id}\n"
        "sink: {type: sql, url: 'sqlite:///rows.db', commit_every: 0s}\n"
    )
    begun = time.perf_counter()
    with running(directory):
        wait_for(lambda: count_in(directory / "rows.db", "rows") > 0)
        return {"seconds": time.perf_counter() - begun}


def latency(ground: Ground) -> Figures:
    """A line appended to a file until its row is seen in the table, a hundred a second."""
    directory = ground.directory / fresh("latency")
    directory.mkdir()
    file = directory / "rows.csv"
    file.write_text("id,name\n0,a\n")
    (directory / "pipeline.yaml").write_text(
        "pipeline: latency\nsource: {type: files, path: rows.csv, key: id, poll: 5ms}\n"
        "sink: {type: sql, url: 'sqlite:///rows.db', commit_every: 0s}\n"
    )
    with running(directory):
        wait_for(lambda: count_in(directory / "rows.db", "rows") > 0)
        return follow(file, directory / "rows.db")


def follow(file: Path, target: Path) -> Figures:
    """Reads the largest id in turn with the writing, so that both see the same clock."""
    sent, seen = [0.0] * (LATENCY_ROWS + 1), 0
    waits: list[float] = []
    begun, number = time.perf_counter(), 0
    with file.open("a", buffering=1) as out, closing(sqlite3.connect(target, timeout=5)) as rows:
        while seen < LATENCY_ROWS:
            now = time.perf_counter()
            if number < LATENCY_ROWS and now >= begun + number / LATENCY_PER_S:
                number += 1
                sent[number] = now
                out.write(f"{number},row\n")
            [(newest,)] = rows.execute("SELECT max(id) FROM rows").fetchall()
            now = time.perf_counter()
            waits += [now - sent[each] for each in range(seen + 1, newest + 1)]
            seen = newest
            time.sleep(0.001)
    cuts = quantiles(waits, n=100)
    return {"p50_ms": cuts[49] * 1e3, "p99_ms": cuts[98] * 1e3}


def memory(ground: Ground) -> Figures:
    """The largest sum over all processes while a large file goes into SQLite."""
    directory = ground.directory / fresh("memory")
    directory.mkdir()
    write_rows(directory / "rows.csv", MEMORY_ROWS)
    (directory / "pipeline.yaml").write_text(
        "pipeline: memory\nsource: {type: files, path: rows.csv, key: id}\n"
        "sink: {type: sql, url: 'sqlite:///rows.db'}\n"
    )
    with running(directory, "--once") as process, PeakMemory(process.pid).watching() as peak:
        process.wait(PATIENCE_S)
    return {"pss_mb": peak.mb}


@contextmanager
def running(directory: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "headwater.pipelines.cli", "run", "--quiet", *options]
    process = subprocess.Popen(command, cwd=directory, env=ENVIRONMENT)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


@contextmanager
def ground_of(directory: Path, postgres: str) -> Iterator[Ground]:
    """A broker in a process of its own, as `headwater run` has it."""
    ground = Ground(directory, postgres)
    data = directory / "data"
    command = [
        sys.executable,
        "-m",
        "headwater.pipelines.cli",
        "broker",
        "--quiet",
        "--data",
        str(data),
    ]
    process = subprocess.Popen([*command, "--listen", "127.0.0.1:0"], env=ENVIRONMENT)
    try:
        endpoint = data / "endpoint.json"
        wait_for(endpoint.exists)
        ground.bootstrap = json.loads(endpoint.read_text())["kafka"]
        yield ground
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def write_rows(path: Path, count: int) -> Path:
    """Ten columns: numbers, short texts, a decimal, a time, a flag."""
    if path.exists():
        return path
    numbers = np.arange(count)
    words = pa.array(["paid", "draft", "sent", "returned"])
    rows = pa.table(
        {
            "id": numbers,
            "customer": numbers % 50_000,
            "status": words.take(pa.array(numbers % 4)),
            "note": words.take(pa.array(numbers // 7 % 4)),
            "quantity": numbers % 9,
            "price": np.round(numbers % 10_000 / 100, 2),
            "weight": numbers % 777 / 8,
            "is_gift": numbers % 2 == 0,
            "placed_at": pa.array(1_700_000_000 + numbers).cast(pa.timestamp("s")),
            "city": words.take(pa.array(numbers // 3 % 4)),
        }
    )
    if path.suffix == ".csv":
        csv.write_csv(rows, path)
    else:
        import orjson

        with path.open("wb") as out:
            for batch in rows.to_batches(100_000):
                out.write(
                    b"".join(orjson.dumps(row, default=str) + b"\n" for row in batch.to_pylist())
                )
    return path


def count_in(path: Path, table: str) -> int:
    with suppress(sqlite3.Error), closing(sqlite3.connect(path, timeout=1)) as database:
        return int(database.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
    return 0


def wait_for(is_so: Callable[[], bool]) -> None:
    deadline = time.perf_counter() + PATIENCE_S
    while not is_so():
        if time.perf_counter() > deadline:
            raise SystemExit(f"not so within {PATIENCE_S} s")
        time.sleep(0.002)


numbers = iter(range(1_000_000))


def fresh(name: str) -> str:
    """A name that was not used before."""
    return f"{name}{next(numbers)}"


TABLE = (
    Row("generator", "generator to log, debezium-json, 10 columns, rows/s", "per_second", 500_000,
        True, generator_to_log),
    Row("csv", "CSV file to log, rows/s", "per_second", 300_000, True, csv_to_log),
    Row("jsonl", "JSON lines file to log, rows/s", "per_second", 300_000, True, jsonl_to_log),
    Row("sqlite", "log to SQLite, upserts, 20 % updates, rows/s", "per_second", 120_000, True,
        log_to_sqlite),
    Row("postgres", "log to PostgreSQL, upserts, 20 % updates, rows/s", "per_second", 100_000,
        True, log_to_postgres),
    Row("parquet", "log to Parquet files, rows/s", "per_second", 400_000, True, log_to_parquet),
    Row("transforms", "filter and added column: how much longer", "more", 0.15, False, transformed),
    Row("start", "headwater run to the first row in the target, s", "seconds", 1.5, False, start),
    Row("latency p50", "file line to SQL row at 100/s, ms", "p50_ms", 50, False, latency),
    Row("latency p99", "the same, p99, ms", "p99_ms", 200, False, latency),
    Row("memory", "all processes, file into SQLite, MB PSS", "pss_mb", 350, False, memory),
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=[row.name for row in TABLE])
    chosen = parser.parse_args()
    compile_as_installed()
    found: dict[str, list[Figures]] = {}
    with running_postgres() as postgres:
        for number in range(chosen.rounds):
            with (
                tempfile.TemporaryDirectory(prefix="headwater-bench-") as directory,
                ground_of(Path(directory), postgres) as ground,
            ):
                measure_round(ground, chosen.only, found)
            print(f"round {number + 1} is done", file=sys.stderr)
            (RESULTS / "pipelines.json").write_text(json.dumps(found, indent=1) + "\n")
            (RESULTS / "pipelines.md").write_text(page(found, chosen.rounds))
    print(page(found, chosen.rounds))


def measure_round(ground: Ground, only: list[str], found: dict[str, list[Figures]]) -> None:
    """Rows that share a measurement take it from the same run."""
    done: dict[Callable[[Ground], Figures], Figures] = {}
    for row in TABLE:
        if row.name in only:
            if row.measure not in done:
                busy, begun = busy_s(), time.perf_counter()
                done[row.measure] = row.measure(ground)
                load = (busy_s() - busy) / (time.perf_counter() - begun)
                print(f"{row.name}: {done[row.measure]}, {load:.1f} cores busy", file=sys.stderr)
            found.setdefault(row.name, []).append(done[row.measure])


def page(found: dict[str, list[Figures]], rounds: int) -> str:
    lines = [
        "# Pipelines, measured",
        "",
        f"Written by `benchmarks/pipelines.py`: {rounds} rounds, {os.cpu_count()} cores, a "
        "broker process and a worker",
        "process, zstd, fsync on, decimals as strings. Medians, with the least, the largest and "
        "the number of rounds.",
        "",
        *table_of(TABLE, found),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
