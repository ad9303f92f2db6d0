"""A shop in a database, its tables in a lake: killed in the middle, proved, taken back in time."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.table import Table

from scripts.demo_console import IN_A_TERMINAL, has_terminal, show_console
from scripts.embedded_mysql import MysqlMissing, embedded_mysql
from scripts.embedded_postgres import PostgresMissing, embedded_postgres
from scripts.shop_database import (
    Customers,
    MysqlShop,
    PostgresShop,
    Rows,
    ShopDatabase,
    buying,
)

PROJECT = Path(__file__).resolve().parent.parent
HEADWATER = (sys.executable, "-m", "headwater.pipelines.cli")
PATIENCE_S = 120
TABLES = {"customers": "id", "orders": "id", "order_lines": "order_id, line"}
"""Each with its key."""
DATABASES = ("postgres", "mysql", "mariadb")
PIPELINE = """\
pipeline: shop
source:
  {source}
sink:
  type: spark
  path: ./lake
  commit_every: 1s
"""
BEST_CUSTOMERS = """
SELECT customer_id, count(*) AS orders, sum(total) AS revenue
FROM orders GROUP BY ALL ORDER BY revenue DESC LIMIT 3
"""


def main(
    orders: int = 60_000,
    *,
    customers: int = 5_000,
    buying_s: float = 8.0,
    database: str = "postgres",
) -> int:
    console = Console(highlight=False, soft_wrap=True)
    if not has_java():
        console.print("Java 17 or newer is not here, and Spark needs it")
        return generator_instead(console)
    try:
        with shop_in(database) as shop, tempfile.TemporaryDirectory() as name:
            shop.make_shop(customers=customers, orders=orders)
            return Show(console, Path(name), shop).run(buying_s)
    except (PostgresMissing, MysqlMissing) as missing:
        console.print(str(missing))
        return generator_instead(console)


@contextmanager
def shop_in(database: str) -> Iterator[ShopDatabase]:
    if database == "postgres":
        with embedded_postgres() as postgres:
            yield PostgresShop(postgres.address)
        return
    with embedded_mysql("mariadb" if database == "mariadb" else "mysql-9") as server:
        yield MysqlShop(server)


def generator_instead(console: Console) -> int:
    from scripts import demo_generator

    console.print("so the generator takes the database's place, and SQLite and Parquet the lake's")
    return demo_generator.main()


def has_java() -> bool:
    with suppress(FileNotFoundError):
        return (
            subprocess.run(["java", "-version"], capture_output=True, check=False).returncode == 0
        )
    return False


class Show:
    """One pipeline, from its first row to the end."""

    def __init__(self, console: Console, directory: Path, shop: ShopDatabase) -> None:
        self._console, self._directory, self._shop = console, directory, shop
        self._started = time.perf_counter()

    def run(self, buying_s: float) -> int:
        pipeline = PIPELINE.format(source=self._shop.source)
        (self._directory / "pipeline.yaml").write_text(pipeline)
        self._console.print(pipeline, markup=False)
        with buying(self._shop) as customers:
            with self._running():
                self._say("headwater run: the rows that are there, then every change")
                self._until(lambda: len(self._lake("orders")) > 0)
                time.sleep(buying_s / 2)
                moment, then = self._moment(customers)
                self._say(f"a moment to come back to: {moment}, {len(then):,} orders")
                time.sleep(buying_s / 2)
            self._say(f"kill -9 after {customers.committed:,} transactions; the same command again")
            with self._running():
                time.sleep(buying_s)
                customers.stop()
                self._say(f"{customers.committed:,} transactions, and nobody buys any more")
                self._until(lambda: self._differing() == [])
        code = self._prove(moment, then)
        self._show_console()
        return code

    def _show_console(self) -> None:
        """Over the pipeline that goes on, with people who buy."""
        if not has_terminal():
            self._say(IN_A_TERMINAL)
            return
        with buying(self._shop), self._running():
            self._until(self._is_answering)
            if isinstance(self._shop, PostgresShop):  # the others capture such a table
                self._say("a table without a key is added: it is left out, and the others go on")
                with self._shop.transaction() as session:
                    session.execute("CREATE TABLE page_views (path varchar(100), seen_by int)")
                    session.execute("INSERT INTO page_views VALUES ('/sale', 42)")
            show_console(self._say, self._directory, self._environment)

    def _prove(self, moment: str, then: Rows) -> int:
        self._print_tables()
        self._say("DuckDB asks the lake who buys most")
        self._console.print(self._ask(BEST_CUSTOMERS))
        self._headwater("rebuild", "shop/orders", "--as-of", moment, "--into", "./past")
        past = self._lake("orders", root="past")
        is_past_equal = past == then
        self._say(
            f"orders as of {moment}, rebuilt from the log: {len(past):,} rows, "
            + ("equal to what the database held then" if is_past_equal else "DIFFERENT")
        )
        with self._running():
            self._until(self._is_answering)
            self._say("verify reads source, log and lake at one position, while all goes on")
            verified = self._headwater("verify", "shop")
        differing = self._differing()
        for table in differing:
            self._console.print(f"{table} differs from the source", style="red")
        self._say("done")
        return 0 if is_past_equal and not differing and verified == 0 else 1

    @contextmanager
    def _running(self) -> Iterator[None]:
        """`headwater run`, killed with all its workers at the end."""
        process = subprocess.Popen(
            [*HEADWATER, "run"], cwd=self._directory, env=self._environment, process_group=0
        )
        try:
            yield
            assert process.poll() is None, "headwater run ended by itself"
        finally:
            for group in (process.pid, *_groups_of_children(process.pid)):
                with suppress(ProcessLookupError):
                    os.killpg(group, signal.SIGKILL)
            process.wait()

    def _is_answering(self) -> bool:
        command = [*HEADWATER, "status"]
        asked = subprocess.run(
            command, cwd=self._directory, env=self._environment, capture_output=True, check=False
        )
        return asked.returncode == 0

    def _headwater(self, *arguments: str) -> int:
        self._console.print(f"$ headwater {' '.join(arguments)}")
        command = [*HEADWATER, *arguments]
        done = subprocess.run(command, cwd=self._directory, env=self._environment, check=False)
        return done.returncode

    @property
    def _environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(PROJECT), "SHOP_URL": self._shop.address}

    def _moment(self, customers: Customers) -> tuple[str, Rows]:
        """Between two transactions: the position of the source, and the orders of then."""
        with customers.resting():
            return self._shop.moment(), self._source("orders")

    def _until(self, is_so: Any) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not is_so():
            if time.monotonic() > deadline:
                raise SystemExit(f"the lake is not there after {PATIENCE_S} s: see above")
            time.sleep(0.5)

    def _source(self, table: str) -> Rows:
        columns = self._shop.columns(table)
        return self._shop.query(f"SELECT {columns} FROM {table} ORDER BY {TABLES[table]}")

    def _lake(self, table: str, *, root: str = "lake") -> Rows:
        """Empty as long as there is no such table."""
        found = self._arrow(table, root)
        if found is None:
            return []
        ordered = found.sort_by([(name.strip(), "ascending") for name in TABLES[table].split(",")])
        return [tuple(row.values()) for row in ordered.to_pylist()]

    def _arrow(self, table: str, root: str) -> pa.Table | None:
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        try:
            found = DeltaTable(
                str(self._directory / root / f"{self._shop.namespace}.{table}")
            ).to_pyarrow_table()
        except TableNotFoundError:
            return None
        columns = [name for name in found.column_names if not name.startswith("_")]
        return found.select(columns)

    def _ask(self, query: str) -> str:
        import duckdb

        with duckdb.connect() as connection:
            connection.register("orders", self._arrow("orders", "lake"))
            return str(connection.sql(query))

    def _differing(self) -> Sequence[str]:
        return [table for table in TABLES if self._source(table) != self._lake(table)]

    def _print_tables(self) -> None:
        table = Table(title="rows at the end", title_justify="left")
        table.add_column("table")
        table.add_column(self._shop.title, justify="right")
        table.add_column("lake", justify="right")
        table.add_column("")
        for name in TABLES:
            source, lake = self._source(name), self._lake(name)
            verdict = "equal" if source == lake else "DIFFERENT"
            table.add_row(name, f"{len(source):,}", f"{len(lake):,}", verdict)
        self._console.print(table)

    def _say(self, text: str) -> None:
        self._console.print(f"[bold]{time.perf_counter() - self._started:5.1f} s[/bold]  {text}")


def _groups_of_children(pid: int) -> list[int]:
    """Workers have groups of their own, so that Ctrl-C leaves them to their owner."""
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False)
    return [int(child) for child in found.stdout.split()]


if __name__ == "__main__":
    given = [each for each in sys.argv[1:] if each not in DATABASES]
    named = dict(zip(("orders", "buying_s"), map(int, given), strict=False))
    chosen = next((each for each in sys.argv[1:] if each in DATABASES), "postgres")
    raise SystemExit(main(**named, database=chosen))
