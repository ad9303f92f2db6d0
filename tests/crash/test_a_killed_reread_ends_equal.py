"""A re-read that is killed again and again goes on, and the target equals the source."""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
import yaml

from scripts.embedded_postgres import EmbeddedPostgres, embedded_postgres
from tests.crash.command_process import CommandProcess
from tests.databases import database_in

ROWS, ROWS_PER_S, CHUNK_ROWS = 3_000, 600, 100
KILLS = 3
LOOK_S = 0.02


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedPostgres]:
    with embedded_postgres() as server:
        yield server


def rows_of(path: Path, condition: str = "true") -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path, timeout=60)) as database:
        if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'items'").fetchall():
            return []
        return database.execute(f"SELECT id, a FROM items WHERE {condition} ORDER BY id").fetchall()


@pytest.mark.crash
def test_a_killed_reread_goes_on_with_the_rest(server: EmbeddedPostgres, tmp_path: Path) -> None:
    target, file = tmp_path / "target.db", tmp_path / "pipeline.yaml"
    with (
        database_in(server.address, "killed_reread") as address,
        psycopg.connect(address, autocommit=True) as source,
    ):
        source.execute("CREATE TABLE items (id int PRIMARY KEY, a text, b int)")
        source.execute(
            f"INSERT INTO items SELECT i, 'a' || i, 0 FROM generate_series(1, {ROWS}) i".encode()
        )
        snapshot = {"chunk_rows": CHUNK_ROWS, "max_rows_per_second": ROWS_PER_S}
        pipeline = {
            "pipeline": {"name": "shop", "schema_changes": {"settle": "100ms"}},
            "workers": 0,
            "source": {
                "type": "postgres",
                "url": address,
                "tables": "public.items",
                "heartbeat": "200ms",
                "snapshot": snapshot,
            },
            "sink": {"type": "sql", "url": f"sqlite:///{target}", "commit_every": "0s"},
        }
        file.write_text(yaml.safe_dump(pipeline))
        runner = CommandProcess(["run", file], directory=tmp_path, output=tmp_path / "run.log")
        runner.start()
        try:
            while len(rows_of(target)) < ROWS:
                time.sleep(LOOK_S)
            source.execute("ALTER TABLE items ALTER a TYPE text USING upper(a)")
            reads = [0]
            for number in range(KILLS):
                while len(read := rows_of(target, "a GLOB 'A*'")) <= reads[-1]:
                    time.sleep(LOOK_S)
                runner.kill()
                reads.append(len(read))
                source.execute(b"UPDATE items SET b = b + 1 WHERE id %% 7 = %s", [number])
                source.execute(b"DELETE FROM items WHERE id %% 500 = %s", [number])
                runner.start()
            wanted = source.execute("SELECT id, a FROM items ORDER BY id").fetchall()
            while rows_of(target) != wanted:
                time.sleep(LOOK_S)
            log = (tmp_path / "run.log").read_text()
        finally:
            runner.end()

    assert 0 < reads[1] < ROWS
    assert log.count("rows are read again") == 1
