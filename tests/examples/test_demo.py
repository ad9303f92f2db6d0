"""`make demo` comes to its end, and would notice if the promise were broken."""

import os
import subprocess
import sys
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from rich.console import Console

from headwater.core_log.model.table_schema import TableId
from scripts.demo_console import console_over
from scripts.demo_generator import Compared, differences, verdict

ROOT = Path(__file__).resolve().parents[2]
ORDERS = TableId("shop", "orders")


@pytest.mark.slow
def test_the_demo_is_killed_and_ends_equal() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "scripts.demo_generator", "20000"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "kill -9 after" in done.stdout
    assert "every row is equal in all three places" in done.stdout
    assert "the link of its console" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    "database", ["postgres", pytest.param("mysql", marks=pytest.mark.long("compat"))]
)
def test_the_show_on_a_database_is_killed_proved_and_taken_back_in_time(database: str) -> None:
    """Small enough for the sink to do without Spark, and with little time to buy in."""
    done = subprocess.run(
        [sys.executable, "-m", "scripts.demo", "2000", "2", database],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "kill -9 after" in done.stdout
    assert "equal to what the database held then" in done.stdout
    assert "DIFFERENT" not in done.stdout


@pytest.mark.slow
@pytest.mark.compat
@pytest.mark.long("compat")
def test_the_show_on_three_brokers_loses_nothing_while_each_is_killed() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "scripts.demo_cluster", "1000", "1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    for node in (1, 2, 3):
        assert f"kill -9 of broker {node}" in done.stdout
        assert f"node {node} is away" in done.stdout
    assert "0 of them are lost" in done.stdout
    assert "DIFFERENT" not in done.stdout


def test_a_row_that_differs_anywhere_breaks_the_promise() -> None:
    rows: list[tuple[object, ...]] = [(1, "a"), (2, "b")]
    console = Console(quiet=True)

    assert verdict(console, [Compared(ORDERS, rows, rows, rows)]) == 0
    assert verdict(console, [Compared(ORDERS, rows, rows[:1], rows)]) == 1
    assert verdict(console, [Compared(ORDERS, rows, rows, [(1, "a"), (2, "c")])]) == 1
    assert differences(rows, [*rows, (2, "b")]) == 1, "a row twice is a difference"


@pytest.mark.slow
def test_the_console_of_the_demo_is_served_and_ends(tmp_path: Path) -> None:
    (tmp_path / "pipeline.yaml").write_text(
        "pipeline: shop\nsource: {type: generator, size: 5, total: 10}\nsink: {type: console}\n"
    )

    with console_over(tmp_path, os.environ) as link:
        page, _, token = link.partition("#")
        with urlopen(page) as answer:
            assert b"Headwater" in answer.read()

    assert len(token) > 20
    with pytest.raises(URLError):
        urlopen(page)
