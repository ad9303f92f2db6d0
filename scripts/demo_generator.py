"""The show without a database: a made-up shop into SQLite and Parquet, killed in the middle."""

import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from headwater.connectors.generator.history import truth
from headwater.connectors.generator.settings import GeneratorSettings
from headwater.core_log.model.table_schema import TableId
from scripts.demo_console import IN_A_TERMINAL, has_terminal, show_console
from scripts.shop_targets import Rows, rows_in_files, rows_in_sqlite, rows_of_arrow

PROJECT = Path(__file__).resolve().parent.parent
PATIENCE_S = 120
KEY_COLUMNS = {"order_lines": 2}
"""How many of a table's first columns are its key; one where it is not named."""

PIPELINE = """\
pipeline: shop
source: {{type: generator, size: {size}, total: {total}, rate: 0}}
limits: {{slice_rows: {slice_rows}}}
sink:
  - {{type: sql, url: "sqlite:///shop.db", commit_every: 200ms}}
  - {{type: files, path: ./lake, format: parquet}}
"""


@dataclass(frozen=True)
class Compared:
    """One table in three places."""

    table: TableId
    source: Rows
    sqlite: Rows
    parquet: Rows

    @property
    def is_equal(self) -> bool:
        return self.source == self.sqlite == self.parquet


def main(total: int = 200_000) -> int:
    console = Console(highlight=False, soft_wrap=True)
    settings = GeneratorSettings(size=total // 10, total=total, rate=0)
    with tempfile.TemporaryDirectory(prefix="headwater-demo-") as name:
        directory = Path(name)
        text = PIPELINE.format(size=settings.size, total=total, slice_rows=total // 20)
        (directory / "pipeline.yaml").write_text(text)
        console.print(text)
        started = time.perf_counter()
        killed_at = run_until_killed(directory, console, rows=settings.size // 2)
        restarted = time.perf_counter()
        run_to_the_end(directory)
        ended = time.perf_counter()
        console.print("comparing source, SQLite and Parquet, row by row")
        compared = compare(directory, settings)
        print_table(console, compared)
        console.print(
            f"{total:,} changes; kill -9 after {killed_at:,} orders; "
            f"{restarted - started:.1f} s before it and {ended - restarted:.1f} s after it"
        )
        code = verdict(console, compared)
        if has_terminal():
            show_console(console.print, directory, {**os.environ, "PYTHONPATH": str(PROJECT)})
        else:
            console.print(IN_A_TERMINAL)
    return code


def run_until_killed(directory: Path, console: Console, *, rows: int) -> int:
    """Kills the run and its workers, as hard as it gets, once SQLite holds so many orders."""
    process = start(directory)
    try:
        count = 0
        while count < rows and process.poll() is None:
            time.sleep(0.05)
            count = orders_in(directory / "shop.db")
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    console.print(f"[bold]kill -9[/bold] after {count:,} orders; the same command again:")
    return count


def run_to_the_end(directory: Path) -> None:
    process = start(directory)
    if process.wait(PATIENCE_S) != 0:
        raise SystemExit(f"headwater run ended with exit code {process.returncode}")


def start(directory: Path) -> subprocess.Popen[bytes]:
    """In a group of its own, so that its workers can be killed with it."""
    command = [sys.executable, "-m", "headwater.pipelines.cli", "run", "--once"]
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    return subprocess.Popen(command, cwd=directory, env=environment, process_group=0)


def orders_in(path: Path) -> int:
    """0 as long as there is no such table."""
    if not path.exists():
        return 0
    with closing(sqlite3.connect(path, timeout=PATIENCE_S)) as database:
        try:
            return int(database.execute("SELECT count(*) FROM orders").fetchone()[0])
        except sqlite3.OperationalError:
            return 0


def compare(directory: Path, settings: GeneratorSettings) -> list[Compared]:
    return [
        Compared(
            table,
            rows_of_arrow(rows),
            rows_in_sqlite(
                directory / "shop.db", table, rows.schema, key_columns=key_columns(table)
            ),
            rows_in_files(directory / "lake", table, rows.schema, key_columns=key_columns(table)),
        )
        for table, rows in truth(settings).items()
    ]


def key_columns(table: TableId) -> int:
    return KEY_COLUMNS.get(table.name, 1)


def differences(left: Rows, right: Rows) -> int:
    """How many rows only one of them has."""
    return len(set(left) ^ set(right)) + abs(len(left) - len(right))


def print_table(console: Console, compared: Sequence[Compared]) -> None:
    table = Table(title="rows at the end", title_justify="left")
    table.add_column("table")
    for name in ("source", "SQLite", "Parquet"):
        table.add_column(name, justify="right")
    table.add_column("")
    for each in compared:
        style = None if each.is_equal else "red"
        table.add_row(
            each.table.name,
            *(f"{len(rows):,}" for rows in (each.source, each.sqlite, each.parquet)),
            "equal" if each.is_equal else "DIFFERENT",
            style=style,
        )
    console.print(table)


def verdict(console: Console, compared: Sequence[Compared]) -> int:
    """The exit code says whether the promise held."""
    different: Mapping[str, tuple[int, int]] = {
        each.table.name: (
            differences(each.source, each.sqlite),
            differences(each.source, each.parquet),
        )
        for each in compared
        if not each.is_equal
    }
    for table, (in_sqlite, in_parquet) in different.items():
        console.print(
            f"{table}: {in_sqlite:,} differ in SQLite, {in_parquet:,} in Parquet", style="red"
        )
    if not different:
        console.print("every row is equal in all three places")
    return 1 if different else 0


if __name__ == "__main__":
    raise SystemExit(main(*map(int, sys.argv[1:2])))
