"""The pipeline of a demo: the tables of a shop's database in a lake."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa
from rich.console import Console
from rich.table import Table

from scripts.shop_database import Rows, ShopDatabase

PROJECT = Path(__file__).resolve().parent.parent
HEADWATER = (sys.executable, "-m", "headwater.pipelines.cli")
PATIENCE_S = 120
LOOK_S = 0.5
TABLES = {"customers": "id", "orders": "id", "order_lines": "order_id, line"}
"""Each with its key."""


class ShopPipeline:
    """Runs `headwater` in a directory, and compares the shop with its lake."""

    def __init__(self, console: Console, directory: Path, shop: ShopDatabase) -> None:
        self._console, self.directory, self._shop = console, directory, shop
        self._started = time.perf_counter()

    @property
    def environment(self) -> Mapping[str, str]:
        return {**os.environ, "PYTHONPATH": str(PROJECT), "SHOP_URL": self._shop.address}

    def write(self, pipeline: str, **named: str) -> None:
        """The pipeline file, with the source of the shop at `{source}`."""
        text = pipeline.format(source=self._shop.source, **named)
        (self.directory / "pipeline.yaml").write_text(text)
        self._console.print(text, markup=False)

    @contextmanager
    def running(self) -> Iterator[None]:
        """`headwater run`, killed with all its workers at the end."""
        process = subprocess.Popen(
            [*HEADWATER, "run"], cwd=self.directory, env=self.environment, process_group=0
        )
        try:
            yield
            assert process.poll() is None, "headwater run ended by itself"
        finally:
            for group in (process.pid, *_groups_of_children(process.pid)):
                with suppress(ProcessLookupError):
                    os.killpg(group, signal.SIGKILL)
            process.wait()

    def is_answering(self) -> bool:
        command = [*HEADWATER, "status"]
        asked = subprocess.run(
            command, cwd=self.directory, env=self.environment, capture_output=True, check=False
        )
        return asked.returncode == 0

    def headwater(self, *arguments: str) -> int:
        self._console.print(f"$ headwater {' '.join(arguments)}")
        command = [*HEADWATER, *arguments]
        done = subprocess.run(command, cwd=self.directory, env=self.environment, check=False)
        return done.returncode

    def until(self, is_so: Callable[[], bool], *, wanted: str = "the lake is not there") -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not is_so():
            if time.monotonic() > deadline:
                raise SystemExit(f"{wanted} after {PATIENCE_S} s: see above")
            time.sleep(LOOK_S)

    def source(self, table: str) -> Rows:
        columns = self._shop.columns(table)
        return self._shop.query(f"SELECT {columns} FROM {table} ORDER BY {TABLES[table]}")

    def lake(self, table: str, *, root: str = "lake") -> Rows:
        """Empty as long as there is no such table."""
        found = self.arrow(table, root)
        if found is None:
            return []
        ordered = found.sort_by([(name.strip(), "ascending") for name in TABLES[table].split(",")])
        return [tuple(row.values()) for row in ordered.to_pylist()]

    def arrow(self, table: str, root: str = "lake") -> pa.Table | None:
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        try:
            found = DeltaTable(
                str(self.directory / root / f"{self._shop.namespace}.{table}")
            ).to_pyarrow_table()
        except TableNotFoundError:
            return None
        columns = [name for name in found.column_names if not name.startswith("_")]
        return found.select(columns)

    def differing(self) -> Sequence[str]:
        return [table for table in TABLES if self.source(table) != self.lake(table)]

    def print_tables(self) -> None:
        table = Table(title="rows at the end", title_justify="left")
        table.add_column("table")
        table.add_column(self._shop.title, justify="right")
        table.add_column("lake", justify="right")
        table.add_column("")
        for name in TABLES:
            source, lake = self.source(name), self.lake(name)
            verdict = "equal" if source == lake else "DIFFERENT"
            table.add_row(name, f"{len(source):,}", f"{len(lake):,}", verdict)
        self._console.print(table)

    def say(self, text: str) -> None:
        self._console.print(f"[bold]{time.perf_counter() - self._started:5.1f} s[/bold]  {text}")


def has_java() -> bool:
    with suppress(FileNotFoundError):
        return (
            subprocess.run(["java", "-version"], capture_output=True, check=False).returncode == 0
        )
    return False


def _groups_of_children(pid: int) -> list[int]:
    """Workers have groups of their own, so that Ctrl-C leaves them to their owner."""
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False)
    return [int(child) for child in found.stdout.split()]
