"""The lake: how fast topics become tables, beside Spark's own means, and are proved equal."""

# Run it on a quiet machine: python -m benchmarks.lake [--rounds 5] [--only ROW ...] [--share 1.0]
# Topics and tables to begin with are made once, in the first round, which tells how long that took;
# rows that are not named keep the figures that they have in results/lake.json.

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import csv

from benchmarks.bytecode import compile_as_installed
from benchmarks.figures import Figures
from benchmarks.goals import Row, table_of
from benchmarks.pipelines import ENVIRONMENT, NOWHERE, PATIENCE_S, ROOT, Ground, fresh, ground_of
from benchmarks.processes import PeakMemory, busy_s
from tests.databases import database_in, running_postgres

RESULTS = Path(__file__).parent / "results"
EVENTS, KEYS = 5_000_000, 1_000_000
BASE_ROWS = 1_000_000
RANGE_ROWS, RANGE_CHANGES = 20_000_000, 10_000
MANY_EVENTS = 20_000_000
HISTORY_EVENTS = 10_000_000
WARMING = {30_000: "warming-here", 300_000: "warming"}
"""Events of a slice that is applied in the sink's own process, and of one that Spark is given, and
the pipelines that have them. They do not follow the share, since from how many rows on Spark is
given a slice does not either: with fewer, a first look would measure how Spark starts."""
RUNNING_S = 5


@dataclass(slots=True)
class Lake:
    """A broker with topics in it, each filled once, and tables that grow from round to round."""

    ground: Ground
    postgres: str
    share: float
    """Of the sizes that the table names."""
    number: int = 0
    """Of the round."""
    files: dict[str, Path] = field(default_factory=dict)
    """Pipelines whose tables are there, by name."""

    def many(self, count: int) -> int:
        return max(int(count * self.share), 2_000)

    def path(self) -> Path:
        return self.ground.directory / fresh("lake")

    def events(self, total: int, *, keys: int, name: str) -> str:
        """The name of a pipeline whose topic holds so many events over so many keys."""
        marker = self.ground.directory / f"{name}-{total}"
        if not marker.exists():
            self.ground.task(
                self.ground.pipeline(wide(total, keys=keys), NOWHERE, name=name), "source"
            )
            marker.touch()
        return name

    def sink(self, name: str, path: Path, *, source: str = "", more: str = "") -> Path:
        """A pipeline file with a sink named `lake`."""
        sink = f"{{type: spark, name: lake, path: {path}, commit_every: 0s{more}}}"
        return self.ground.pipeline(source or wide(1_000, keys=1_000), sink, name=name)

    def tasks(self, *files: tuple[Path, str]) -> list[Figures]:
        """One after the other in one process; the last one is what counts."""
        words = [str(word) for pair in files for word in pair]
        command = [sys.executable, "-m", "benchmarks.pipeline_task", *words]
        return figures_of(command)

    def warming(self) -> list[tuple[Path, str]]:
        """What a process that has run for a while has done."""
        found = []
        for events, name in WARMING.items():
            self.events(events, keys=events // 2, name=name)
            found.append((self.sink(name, self.path()), "lake"))
        return found

    @contextmanager
    def running(self, file: Path) -> Iterator[None]:
        """The pipeline goes on, as a source's place in its log does."""
        command = [sys.executable, "-m", "headwater.pipelines.cli", "run", str(file), "--quiet"]
        process = subprocess.Popen(command, env=ENVIRONMENT)
        try:
            time.sleep(RUNNING_S)
            yield
        finally:
            process.terminate()
            process.wait(PATIENCE_S)

    def warm_command(self, *commands: tuple[Path, Sequence[str]]) -> float:
        """One after the other in one process; the last one is what counts."""
        words = [["--then", *arguments, "-f", str(file), "--quiet"] for file, arguments in commands]
        program = [sys.executable, "-m", "benchmarks.warm_command"]
        return figures_of([*program, *(word for each in words for word in each)])[-1]["seconds"]

    def command(self, file: Path, *arguments: str) -> float:
        begun = time.perf_counter()
        command = [
            sys.executable,
            "-m",
            "headwater.pipelines.cli",
            *arguments,
            "-f",
            str(file),
            "--quiet",
        ]
        subprocess.run(
            command, env=ENVIRONMENT, check=True, timeout=PATIENCE_S, stdout=subprocess.DEVNULL
        )
        return time.perf_counter() - begun


def wide(total: int, *, keys: int) -> str:
    return (
        f"{{type: generator, mode: wide, size: {keys}, total: {total}, rate: 0, updates: 0.99,"
        " deletes: 0.003}"
    )


def figures_of(command: Sequence[str]) -> list[Figures]:
    done = subprocess.run(
        command, env=ENVIRONMENT, stdout=subprocess.PIPE, check=True, timeout=PATIENCE_S
    )
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith(b"{")]


def first(lake: Lake) -> Figures:
    """Ours and theirs, each in a process of its own that has done some of it before."""
    total = lake.many(EVENTS)
    name = lake.events(total, keys=lake.many(KEYS), name="first")
    ours = lake.tasks(*lake.warming(), (lake.sink(name, lake.path()), "lake"))[-1]
    jars = subprocess.run(
        [str(ROOT / "scripts/fetch_spark_jars.sh")], capture_output=True, text=True, check=True
    ).stdout.strip()
    program = [sys.executable, "-m", "benchmarks.lake_rival", jars, lake.ground.bootstrap]
    topics = [f"{each}.shop.wide" for each in (*WARMING.values(), name)]
    theirs = figures_of([*program, str(lake.path()), *topics])[-1]
    return {
        "per_second": total / ours["seconds"],
        "rival_per_second": total / theirs["seconds"],
        "times_rival": theirs["seconds"] / ours["seconds"],
    }


def increment(count: int) -> Callable[[Lake], Figures]:
    def measure(lake: Lake) -> Figures:
        """What comes after the base, onto the table that holds it, in a warm process."""
        base, more = lake.many(BASE_ROWS), lake.many(count)
        name = f"increment{count}"
        if name not in lake.files:
            lake.events(base, keys=base, name=name)
            lake.files[name] = lake.sink(name, lake.path())
            lake.tasks((lake.files[name], "lake"))
        lake.events(base + more * (lake.number + 1), keys=base, name=name)
        return {"seconds": lake.tasks(*lake.warming(), (lake.files[name], "lake"))[-1]["seconds"]}

    return measure


def in_range(lake: Lake) -> Figures:
    """Changes of neighbouring keys of a large table, whose files hold ranges of the key."""
    rows, changes = lake.many(RANGE_ROWS), lake.many(RANGE_CHANGES)
    directory = lake.ground.directory / "range"
    if "range" not in lake.files:
        directory.mkdir()
        source = f"{{type: files, path: '{directory}/*.csv', format: csv, key: [id], table: rows}}"
        lake.files["range"] = file = lake.sink("range", lake.path(), source=source)
        write_rows(directory / "all.csv", range(rows))
        lake.tasks((file, "source"), (file, "lake"))
    step = max(rows // 100 // changes, 1)
    start = rows // 3 + lake.number * rows // 50
    return changed(lake, f"near{lake.number}", range(start, start + changes * step, step))


def everywhere(lake: Lake) -> Figures:
    """As many changes of the same table, but of keys all over it: every file is written anew."""
    rows, changes = lake.many(RANGE_ROWS), lake.many(RANGE_CHANGES)
    if "range" not in lake.files:
        in_range(lake)
    return changed(lake, f"far{lake.number}", range(lake.number, rows, rows // changes))


def changed(lake: Lake, name: str, ids: range) -> Figures:
    file = lake.files["range"]
    write_rows(lake.ground.directory / "range" / f"{name}.csv", ids)
    lake.tasks((file, "source"))
    return {"seconds": lake.tasks(*lake.warming(), (file, "lake"))[-1]["seconds"]}


def write_rows(path: Path, ids: range) -> None:
    numbers = np.arange(ids.start, ids.stop, ids.step)
    for begin in range(0, len(numbers), 2_000_000):
        part = numbers[begin : begin + 2_000_000]
        rows = pa.table({"id": part, "quantity": part % 97, "price": part % 10_000 / 100})
        with path.open("ab") as out:
            csv.write_csv(rows, out, csv.WriteOptions(include_header=begin == 0))


def memory(lake: Lake) -> Figures:
    """A topic far larger than the heap, from nothing."""
    total = lake.many(MANY_EVENTS)
    name = lake.events(total, keys=total // 5, name="many")
    file = lake.sink(name, lake.path(), more=", memory: 1GiB")
    command = [sys.executable, "-m", "benchmarks.pipeline_task", str(file), "lake"]
    with (
        subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.DEVNULL) as process,
        PeakMemory(process.pid).watching() as peak,
    ):
        code = process.wait(PATIENCE_S)
    if code != 0:
        raise SystemExit("a heap of 1 GiB was not enough")
    return {"pss_mb": peak.mb}


def rebuilt(*options: str) -> Callable[[Lake], Figures]:
    def measure(lake: Lake) -> Figures:
        """From the command to its end, in a process that has rebuilt another table before."""
        total = lake.many(EVENTS)
        name = lake.events(total, keys=lake.many(KEYS), name="first")
        [*_, (before, _)] = lake.warming()
        [*_, (events, warming)] = WARMING.items()
        return {
            "seconds": lake.warm_command(
                (before, rebuild_of(warming, events, lake.path(), options)),
                (lake.sink(name, lake.path()), rebuild_of(name, total, lake.path(), options)),
            )
        }

    return measure


def rebuild_of(name: str, total: int, into: Path, options: Sequence[str]) -> list[str]:
    cut_point = f"0:{total * 9 // 10}"
    return ["rebuild", f"{name}/shop.wide", "--as-of", cut_point, "--into", str(into), *options]


def history(lake: Lake) -> Figures:
    total = lake.many(HISTORY_EVENTS)
    name = lake.events(total, keys=lake.many(KEYS), name="history")
    file = lake.sink(name, lake.path())
    return {"seconds": lake.command(file, "rows", f"{name}/shop.wide", "4711", "--history")}


def verified(lake: Lake) -> Figures:
    """PostgreSQL against Delta, a million rows, from the command to its end."""
    import psycopg

    rows = lake.many(BASE_ROWS)
    with database_in(lake.postgres, fresh("verified")) as address:
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(
                "CREATE TABLE items (id bigint PRIMARY KEY, name text, amount numeric(12, 2),"
                " at timestamptz)"
            )
            connection.execute(
                "INSERT INTO items SELECT n, 'item ' || n, n % 100000 / 100.0, now()"
                f" FROM generate_series(1, {rows}) AS n"
            )
        name = fresh("verified")
        source = f"{{type: postgres, url: '{address}', tables: [public.*]}}"
        file = lake.sink(name, lake.path(), source=source)
        lake.tasks((file, "source"), (file, "lake"))
        with lake.running(file):
            seconds = lake.command(file, "verify", name)
        lake.command(file, "drop", name, "--yes")
    return {"seconds": seconds}


TABLE = (
    Row("first", "5 M events, 1 M keys to a Delta table, warm, events/s", "per_second", 600_000,
        True, first),
    Row("rival", "the same by Spark's Kafka source, from_json and MERGE: ours, times as fast",
        "times_rival", 1.5, True, first),
    Row("10k", "10 k events onto a table of 1 M rows, s", "seconds", 1.2, False, increment(10_000)),
    Row("100k", "100 k events, s", "seconds", 1.8, False, increment(100_000)),
    Row("1m", "1 M events, s", "seconds", 4, False, increment(1_000_000)),
    Row("range", "10 k events within 1 % of the keys of 20 M rows, s", "seconds", 3, False,
        in_range),
    Row("everywhere", "10 k events over all keys of 20 M rows, s", "seconds", None, False,
        everywhere),
    Row("memory", "20 M events with a heap of 1 GiB: all processes, MB PSS", "pss_mb", None,
        False, memory),
    Row("rebuild", "rebuild --as-of of 5 M events, warm, s", "seconds", 10,
        False, rebuilt()),
    Row("proved", "the same with --verify, s", "seconds", 20, False, rebuilt("--verify")),
    Row("history", "rows KEY --history in 10 M records, s", "seconds", 2, False, history),
    Row("verify", "verify of 1 M rows, PostgreSQL against Delta, s", "seconds", 8, False, verified),
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=[row.name for row in TABLE])
    parser.add_argument("--share", type=float, default=1.0, help="of the sizes; for a first look")
    chosen = parser.parse_args()
    compile_as_installed()
    found: dict[str, list[Figures]] = {}
    with (
        running_postgres() as postgres,
        tempfile.TemporaryDirectory(prefix="headwater-bench-") as directory,
        ground_of(Path(directory), postgres) as ground,
    ):
        lake = Lake(ground, postgres, chosen.share)
        for lake.number in range(chosen.rounds):
            measure_round(lake, chosen.only, found)
            print(f"round {lake.number + 1} is done", file=sys.stderr)
            if chosen.share == 1:
                keep(found)
    print(page(found))


def keep(found: dict[str, list[Figures]]) -> None:
    """Beside what was measured at other times of other rows."""
    path = RESULTS / "lake.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    every = {row.name: (known | found)[row.name] for row in TABLE if row.name in known | found}
    path.write_text(json.dumps(every, indent=1) + "\n")
    (RESULTS / "lake.md").write_text(page(every))


def measure_round(lake: Lake, only: Sequence[str], found: dict[str, list[Figures]]) -> None:
    """Rows that share a measurement take it from the same run; what fails is said, and left out."""
    done: dict[Callable[[Lake], Figures], Figures] = {}
    for row in TABLE:
        if row.name not in only:
            continue
        if row.measure not in done:
            busy, begun = busy_s(), time.perf_counter()
            try:
                done[row.measure] = row.measure(lake)
            except subprocess.SubprocessError as error:
                print(f"{row.name} could not be measured: {error}", file=sys.stderr)
                continue
            took = time.perf_counter() - begun
            said = f"took {took:.0f} s, {(busy_s() - busy) / took:.1f} cores busy"
            print(f"{row.name}: {done[row.measure]}, {said}", file=sys.stderr)
        found.setdefault(row.name, []).append(done[row.measure])


def page(found: dict[str, list[Figures]]) -> str:
    lines = [
        "# The lake, measured",
        "",
        f"Written by `benchmarks/lake.py` on {os.cpu_count()} cores: a broker process, and the",
        "sink or the command in another. Medians, with the least, the largest and the number of",
        "rounds.",
        "",
        *table_of(TABLE, found),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
