"""A first copy of tables to a lake, beside the tools that people would pick instead."""

# Run it on a quiet machine: python -m benchmarks.peers [--rounds 5] [--only CASE ...]
#     [--tools TOOL ...] [--rows 2000000] [--add]; by default the cases `one` and `eight`.
# `--add` keeps the rounds of earlier runs, for a machine that is quiet for a while only.
# Only a run with the full number of rows writes results; cases that are not named keep theirs.

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
import psycopg

from benchmarks.bytecode import compile_as_installed
from benchmarks.figures import Collected, Figures, shown, spread
from benchmarks.pipelines import ENVIRONMENT
from benchmarks.processes import PeakMemory, busy_s, cpu_s, ended_children_s
from scripts.embedded_postgres import EmbeddedPostgres, embedded_postgres

ROOT = Path(__file__).resolve().parents[1]
RESULTS = Path(__file__).parent / "results"
PATIENCE_S, LOOK_S = 1_800, 0.02
ROWS, TABLES, LARGE_TIMES, KEPT_ROWS = 2_000_000, 8, 10, 1_000_000
CHANGED_ROWS, UPDATED, INSERTED, DELETED, EACH = 500_000, 600_000, 100_000, 50_000, 1_000
STEP = 7_919
"""A prime, by which one key after the other leads to all of them."""
"""Of the catch-up: 750,000 changes in transactions of 1,000, updates and deletes in no order."""
SERVER = {"max_wal_size": "16GB", "shared_buffers": "512MB", "wal_sender_timeout": "5min"}

COLUMNS = """
    id int8 PRIMARY KEY, customer int4 NOT NULL, status text NOT NULL, amount numeric(12,2),
    quantity int4, rating float8, is_active bool NOT NULL, created_at timestamptz NOT NULL,
    name text NOT NULL, note text
"""
ROW = """
    i, i * 7 % 1000003, (ARRAY['paid', 'draft', 'sent', 'returned'])[1 + i % 4],
    (i * 37 % 1000000) / 100.0, i % 100, (i % 40) / 8.0, i % 3 = 0,
    '2026-01-01'::timestamptz + i * interval '1 ms', 'customer number ' || i * 7 % 1000003,
    md5(i::text) || md5((i + 1)::text) || ' with é at ' || md5((i + 2)::text)
        || md5((i + 3)::text)
"""
"""About 250 bytes."""
SAID = """
    md5(concat_ws('|', id, customer, status, {cents}, quantity, {eighths}, is_active::int, {us},
    name, note))
"""
IN_POSTGRES = SAID.format(
    cents="(amount * 100)::int8", eighths="(rating * 8)::int8",
    us="(extract(epoch FROM created_at) * 1000000)::int8",
)  # fmt: skip
IN_DUCKDB = SAID.format(
    cents="round(amount * 100)::int8", eighths="round(rating * 8)::int8",
    us="epoch_us(created_at::timestamptz)",
)  # fmt: skip
COPY, DUCKDB, CONNECTORX, DLT, PYSPARK = "copy", "duckdb", "connectorx", "dlt", "pyspark"
FILES, DELTA = "headwater-files", "headwater-delta"
TOOLS = {
    COPY: "COPY to /dev/null (the limit)",
    DUCKDB: "DuckDB -> Parquet",
    CONNECTORX: "ConnectorX -> Delta",
    DLT: "dlt with connectorx -> Delta",
    PYSPARK: "PySpark JDBC -> Delta",
    FILES: "**Headwater -> Parquet files**",
    DELTA: "**Headwater -> Delta**",
}
OURS = (FILES, DELTA)
SINKS = {FILES: "{type: files, path: .}", DELTA: "{type: spark, path: .}"}


@dataclass(frozen=True, slots=True)
class Goal:
    """What is to be reached."""

    seconds: float
    pss_mb: float


@dataclass(frozen=True, slots=True)
class Case:
    """Some tables to be copied."""

    name: str
    what: str
    tables: int
    rows: int
    """Of each table."""
    goals: Mapping[str, Goal] = field(default_factory=dict)
    """By tool."""
    share: float = 0
    """Of the changes that come after the copy and are measured instead of it."""


CASES = ("one", "eight", "large", "catch-up")


def cases_of(rows: int) -> dict[str, Case]:
    share = rows / ROWS
    each, large, changed = rows // TABLES, rows * LARGE_TIMES, int(CHANGED_ROWS * share)
    changes = int((UPDATED + INSERTED + DELETED) * share)
    found = (
        Case("one", f"one table of {rows:,} rows", 1, rows,
             {DELTA: Goal(10, 700), FILES: Goal(8, 350)}),
        Case("eight", f"eight tables of {each:,} rows", TABLES, each,
             {DELTA: Goal(12, 700), FILES: Goal(10, 350)}),
        Case("large", f"one table of {large:,} rows", 1, large),
        Case("catch-up", f"{changes:,} changes after a copy of {changed:,} rows", 1, changed,
             {DELTA: Goal(12, 900)}, share),
    )  # fmt: skip
    return dict(zip(CASES, found, strict=True))


@dataclass(slots=True)
class Ground:
    """A server with tables in it, and the tools."""

    server: EmbeddedPostgres
    directory: Path
    peers: Path
    collected: Collected = field(default_factory=Collected)
    sums: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Of tables that nobody changes."""

    def execute(self, *statements: str) -> None:
        with psycopg.connect(self.server.address, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def drop_slots(self) -> None:
        """Once their readers are gone."""
        with psycopg.connect(self.server.address, autocommit=True) as connection:
            while connection.execute("SELECT FROM pg_replication_slots WHERE active").fetchall():
                time.sleep(LOOK_S)
        self.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots",
            "DROP PUBLICATION IF EXISTS headwater_peers",
        )

    def sum_of(self, name: str) -> tuple[int, int]:
        """The number of rows, and a sum over all of their values."""
        if name in self.sums:
            return self.sums[name]
        part = f"('x' || substr({IN_POSTGRES}, 1, 15))::bit(60)::int8"
        with psycopg.connect(self.server.address) as connection:
            asked = f"SELECT count(*), sum({part})::text FROM {name}"
            [[count, sum_]] = connection.execute(asked.encode()).fetchall()
        self.sums[name] = int(count), int(sum_ or 0)
        return self.sums[name]


@contextmanager
def tables_in(ground: Ground, case: Case) -> Iterator[list[str]]:
    """The names of tables that are filled, and gone afterwards."""
    names = [f"t{number}" for number in range(case.tables)]
    for name in names:
        ground.execute(
            f"CREATE TABLE {name} ({COLUMNS})",
            f"INSERT INTO {name} SELECT {ROW} FROM generate_series(1, {case.rows}) i",
            f"VACUUM ANALYZE {name}",
        )
    ground.execute("CHECKPOINT")
    try:
        yield names
    finally:
        ground.execute(*(f"DROP TABLE {name}" for name in names))
        ground.sums.clear()


NEWEST = """
    (FROM read_parquet($1, hive_partitioning = false)
    QUALIFY row_number() OVER (PARTITION BY id ORDER BY _headwater_offset DESC) = 1)
    WHERE _headwater_op <> 'd'
"""
"""Of files that have every change."""


def sum_of_files(paths: Sequence[str], *, have_changes: bool) -> tuple[int, int]:
    """The same by another reader."""
    rows = NEWEST if have_changes else "read_parquet($1, hive_partitioning = false)"
    part = f"('0x' || substr({IN_DUCKDB}, 1, 15))::int8::hugeint"
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        asked = f"SELECT count(*), sum({part}) FROM {rows}"
        [(count, sum_)] = connection.execute(asked, [list(paths)]).fetchall()
    return int(count), int(sum_ or 0)


def files_of(tool: str, target: Path, table: str) -> list[str]:
    """The files of a table as its readers find them."""
    from deltalake import DeltaTable

    if tool == DUCKDB:
        return [str(target / table / "rows.parquet")]
    if tool == FILES:
        from headwater.sinks.files.formats import files

        return list(files(str(target), f"public.{table}"))
    place = {DLT: target / "lake" / table, DELTA: target / f"public.{table}"}
    return DeltaTable(str(place.get(tool, target / table))).file_uris()


def measure(ground: Ground, tool: str, names: Sequence[str]) -> Figures:
    """From the command to its end, with everything new."""
    with tempfile.TemporaryDirectory(prefix=f"{tool}-", dir=ground.directory) as name:
        target = Path(name)
        if tool in OURS:
            figures = watched(ground, our_command(ground, tool, target, names), target)
        elif tool == COPY:
            figures = watched(ground, copy_command(ground, names), target)
        else:
            figures = watched(ground, peer_command(ground, tool, target, names), target)
        ground.drop_slots()
        if tool != COPY:
            check(ground, tool, target, names)
    return figures


def check(ground: Ground, tool: str, target: Path, names: Sequence[str]) -> None:
    for each in names:
        paths = files_of(tool, target, each)
        found, wanted = sum_of_files(paths, have_changes=tool == FILES), ground.sum_of(each)
        assert found == wanted, f"{tool}: {each} has {found}, and its source {wanted}"


def our_command(ground: Ground, tool: str, target: Path, names: Sequence[str]) -> list[str]:
    tables = ", ".join(f"public.{each}" for each in names)
    (target / "pipeline.yaml").write_text(
        "pipeline: peers\n"
        f"source: {{type: postgres, url: '{ground.server.address}', tables: [{tables}]}}\n"
        f"sink: {SINKS[tool]}\n"
    )
    return [sys.executable, "-m", "headwater.pipelines.cli", "run", "--once", "--quiet"]


def copy_command(ground: Ground, names: Sequence[str]) -> list[str]:
    asked = [part for each in names for part in ("-c", f"COPY {each} TO STDOUT")]
    return [str(ground.server.home / "psql"), ground.server.address, "-q", *asked]


def peer_command(ground: Ground, tool: str, target: Path, names: Sequence[str]) -> list[str]:
    program = [str(ground.peers / "bin/python"), "-m", "benchmarks.peer_programs", tool]
    return [*program, ground.server.address, str(target), str(ground.peers / "jars"), *names]


def watched(ground: Ground, command: Sequence[str], directory: Path) -> Figures:
    """Time, CPU and memory of the command and of all that it starts."""
    ended_s, busy, begun = ended_children_s(), busy_s(), time.perf_counter()
    server_s = cpu_s(ground.server.pid)
    output = directory / "output"
    with output.open("wb") as said:
        process = subprocess.Popen(
            command, cwd=directory, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=said
        )
        with PeakMemory(process.pid).watching() as peak:
            code = process.wait(PATIENCE_S)
    seconds, all_s = time.perf_counter() - begun, busy_s() - busy
    if code:
        raise RuntimeError(f"{command[:4]} ended with {code}: {output.read_text()[-2_000:]}")
    # A process that outlives its parent is only in what was seen while it lived.
    own_s = max(ended_children_s() - ended_s, peak.cpu_s)
    server_s = cpu_s(ground.server.pid) - server_s
    return {
        "seconds": seconds,
        "cpu_s": own_s,
        "pss_mb": peak.mb,
        "server_cpu_s": server_s,
        "busy_cores": all_s / seconds,
        "others_cores": max(0.0, all_s - own_s - server_s) / seconds,
    }


def catch_up(ground: Ground, tool: str, case: Case) -> Figures:
    """Changes that were made while nobody ran, into the table that has the rows before them."""
    with (
        tables_in(ground, case) as names,
        tempfile.TemporaryDirectory(prefix=f"{tool}-", dir=ground.directory) as name,
    ):
        target = Path(name)
        command = our_command(ground, tool, target, names)
        try:
            watched(ground, command, target)
            change(ground, names[0], case)
            figures = watched(ground, command, target)
        finally:
            ground.drop_slots()
        check(ground, tool, target, names)
    return figures


def change(ground: Ground, table: str, case: Case) -> None:
    """In transactions, none of which has a key twice."""

    def steps(count: int, *, begin: int = 0) -> Iterator[str]:
        end = begin + int(count * case.share)
        for first in range(begin, end, EACH):
            yield f"generate_series({first}, {min(first + EACH, end) - 1}) i"

    anywhere = f"1 + (i::int8 * {STEP}) % {case.rows}"
    updated = "quantity = quantity + 1, status = 'changed'"
    ground.execute(
        *(
            f"UPDATE {table} SET {updated} WHERE id IN (SELECT {anywhere} FROM {each})"
            for each in steps(UPDATED)
        ),
        *(
            f"INSERT INTO {table} SELECT {ROW} FROM {each}"
            for each in steps(INSERTED, begin=case.rows + 1)
        ),
        *(
            f"DELETE FROM {table} WHERE id IN (SELECT {anywhere} FROM {each})"
            for each in steps(DELETED)
        ),
    )


def measure_round(ground: Ground, case: Case, tools: Sequence[str]) -> None:
    """In turn; what cannot be measured keeps its reason, and the round goes on."""
    if case.share:
        each_in_turn(ground, case, OURS, lambda tool: catch_up(ground, tool, case))
        return
    with tables_in(ground, case) as names:
        watched(ground, copy_command(ground, names), ground.directory)  # brings them into memory
        each_in_turn(ground, case, tools, lambda tool: measure(ground, tool, names))


def each_in_turn(
    ground: Ground, case: Case, tools: Sequence[str], work: Callable[[str], Figures]
) -> None:
    for tool in tools:
        try:
            figures = work(tool)
        except Exception as error:
            ground.collected.fail(case.name, tool, error)
            print(f"{case.name}, {tool}: {type(error).__name__}: {error}", file=sys.stderr)
            continue
        ground.collected.add(case.name, tool, figures)
        told = ", ".join(f"{key} {shown(value)}" for key, value in figures.items())
        print(f"{case.name}, {tool}: {told}", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--only", nargs="*", default=["one", "eight"], choices=CASES)
    parser.add_argument("--tools", nargs="*", default=list(TOOLS), choices=list(TOOLS))
    parser.add_argument("--add", action="store_true")
    chosen = parser.parse_args()
    compile_as_installed()
    cases = cases_of(chosen.rows)
    with (
        embedded_postgres(settings=SERVER) as server,
        tempfile.TemporaryDirectory(prefix="headwater-bench-") as directory,
    ):
        ground = Ground(server, Path(directory), peers_directory(), Collected())
        if chosen.add:
            ground.collected = measured_before(chosen.only)
        keep_compiled_code(ground)
        for name in chosen.only:
            for number in range(chosen.rounds):
                measure_round(ground, cases[name], chosen.tools)
                print(f"{name}: round {number + 1} is done", file=sys.stderr)
                if chosen.rows == ROWS:
                    write(ground.collected, cases)
    print(page(ground.collected, cases))


def peers_directory() -> Path:
    found = subprocess.run(
        [ROOT / "scripts/fetch_peers.sh"], stdout=subprocess.PIPE, text=True, check=True
    )
    return Path(found.stdout.strip())


def keep_compiled_code(ground: Ground) -> None:
    """Else the first measurement in a new copy of the sources would hold the compiler's work."""
    with tables_in(ground, Case("", "", 1, KEPT_ROWS)) as names:
        for tool in OURS:
            measure(ground, tool, names)


def measured_before(cases: Sequence[str]) -> Collected:
    """What earlier rounds of these cases have found."""
    path = RESULTS / "peers.json"
    found, known = Collected(), json.loads(path.read_text())["figures"] if path.exists() else {}
    for case in cases:
        for tool, rounds in known.get(case, {}).items():
            found.figures[case][tool] += rounds
    return found


def write(collected: Collected, cases: Mapping[str, Case]) -> None:
    """Beside what was measured at other times of other cases."""
    path = RESULTS / "peers.json"
    known = json.loads(path.read_text())["figures"] if path.exists() else {}
    every = Collected(known | collected.figures, collected.failures)
    found = {"figures": every.figures, "failures": every.failures}
    path.write_text(json.dumps(found, indent=1) + "\n")
    (RESULTS / "peers.md").write_text(page(every, cases))


def page(collected: Collected, cases: Mapping[str, Case]) -> str:
    lines = [
        "# First copies to a lake, measured beside other tools",
        "",
        f"Written by `benchmarks/peers.py`: {os.cpu_count()} cores shared by PostgreSQL and the"
        " tool; rows of 10 columns, about",
        "250 bytes. From the command to its end, all new; the tools in turn in every round. CPU"
        " and PSS are of all processes of",
        "the tool, without the server's. An independent reader (DuckDB, by the Delta log where"
        " there is one) found every table",
        "equal to its source by count and by a sum over all values. Medians, with the least, the"
        " largest and the number of rounds.",
        "None of the other tools has a durable log, or goes on after a kill where it was.",
        "",
        f"Processes that had nothing to do with it used {spread(others_of(collected))} of the cores"
        " meanwhile.",
        "",
    ]
    for case in cases.values():
        if case.name in collected.figures:
            lines += [*table_of(case, collected), ""]
    if collected.failures:
        lines += ["## Not measured", "", *(f"- {each}" for each in collected.failures), ""]
    return "\n".join(lines)


def others_of(collected: Collected) -> list[float]:
    """The cores that others used, of every measurement."""
    return [
        figures["others_cores"]
        for tools in collected.figures.values()
        for rounds in tools.values()
        for figures in rounds
    ]


def table_of(case: Case, collected: Collected) -> list[str]:
    lines = [
        f"## {case.what[0].upper()}{case.what[1:]}",
        "",
        "| Tool | Seconds | CPU s | PSS MB | To reach | Verdict |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for tool, what in TOOLS.items():
        if tool not in collected.figures[case.name]:
            continue
        cells = [
            spread(collected.values(case.name, tool, figure))
            for figure in ("seconds", "cpu_s", "pss_mb")
        ]
        lines.append(
            f"| {what} | {' | '.join(cells)} | {' | '.join(judged(case, tool, collected))} |"
        )
    return lines


def judged(case: Case, tool: str, collected: Collected) -> tuple[str, str]:
    """What is to be reached, and whether it was."""
    goal = case.goals.get(tool)
    if goal is None:
        return "", ""
    found = [collected.middle(case.name, tool, figure) for figure in ("seconds", "pss_mb")]
    seconds, memory = (value or 0.0 for value in found)
    said = [
        _verdict(seconds, goal.seconds, "time"),
        _verdict(memory, goal.pss_mb, "memory"),
    ]
    if theirs := collected.middle(case.name, DLT, "seconds"):
        said.append(f"{theirs / seconds:.1f} times as fast as dlt")
    return f"{goal.seconds:g} s, {goal.pss_mb:g} MB", ", ".join(said)


def _verdict(value: float, goal: float, what: str) -> str:
    return f"{what} reached" if value <= goal else f"{what} missed: {value / goal:.2f} times"


if __name__ == "__main__":
    main()
