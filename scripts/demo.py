"""A shop in a database, its tables in a lake: killed in the middle, proved, taken back in time."""

import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

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
from scripts.shop_pipeline import ShopPipeline, has_java

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


class Show:
    """One pipeline, from its first row to the end."""

    def __init__(self, console: Console, directory: Path, shop: ShopDatabase) -> None:
        self._console, self._shop = console, shop
        self._pipeline = ShopPipeline(console, directory, shop)

    def run(self, buying_s: float) -> int:
        pipeline, say = self._pipeline, self._pipeline.say
        pipeline.write(PIPELINE)
        with buying(self._shop) as customers:
            with pipeline.running():
                say("headwater run: the rows that are there, then every change")
                pipeline.until(lambda: len(pipeline.lake("orders")) > 0)
                time.sleep(buying_s / 2)
                moment, then = self._moment(customers)
                say(f"a moment to come back to: {moment}, {len(then):,} orders")
                time.sleep(buying_s / 2)
            say(f"kill -9 after {customers.committed:,} transactions; the same command again")
            with pipeline.running():
                time.sleep(buying_s)
                customers.stop()
                say(f"{customers.committed:,} transactions, and nobody buys any more")
                pipeline.until(lambda: pipeline.differing() == [])
        code = self._prove(moment, then)
        self._show_console()
        return code

    def _show_console(self) -> None:
        """Over the pipeline that goes on, with people who buy."""
        pipeline = self._pipeline
        if not has_terminal():
            pipeline.say(IN_A_TERMINAL)
            return
        with buying(self._shop), pipeline.running():
            pipeline.until(pipeline.is_answering)
            if isinstance(self._shop, PostgresShop):  # the others capture such a table
                pipeline.say("a table without a key is added: it is left out, and the others go on")
                with self._shop.transaction() as session:
                    session.execute("CREATE TABLE page_views (path varchar(100), seen_by int)")
                    session.execute("INSERT INTO page_views VALUES ('/sale', 42)")
            show_console(pipeline.say, pipeline.directory, pipeline.environment)

    def _prove(self, moment: str, then: Rows) -> int:
        pipeline, say = self._pipeline, self._pipeline.say
        pipeline.print_tables()
        say("DuckDB asks the lake who buys most")
        self._console.print(self._ask(BEST_CUSTOMERS))
        pipeline.headwater("rebuild", "shop/orders", "--as-of", moment, "--into", "./past")
        past = pipeline.lake("orders", root="past")
        is_past_equal = past == then
        say(
            f"orders as of {moment}, rebuilt from the log: {len(past):,} rows, "
            + ("equal to what the database held then" if is_past_equal else "DIFFERENT")
        )
        with pipeline.running():
            pipeline.until(pipeline.is_answering)
            say("verify reads source, log and lake at one position, while all goes on")
            verified = pipeline.headwater("verify", "shop")
        differing = pipeline.differing()
        for table in differing:
            self._console.print(f"{table} differs from the source", style="red")
        say("done")
        return 0 if is_past_equal and not differing and verified == 0 else 1

    def _moment(self, customers: Customers) -> tuple[str, Rows]:
        """Between two transactions: the position of the source, and the orders of then."""
        with customers.resting():
            return self._shop.moment(), self._pipeline.source("orders")

    def _ask(self, query: str) -> str:
        import duckdb

        with duckdb.connect() as connection:
            connection.register("orders", self._pipeline.arrow("orders"))
            return str(connection.sql(query))


if __name__ == "__main__":
    given = [each for each in sys.argv[1:] if each not in DATABASES]
    named = dict(zip(("orders", "buying_s"), map(int, given), strict=False))
    chosen = next((each for each in sys.argv[1:] if each in DATABASES), "postgres")
    raise SystemExit(main(**named, database=chosen))
