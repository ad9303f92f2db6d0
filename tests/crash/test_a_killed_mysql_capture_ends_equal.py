"""Whoever is killed between MySQL or MariaDB and the target: it ends equal to the source."""

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random

import pymysql
import pytest

from scripts.embedded_mysql import EmbeddedMysql, Kind, embedded_mysql
from tests.crash.command_process import CommandProcess

LIVES = 20 if os.environ.get("HEADWATER_BUDGET") == "long" else 1
KINDS: tuple[Kind, ...] = ("mysql-9", "mariadb")
ROWS = 4_000
PIPELINE = """
pipeline: shop
workers: 0
source:
  type: mysql
  url: {url}
  tables: [shop.*]
  heartbeat: 1s
  snapshot: {{parallel: 2, chunk_rows: 300}}
sink: {{type: sql, url: "sqlite:///shop.db", commit_every: 100ms}}
errors: {{retry: {{for: 10m, backoff: 50ms..400ms}}}}
"""
DDL = (
    "ALTER TABLE shop.orders ADD COLUMN more int DEFAULT 5",
    "ALTER TABLE shop.orders MODIFY note varchar(300)",
    "ALTER TABLE shop.orders DROP COLUMN more",
)


class ShopLoad(threading.Thread):
    """Writes until it is told to stop, over and over the same keys; servers may go meanwhile."""

    def __init__(self, server: EmbeddedMysql, seed: int) -> None:
        super().__init__(daemon=True)
        self.server, self.random = server, Random(seed)
        self.is_stopped, self.written = threading.Event(), 0
        self.has_more = threading.Condition()

    def run(self) -> None:
        while not self.is_stopped.is_set():
            try:
                with self.server.connect("shop") as connection, connection.cursor() as cursor:
                    while not self.is_stopped.is_set():
                        self.write(cursor)
            except (pymysql.OperationalError, pymysql.InterfaceError):  # it is gone
                self.is_stopped.wait(0.05)

    def write(self, cursor: "pymysql.cursors.Cursor") -> None:
        random = self.random
        cursor.execute("BEGIN")
        for _ in range(random.randrange(1, 6)):
            key = random.randrange(ROWS + 500)
            cursor.execute(
                random.choice(
                    (
                        f"REPLACE INTO orders (id, note, n) VALUES ({key}, 'new {key}', {key})",
                        f"UPDATE orders SET n = n + 1, note = 'changed' WHERE id = {key}",
                        f"DELETE FROM orders WHERE id = {key}",
                        f"UPDATE IGNORE orders SET id = id + 100000 WHERE id = {key}",
                    )
                )
            )
        cursor.execute("COMMIT" if random.random() < 0.9 else "ROLLBACK")
        with self.has_more:
            self.written += 1
            self.has_more.notify_all()

    def wait_for(self, more: int) -> None:
        wanted = self.written + more
        with self.has_more:
            self.has_more.wait_for(lambda: self.written >= wanted)

    def stop(self) -> None:
        self.is_stopped.set()
        if self.is_alive():
            self.join()


@pytest.fixture(scope="module", params=KINDS)
def server(request: pytest.FixtureRequest) -> Iterator[EmbeddedMysql]:
    with embedded_mysql(request.param) as server:
        yield server


@pytest.mark.crash
@pytest.mark.parametrize("life", range(LIVES))
def test_a_mysql_capture_killed_at_random_ends_equal(
    life: int, server: EmbeddedMysql, tmp_path: Path
) -> None:
    random = Random(life)
    server.execute(
        "DROP DATABASE IF EXISTS shop",
        "CREATE DATABASE shop CHARACTER SET utf8mb4",
        "CREATE TABLE shop.orders (id int PRIMARY KEY, note varchar(200), n int)",
        *(
            "INSERT INTO shop.orders VALUES "
            + ", ".join(f"({at}, 'row {at}', 0)" for at in range(first, first + 1_000))
            for first in range(0, ROWS, 1_000)
        ),
    )
    file = tmp_path / "pipeline.yaml"
    file.write_text(PIPELINE.format(url=server.address_of("")))
    runner = CommandProcess(("run", file), directory=tmp_path, output=tmp_path / "run.log")
    load = ShopLoad(server, life)
    runner.start()
    load.start()
    try:
        for number in range(4):
            load.wait_for(random.randrange(50, 600))
            if number % 2:
                server.execute(DDL[number // 2])
                server.kill()
                server.start()
            runner.kill()
            runner.start()
        load.wait_for(random.randrange(300))
        load.stop()
        runner.stop()
        once = CommandProcess(
            ("run", file, "--once"), directory=tmp_path, output=tmp_path / "once.log"
        )
        once.start()

        assert once.wait(300) == 0, once.last_words()
        assert rows_of_target(tmp_path) == rows_of_source(server)
    finally:
        load.stop()
        if runner.is_started:
            runner.kill()


def rows_of_source(server: EmbeddedMysql) -> list[tuple[object, ...]]:
    return sorted(server.execute("SELECT id, note, n FROM shop.orders"))


def rows_of_target(directory: Path) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(directory / "shop.db")) as target:
        return sorted(target.execute("SELECT id, note, n FROM orders").fetchall())
