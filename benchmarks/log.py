"""Measures the log beside Apache Kafka, or an earlier version, in one run, and writes the table."""

import argparse
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks import limits
from benchmarks.bytecode import compile_as_installed
from benchmarks.figures import Collected
from benchmarks.processes import busy_s
from benchmarks.report import pairs_page, read_results, table_page, write_results
from benchmarks.rows import FORMER, KAFKA, LIMIT, OURS
from benchmarks.servers import ROOT, commit_of, kafka_jars, machine
from benchmarks.stages import PARTITIONS, STAGES, Bench, run_load
from benchmarks.without_server import ALONE

ROUNDS = 5
QUIET_S, QUIET_CORES = 2.0, 0.3
ONCE = ("scale",)
"""Stages that take long and whose figures hardly vary: one round of them is enough."""


def main() -> None:
    chosen = arguments()
    compile_as_installed()
    jars = None if chosen.only == OURS or chosen.former else kafka_jars()
    notes = [] if jars else ["Apache Kafka was not measured: it could not be had, or was left out."]
    name = "log_pairs" if chosen.former else "log"
    run = Run(chosen, jars, measured_servers(chosen, jars))
    earlier = [read_results(chosen.results, name, run.collected)] if chosen.add else []
    for each in (signal.SIGTERM, signal.SIGINT):  # so that what was started is ended as well
        signal.signal(each, lambda number, _: sys.exit(128 + number))
    directory: Path = chosen.directory
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    try:
        limits.touch_memory(directory, 4000 // chosen.shrink)
        for number in range(chosen.rounds):
            run.round(number)
            about = machine() | {"kafka": jars.name if jars else "none"}
            about["commit"] = ", ".join([*earlier, str(about["commit"])])
            if chosen.former:
                about["former commit"] = commit_of(chosen.former)
                page = pairs_page(run.collected, about)
            else:
                page = table_page(run.collected, about, notes)
            path = write_results(chosen.results, name, run.collected, about, page)
        print(path.read_text())
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def measured_servers(chosen: argparse.Namespace, jars: Path | None) -> list[str]:
    if chosen.former:
        return [OURS, FORMER]
    possible = [OURS, KAFKA] if jars else [OURS]
    return [name for name in possible if name == (chosen.only or name)]


class Run:
    """All rounds of one run."""

    def __init__(self, chosen: argparse.Namespace, jars: Path | None, names: list[str]) -> None:
        self._directory: Path = chosen.directory
        self._stages: list[str] = chosen.stages
        self._shrink: int = chosen.shrink
        self._jars, self._names = jars, names
        self._former: Path | None = chosen.former
        self._wait_s_max: float = chosen.wait
        self._started = time.monotonic()
        self.collected = Collected()

    def round(self, number: int) -> None:
        """Every stage, one server after the other; who comes first changes every round."""
        in_turn = self._names if number % 2 == 0 else self._names[::-1]
        for stage in self._stages:
            if stage in LIMITS:
                self._attempt(stage, LIMIT, LIMITS[stage])
            if stage in ALONE and OURS in in_turn and not self._former:
                self._attempt(stage, OURS, ALONE[stage])
            elif stage in STAGES and (stage not in ONCE or number == 0):
                for name in in_turn:
                    self._attempt(stage, name, STAGES[stage])
        self._say(f"round {number + 1} is done")

    def _attempt(self, stage: str, name: str, work: Callable[[Bench], None]) -> None:
        """A stage that fails leaves its reason, and the others go on."""
        wait_until_quiet(self._wait_s_max)
        self._say(f"{stage}: {name}")
        try:
            bench = Bench(
                name, self._directory, self._jars, self._shrink, self.collected, self._former
            )
            work(bench)
        except Exception as error:  # whatever it was, it belongs into the report
            self.collected.fail(stage, name, error)
            self._say(f"{stage}: {name} failed: {error}")

    def _say(self, text: str) -> None:
        print(f"{time.monotonic() - self._started:6.0f} s  {text}", file=sys.stderr, flush=True)


def wait_until_quiet(wait_s_max: float) -> None:
    """Others may use the machine; what is measured beside them says little."""
    deadline = time.monotonic() + wait_s_max
    while time.monotonic() < deadline:
        before = busy_s()
        time.sleep(QUIET_S)
        if busy_s() - before < QUIET_CORES * QUIET_S:
            return


def limit_of_appends(bench: Bench) -> None:
    megabytes = bench.scaled(600)
    for row, batch_bytes in (("raw-64k", 65_536), ("raw-1m", 1_000_000)):
        written = limits.plain_writes(bench.directory, batch_bytes=batch_bytes, megabytes=megabytes)
        bench.add(row, written)
        load = {"batch_bytes": batch_bytes, "megabytes": megabytes, "window": 4, "acks": 1}
        with limits.writing_server(bench.directory, row) as address:
            received = run_load("raw_loads", "produce_windows", address=address, topic=row, **load)
        bench.add(f"{row}-received", received)
    sizes = {"batch_bytes": 65_536, "bytes_max": 1 << 20}
    with limits.sendfile_server(
        bench.directory, "raw-64k", megabytes=megabytes, **sizes
    ) as address:
        for connections in (1, 8):
            load = sizes | {"connections": connections, "megabytes": bench.scaled(4000)}
            sent = run_load("raw_loads", "fetch", address=address, topic="raw-64k", **load)
            bench.add(f"fetch-{connections}", sent)


def limit_of_syncs(bench: Bench) -> None:
    seconds = 5 / bench.shrink
    synced = limits.syncs(
        bench.directory, batch_bytes=65_536, batches=64, files=PARTITIONS, seconds=seconds
    )
    bench.add("synced", synced)


LIMITS: dict[str, Callable[[Bench], None]] = {"raw": limit_of_appends, "synced": limit_of_syncs}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    every = (*STAGES, *ALONE)
    parser.add_argument("stages", nargs="*", metavar="STAGE", help=f"of {', '.join(every)}; all")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--quick", action="store_true", help="a tenth of the load, one round")
    parser.add_argument("--add", action="store_true", help="to the rounds measured before")
    parser.add_argument(
        "--wait", type=float, default=0, metavar="S", help="for a quiet machine, per stage"
    )
    servers = parser.add_mutually_exclusive_group()
    servers.add_argument("--only", choices=(OURS, KAFKA), help="one server alone")
    servers.add_argument(
        "--former",
        type=Path,
        metavar="CHECKOUT",
        help="an earlier version with its .venv, measured in place of Kafka: pairs of servers",
    )
    parser.add_argument("--directory", type=Path, default=ROOT / ".cache" / "benchmark")
    parser.add_argument("--results", type=Path, default=None, help="where the table is written")
    chosen = parser.parse_args()
    chosen.stages = chosen.stages or list(every)
    unknown = set(chosen.stages) - set(every)
    if unknown:
        parser.error(f"no such stage: {', '.join(sorted(unknown))}")
    chosen.shrink = 10 if chosen.quick else 1
    chosen.rounds = 1 if chosen.quick else chosen.rounds
    chosen.former = chosen.former and chosen.former.resolve()
    kept = ROOT / "benchmarks" / "results"  # a quick look must not replace a measurement
    chosen.results = chosen.results or (ROOT / ".cache" / "results" if chosen.quick else kept)
    return chosen


if __name__ == "__main__":
    main()
