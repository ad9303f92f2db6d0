"""`headwater run` in processes of its own: joined, left, taken over, killed, and always right."""

import json
import os
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest

from headwater.connectors.generator.history import truth
from headwater.connectors.generator.settings import GeneratorSettings
from headwater.pipelines.terminal import exit_codes
from tests.budget import PATIENCE_S
from tests.pipelines.conftest import Headwater
from tests.pipelines.run_process import COMMAND, ROOT, end, start

pytestmark = pytest.mark.slow

ENDLESS = """
pipeline: shop
source: {type: generator, size: 1000, rate: 100}
sink:
  - {type: sql, url: "sqlite:///target.db", commit_every: 100ms}
"""
FINITE = """
pipeline: shop
source: {type: generator, size: 1000, total: 6000, rate: 0, batch_rows: 200}
sink: {type: sql, url: "sqlite:///target.db", commit_every: 0s}
"""
SECOND_SINK = '  - {type: sql, name: second, url: "sqlite:///second.db"}\n'


def test_a_second_run_hands_over_what_can_be_obeyed_looks_on_and_leaves(
    tmp_path: Path, runs: "list[subprocess.Popen[str]]"
) -> None:
    file = write(tmp_path, ENDLESS)
    first = start("run", file)
    runs.append(first)
    until(lambda: rows_in(tmp_path / "target.db") > 0)
    owner, workers = console_of(tmp_path)["pid"], workers_of(first.pid)

    write(tmp_path, ENDLESS + SECOND_SINK)
    second = start("run", file)
    runs.append(second)
    until(lambda: rows_in(tmp_path / "second.db") > 0)
    code, out, err = end(second, signal.SIGINT)

    assert (code, out) == (exit_codes.INTERRUPTED, "")
    assert " has started shop/second\n" in err
    write(tmp_path, ENDLESS + "log: {partitions: 2}\n")
    third = start("run", file)
    runs.append(third)
    refusal = third.communicate()[1]

    assert third.returncode == exit_codes.INVALID
    assert "the partitions of a topic cannot change while it has records" in refusal
    assert console_of(tmp_path)["pid"] == owner == first.pid
    assert workers_of(first.pid) == workers
    code, out, err = end(first, signal.SIGTERM)
    assert (code, out) == (exit_codes.TERMINATED, "")
    assert "another run has started shop/second\n" in err
    assert not (tmp_path / "data" / "endpoint.json").exists()
    until(lambda: not alive(workers))


def test_an_attached_run_takes_over_when_the_owner_is_killed(
    tmp_path: Path, runs: "list[subprocess.Popen[str]]"
) -> None:
    file = write(tmp_path, ENDLESS)
    first = start("run", file)
    runs.append(first)
    until(lambda: rows_in(tmp_path / "target.db") > 0)
    workers = workers_of(first.pid)
    second = start("run", file)
    runs.append(second)
    until_said(second, "runs the pipelines of this log")

    first.kill()
    first.wait()
    until(lambda: not alive(workers))
    until_said(second, "the log is at")
    rows = rows_in(tmp_path / "target.db")
    until(lambda: rows_in(tmp_path / "target.db") > rows)

    assert console_of(tmp_path)["pid"] == second.pid
    assert end(second, signal.SIGTERM)[0] == exit_codes.TERMINATED


def test_a_run_once_delivers_everything_exactly_once_although_workers_and_owners_are_killed(
    tmp_path: Path, runs: "list[subprocess.Popen[str]]"
) -> None:
    file = write(tmp_path, FINITE)
    first = start("run", file, "--once")
    runs.append(first)
    until(lambda: rows_in(tmp_path / "target.db") > 0)
    for worker in workers_of(first.pid):
        with suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)
    first.kill()
    first.wait()

    last = start("run", file, "--once", "--json")
    runs.append(last)
    out, err = last.communicate(timeout=600)

    assert last.returncode == exit_codes.OK, err
    assert json.loads(out)["data"]["pipelines"]["shop"]["state"] == "done"
    assert_equals_truth(tmp_path / "target.db")


def test_a_run_that_joins_lets_the_owner_migrate_and_nothing_is_lost_or_doubled(
    headwater: Headwater, tmp_path: Path, runs: "list[subprocess.Popen[str]]"
) -> None:
    steady = FINITE.replace("rate: 0", "rate: 1500")
    file = write(tmp_path, steady)
    first = start("run", file)
    runs.append(first)
    until(lambda: rows_in(tmp_path / "target.db") > 0)
    owner = console_of(tmp_path)["pid"]

    write(tmp_path, steady + "log: {partitions: 2, value: flat-json}\n")
    second = start("run", file, "--migrate")
    runs.append(second)
    until(lambda: partitions(headwater, tmp_path).get("shop.shop.order_lines.g2") == 2)
    until(lambda: is_truth(tmp_path / "target.db"))

    assert owner == first.pid == console_of(tmp_path)["pid"]
    found = partitions(headwater, tmp_path)
    assert {name.removesuffix(".g2") for name in found if name.endswith(".g2")} < found.keys()
    assert {count for name, count in found.items() if name.endswith(".g2")} == {2}
    assert end(second, signal.SIGINT)[0] == exit_codes.INTERRUPTED
    assert end(first, signal.SIGTERM)[0] == exit_codes.TERMINATED
    assert is_truth(tmp_path / "target.db")


def test_one_process_is_enough_where_the_file_says_so(tmp_path: Path) -> None:
    file = write(tmp_path, FINITE + "workers: 0\n")

    ran = start("run", file, "--once")
    found: set[int] = set()
    while ran.poll() is None:
        found |= set(workers_of(ran.pid))
        time.sleep(0.05)
    _, err = ran.communicate()

    assert ran.returncode == exit_codes.OK, err
    assert_equals_truth(tmp_path / "target.db")


def test_a_run_that_set_records_aside_says_so_at_its_end(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,total\n1,2.5\n2,x\n")
    file = write(
        tmp_path,
        "pipeline: shop\nsource: {type: files, path: ./*.csv, table: orders, key: id, settle: 0s}\n"
        "transform: [{table: orders, cast: {total: 'decimal(10,2)'}}]\n"
        "sink: {type: sql, url: 'sqlite:///target.db'}\n",
    )

    ran = start("run", file, "--once")
    _, err = ran.communicate(timeout=PATIENCE_S)

    assert ran.returncode == exit_codes.OK, err
    assert "1 record of shop could not be applied: headwater dlq show shop" in err


def test_a_run_once_of_a_paused_pipeline_says_that_it_is_paused(
    tmp_path: Path, headwater: Headwater
) -> None:
    file = write(tmp_path, FINITE)
    assert end_of(start("run", file, "--once"))[0] == exit_codes.OK
    assert headwater("pause", "shop", "--data", tmp_path / "data").code == exit_codes.OK

    refused = end_of(start("run", file, "--once"))
    assert headwater("resume", "shop", "--data", tmp_path / "data").code == exit_codes.OK
    resumed = end_of(start("run", file, "--once"))

    assert refused[0] == exit_codes.INVALID
    assert "is paused" in refused[1] and "headwater resume shop" in refused[1]
    assert resumed[0] == exit_codes.OK


def end_of(ran: "subprocess.Popen[str]") -> tuple[int, str]:
    _, said = ran.communicate(timeout=PATIENCE_S)
    return ran.returncode, said


def test_a_run_whose_streams_were_closed_at_its_start_delivers_everything(tmp_path: Path) -> None:
    file = write(tmp_path, FINITE)
    closing_them = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh"]

    ran = subprocess.run(
        [*closing_them, *COMMAND, "run", file, "--once"], cwd=ROOT, timeout=PATIENCE_S, check=False
    )

    assert ran.returncode == exit_codes.OK
    assert_equals_truth(tmp_path / "target.db")


def test_a_task_that_nothing_can_cure_ends_the_run_with_its_reason(tmp_path: Path) -> None:
    write(tmp_path, FINITE)
    (tmp_path / "target.db").write_bytes(b"this is no database" * 100)

    ran = start("run", tmp_path / "pipeline.yaml", "--once")
    _, err = ran.communicate(timeout=600)

    assert ran.returncode == exit_codes.DIFFERENT, err
    assert "error: not everything was delivered: " in err and "  shop/sql: shop." in err


def test_a_log_that_cannot_be_made_is_told_without_a_traceback(tmp_path: Path) -> None:
    file = write(tmp_path, ENDLESS)
    (tmp_path / "data").write_text("in the way")

    ran = start("run", file)
    _, err = ran.communicate(timeout=PATIENCE_S)

    assert ran.returncode == exit_codes.UNREACHABLE, err
    assert "error: the system says: " in err and "Traceback" not in err


def test_a_file_with_mistakes_starts_nothing(headwater: Headwater, tmp_path: Path) -> None:
    file = write(tmp_path, ENDLESS.replace("rate", "rat"))

    ran = headwater("run", file)

    assert ran.code == exit_codes.INVALID
    assert f"{file}:3:" in ran.remarks and "did you mean 'rate'" in ran.remarks
    assert not (tmp_path / "data").exists()


def write(directory: Path, text: str) -> Path:
    file = directory / "pipeline.yaml"
    file.write_text(text)
    return file


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 2 * PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline, "it comes to pass"
        time.sleep(0.05)


def until_said(process: "subprocess.Popen[str]", words: str) -> None:
    assert process.stderr is not None
    said = []
    while line := process.stderr.readline():
        if words in line:
            return
        said.append(line)
    raise AssertionError(f"it ended with {process.wait()}, without saying {words!r}: {said}")


def rows_in(database: Path) -> int:
    """0 while there is no table to look into."""
    if not database.exists():
        return 0
    with closing(sqlite3.connect(database, timeout=10)) as connection:
        try:
            return int(connection.execute("SELECT count(*) FROM order_lines").fetchone()[0])
        except sqlite3.OperationalError:
            return 0


def assert_equals_truth(database: Path) -> None:
    settings = GeneratorSettings(size=1_000, total=6_000, rate=0, batch_rows=200)
    with closing(sqlite3.connect(database)) as connection:
        for table, rows in truth(settings).items():
            columns = ", ".join(f'"{name}"' for name in rows.column_names[:2])
            found = connection.execute(f'SELECT {columns} FROM "{table.name}" ORDER BY {columns}')
            wanted = zip(*(rows.column(at).to_pylist() for at in range(2)), strict=True)
            assert found.fetchall() == sorted(wanted), table


def is_truth(database: Path) -> bool:
    try:
        assert_equals_truth(database)
    except (AssertionError, sqlite3.OperationalError):
        return False
    return True


def partitions(headwater: Headwater, directory: Path) -> dict[str, int]:
    """By topic."""
    ran = headwater("topics", "ls", "--json", "--data", directory / "data")
    return {each["topic"]: each["partitions"] for each in ran.envelope["data"]}


def console_of(directory: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((directory / "data" / "endpoint.json").read_text())
    return found


def workers_of(pid: int) -> list[int]:
    """Worker processes among the children of a process."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            command = (path.parent / "cmdline").read_bytes()
            if (
                int(fields[1]) == pid
                and fields[0] != "Z"
                and b"headwater.pipelines.running.worker" in command
            ):
                found.append(int(path.parent.name))
    return sorted(found)


def alive(pids: list[int]) -> bool:
    for pid in pids:
        with suppress(OSError):
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
                return True
    return False
