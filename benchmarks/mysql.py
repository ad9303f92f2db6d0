"""MySQL into the log, beside the server's own limit and real Debezium on the same rows."""

# Run it on a quiet machine: python -m benchmarks.mysql [--rounds 3] [--shrink 1] [--only ...]
# Stages that are not named keep the figures that they have in results/mysql.json.

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
    line_of,
    table_of,
    ticked,
    waits,
)
from benchmarks.figures import Collected, Figures
from benchmarks.mysql_history import COLUMNS, DOCUMENT, ROW, SERVER, Database
from benchmarks.mysql_readers import Debezium, Headwater, receive, select
from scripts.embedded_mysql import embedded_mysql

SNAPSHOT_ROWS, INSERTED, UPDATED, SINGLE = 1_000_000, 1_000_000, 500_000, 200_000
GIANT, TICKED, DOCUMENTS = 5_000_000, 2_000, 300_000
DEBEZIUM_SHARE = 5
"""Debezium gets a fifth of the rows: its rate does not depend on their number."""
KEPT_ROWS = 200_000
"""Read before anything is measured, so that the compiled code is kept."""
DOCUMENT_COLUMNS = "id bigint PRIMARY KEY, document {}"

ROWS = (
    Row("snapshot-1", "snapshot, one connection, rows/s", "per_second", 400_000, True, times=10),
    Row("snapshot-2", "snapshot, two connections, rows/s", "per_second", 550_000, True, times=10),
    Row("catch-up", "catch-up, inserts in transactions of 1,000, rows/s", "per_second", 300_000,
        True, plain_goal=220_000, times=10),
    Row("full", "catch-up, updates with whole rows before, in 100s, rows/s", "per_second", 180_000,
        True),
    Row("single", "catch-up, transactions of one row, rows/s", "per_second", 100_000, True),
    Row("latency", "commit to readable in the log at 200/s, p50, ms", "p50_ms", 3, False),
    Row("latency", "the same, p99, ms", "p99_ms", 10, False),
    Row("giant", "one transaction of 5 M rows, source process, MB PSS", "pss_mb", 250, False),
    Row("catch-up", "catch-up, source process, MB PSS", "pss_mb", 250, False),
    Row("catch-up", "catch-up, CPU seconds per million rows", "cpu_s_per_million", None, False),
    Row("snapshot-1", "snapshot, CPU seconds per million rows", "cpu_s_per_million", None, False),
    Row("start", "start to the first event, s", "seconds", 0.8, False),
    Row("documents-text", "catch-up, documents of 500 bytes as text, rows/s", "per_second", None,
        True),
    Row("documents-json", "the same as JSON, rows/s", "per_second", None, True),
)  # fmt: skip
LOAD = (
    "One round on a quiet machine, but for the row of 5 M rows, which is older and was measured"
    " beside other work. Documents as JSON take 1.8 times as long as the same texts; 1.5 times"
    " was wanted."
)
WHY = {
    "snapshot-1": "at 2.6 CPU seconds per million rows one core is enough for 390,000; the server"
    " and the broker share the other one",
    "snapshot-2": "server, reader and broker share two cores, of which one connection keeps 1.5"
    " busy",
    "catch-up": "in plain Python a million rows take 6.2 CPU seconds on one core",
    "full": "at 6.4 CPU seconds per million updates, each with two rows of ten columns",
    "single": "of about 8 us of CPU per transaction 3 take its five packets out of the stream, 3"
    " check their sums and find what they say, and the rest are columns and the append",
    "latency": "ours is readable once it is synced, and Debezium's engine writes nothing; with"
    " server and log on a RAM disk it was 3.2 and 7.9 ms, and PostgreSQL's source 3.5 and 7.0 ms in"
    " the same minutes",
}
"""Why a row can miss what it should reach, as far as that was found out."""
STAGES = ("snapshot", "catch-up", "full", "single", "latency", "start", "documents", "giant")


class Round:
    """Every reader in turn over the same rows, alone each time."""

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
        select(self._database, rows, parts=1)  # brings the table into memory for everybody
        for parts in (1, 2):
            name, ours = f"snapshot-{parts}", partial(self._ours.snapshot, rows, parallel=parts)
            self._add(name, LIMIT, partial(select, self._database, rows, parts=parts))
            self._add(name, OURS, ours)
            self._add(name, PLAIN, partial(ours, speed="python"))
        fewer = rows // DEBEZIUM_SHARE
        self._database.new_table(rows=fewer)
        self._add("snapshot-1", DEBEZIUM, lambda: self._debezium.snapshot(fewer))
        found = self._collected.figures["snapshot-1"][DEBEZIUM]
        if found:
            self._collected.add("snapshot-2", DEBEZIUM, found[-1])

    def catch_up(self) -> None:
        self._streamed("catch-up", INSERTED, lambda rows: self._database.insert(rows, each=1_000))

    def full(self) -> None:
        self._streamed(
            "full", UPDATED, lambda rows: self._database.update(rows, each=100), is_update=True
        )

    def single(self) -> None:
        self._streamed("single", SINGLE, self._database.insert_singly)

    def documents(self) -> None:
        for kind in ("text", "json"):
            columns = DOCUMENT_COLUMNS.format(kind)
            self._streamed(
                f"documents-{kind}",
                DOCUMENTS,
                lambda rows: self._database.insert(rows, each=1_000, row=DOCUMENT),
                columns=columns,
            )

    def giant(self) -> None:
        rows = GIANT // self._shrink
        self._database.new_table()
        task = self._ours.before_history()
        self._database.insert(rows, each=rows)
        self._add("giant", OURS, lambda: self._ours.catch_up(task, rows))

    def latency(self) -> None:
        """With the server's own disk synced too, behind everything that was written before."""
        count = WARM_UP + TICKED // self._shrink
        self._database.execute(
            "SET GLOBAL innodb_flush_log_at_trx_commit = 1", "SET GLOBAL sync_binlog = 1"
        )
        os.sync()
        self._add("latency", OURS, lambda: self._ticks_in_log(count))
        self._add("latency", DEBEZIUM, lambda: self._ticks_at_debezium(count, {}))
        quick = {"poll.interval.ms": "5"}
        self._add("latency", TUNED, lambda: self._ticks_at_debezium(count, quick))
        self._database.execute(
            "SET GLOBAL innodb_flush_log_at_trx_commit = 0", "SET GLOBAL sync_binlog = 0"
        )

    def start(self) -> None:
        self._database.new_table(rows=1)
        self._add("start", OURS, self._ours.start)
        self._add("start", DEBEZIUM, self._debezium.start)

    def _streamed(
        self,
        name: str,
        count: int,
        history: Callable[[int], None],
        *,
        columns: str = COLUMNS,
        is_update: bool = False,
    ) -> None:
        rows = count // self._shrink
        fewer = rows // DEBEZIUM_SHARE
        self._database.new_table(rows=fewer if is_update else 0, columns=columns)
        self._add(name, DEBEZIUM, lambda: self._debezium.catch_up(fewer, lambda: history(fewer)))
        self._database.new_table(rows=rows if is_update else 0, columns=columns)
        fast, plain = self._ours.before_history(), self._ours.before_history()
        gtids = str(self._database.value("SELECT @@global.gtid_executed"))
        history(rows)
        self._add(name, LIMIT, lambda: receive(self._database, rows, gtids))
        self._add(name, OURS, lambda: self._ours.catch_up(fast, rows))
        self._add(name, PLAIN, lambda: self._ours.catch_up(plain, rows, speed="python"))

    def _add(self, name: str, who: str, measure: Callable[[], Figures]) -> None:
        add_measured(self._collected, name, who, measure)

    def _ticks_in_log(self, count: int) -> Figures:
        self._database.new_ticks()
        with self._ours.following(count) as arrivals:
            committed = ticked(
                "benchmarks.mysql_history", str(self._database.server.port), str(count)
            )
            return waits(committed, arrivals())

    def _ticks_at_debezium(self, count: int, more: dict[str, str]) -> Figures:
        self._database.new_ticks()
        with self._debezium.following(count, more) as arrivals:
            committed = ticked(
                "benchmarks.mysql_history", str(self._database.server.port), str(count)
            )
            return waits(committed, arrivals())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--shrink", type=int, default=1)
    parser.add_argument("--only", nargs="*", default=STAGES, choices=STAGES)
    chosen = parser.parse_args()
    compile_as_installed()
    collected = Collected()
    with embedded_mysql("mysql-9", settings=SERVER) as server:
        database = Database(server)
        database.execute(
            "CREATE USER debezium@'%' IDENTIFIED BY 'secret'",
            "GRANT ALL ON *.* TO debezium@'%'",
        )
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
                keep("mysql", collected, page)
    print(page(collected, chosen.shrink))


def keep_compiled_code(place: Path, database: Database) -> None:
    database.new_table(rows=KEPT_ROWS)
    with fresh_ground(place, "compiled") as (directory, bootstrap):
        ours = Headwater(directory, database, bootstrap)
        ours.snapshot(KEPT_ROWS, parallel=1)
        database.new_table()
        task = ours.before_history()
        database.insert(KEPT_ROWS, each=1_000, row=ROW)
        ours.catch_up(task, KEPT_ROWS)


def page(collected: Collected, shrink: int) -> str:
    lines = [
        "# MySQL into the log, measured",
        "",
        f"Written by `benchmarks/mysql.py` on MySQL 9.7.4: {os.cpu_count()} cores shared by the"
        " server, the readers and",
        "a broker process; rows of 10 columns, about 200 bytes; TCP on the loopback, no TLS. Ours",
        "go into the embedded log: JSON envelope, keys, zstd, fsync, decimals as strings. Debezium"
        " 3.6.3's engine hands its",
        "events to a counter, without a broker, and gets a fifth of the rows; its rates are from",
        "its first event to its last, ours of the whole run. The limit is a socket that throws"
        " away the binary log, or",
        "the rows of a SELECT. Latencies leave out the first second. The code that Headwater"
        " compiles was kept by an",
        "earlier run. Medians, with",
        "the least, the largest and the number of rounds.",
        "",
        *table_of(ROWS, collected),
    ]
    measured = [row for row in ROWS if collected.figures.get(row.name)]
    missed = [row.name for row in measured if "missed" in line_of(row, collected)]
    if told := [f"- {name}: {WHY[name]}." for name in dict.fromkeys(missed) if name in WHY]:
        lines += ["## Where it is missed, and why", "", LOAD, "", *told, ""]
    return "\n".join([*lines, *end_of(collected, shrink)])


if __name__ == "__main__":
    main()
