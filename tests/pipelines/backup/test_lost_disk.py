"""The disk of a log is lost under load: a backup and one command bring every table back."""

import shutil
import signal
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from headwater.pipelines.terminal import exit_codes
from tests.budget import PATIENCE_S
from tests.databases import Guest
from tests.pipelines.run_process import COMMAND, ROOT, end, start

pytestmark = pytest.mark.slow

FILE = """
pipeline: shop
source: {{type: postgres, url: "{url}", tables: [public.*]}}
sink: {{type: sql, url: "sqlite:///target.db", commit_every: 100ms}}
workers: 0
"""
TABLES = (
    "CREATE TABLE orders (id int PRIMARY KEY, total int)",
    "CREATE TABLE items (id int PRIMARY KEY, note text)",
    "INSERT INTO orders SELECT g, g FROM generate_series(1, 500) g",
    "INSERT INTO items SELECT g, 'first' FROM generate_series(1, 500) g",
)
LOAD = (
    "INSERT INTO orders SELECT max(id) + 1, 0 FROM orders",
    "UPDATE orders SET total = total + 1 WHERE id % 7 = 3",
    "DELETE FROM orders WHERE id = (SELECT min(id) FROM orders)",
    "UPDATE items SET note = note || '.' WHERE id % 50 = 1",
)


@contextmanager
def load_on(guest: Guest) -> Iterator[None]:
    """Changes come until the block ends."""
    enough = threading.Event()

    def write() -> None:
        while not enough.is_set():
            guest.execute(*LOAD)

    writing = threading.Thread(target=write)
    writing.start()
    try:
        yield
    finally:
        enough.set()
        writing.join()


def test_a_log_whose_disk_is_lost_under_load_comes_back_from_its_backup(
    guest: Guest, tmp_path: Path
) -> None:
    file, copies = tmp_path / "pipeline.yaml", tmp_path / "copies"
    file.write_text(FILE.format(url=guest.url))
    guest.execute(*TABLES)
    guest.publish()
    with load_on(guest):
        running = start("run", file, "-q")
        try:
            until(running, lambda: rows_in(tmp_path, "orders") >= 500)
            command("log", "backup", copies, "--data", tmp_path / "data")
            seen = newest_in(tmp_path)
            until(running, lambda: newest_in(tmp_path) > seen)
            second = command("log", "backup", copies, "--data", tmp_path / "data")
            seen = newest_in(tmp_path)
            until(running, lambda: newest_in(tmp_path) > seen)
        finally:
            end(running, signal.SIGKILL)
        shutil.rmtree(tmp_path / "data")
    guest.until_nobody_streams()
    guest.execute("DELETE FROM orders WHERE id % 5 = 0")

    restored = command("log", "restore", copies, tmp_path / "data")
    refused = command("run", file, "--once", code=None)
    recovered = command("recover", file)
    again = command("run", file, "--once")

    assert " sent" in second
    assert restored.splitlines()[-1] == "headwater recover FILE"
    assert refused != again, "without it, source and targets stop"
    assert recovered.splitlines()[-1] == f"headwater run {file}"
    for table in ("orders", "items"):
        assert table_in(tmp_path, table) == guest.rows(f"SELECT * FROM {table} ORDER BY id")
    guest.execute(*LOAD)
    command("run", file, "--once")
    assert table_in(tmp_path, "orders") == guest.rows("SELECT * FROM orders ORDER BY id")
    command("verify", "shop", "-f", file)


def command(*arguments: object, code: int | None = exit_codes.OK) -> str:
    """Returns what it says; None means that it must fail."""
    ran = subprocess.run([*COMMAND, *map(str, arguments)], cwd=ROOT, capture_output=True, text=True)
    if code is None:
        assert ran.returncode not in (exit_codes.OK, exit_codes.INTERNAL), ran.stderr
        return ran.stderr
    assert ran.returncode == code, ran.stdout + ran.stderr
    return ran.stdout


def until(running: "subprocess.Popen[str]", is_so: Callable[[], bool]) -> None:
    """Waits for a state that the running pipeline brings about."""
    while not is_so():
        assert running.poll() is None, running.communicate(timeout=PATIENCE_S)
        time.sleep(0.05)


def table_in(directory: Path, table: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(directory / "target.db")) as connection:
        return connection.execute(f"SELECT * FROM {table} ORDER BY id").fetchall()


def rows_in(directory: Path, table: str) -> int:
    try:
        return len(table_in(directory, table))
    except sqlite3.OperationalError:  # not there yet
        return 0


def newest_in(directory: Path) -> int:
    with closing(sqlite3.connect(directory / "target.db")) as connection:
        return int(connection.execute("SELECT max(id) FROM orders").fetchone()[0])
