"""An alert fires in a real Prometheus once its cause is there, and ends once its cure is done."""

import asyncio
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGTERM
from typing import Any

import pytest
import yaml

from headwater.core_log.embedded import EmbeddedLog
from headwater.core_log.foundation.settings import BrokerSettings
from headwater.pipelines.journal.control import VERIFIED, read_desired, write_control
from scripts.free_port import free_port
from tests.crash.broker_faults import why_no_mounts
from tests.databases import Guest
from tests.deploy import prometheus_server
from tests.deploy.prometheus_server import alerts, ask, start_prometheus, until
from tests.pipelines.run_process import COMMAND, end, start
from tests.pipelines.time_travel.verify.test_verify import execute
from tests.small_disk import small_disk

pytestmark = pytest.mark.slow

WHY_NOT = why_no_mounts()
DISK_BYTES, RESERVE_BYTES = 64 << 20, 4 << 20
COPY = """
pipeline: copy
source: {type: sql, url: "sqlite:///source.db", tables: ["*"], deletes: compare, every: 200ms}
sink: {type: sql, url: "sqlite:///target.db", commit_every: 100ms}
"""
TABLES = ("a", "b")
DAY_MS = 24 * 60 * 60 * 1_000


@pytest.fixture(scope="module")
def programs() -> Path:
    return prometheus_server.programs()


@dataclass
class WatchedRun:
    """A run of the file `pipeline.yaml` that a Prometheus scrapes, also across its starts."""

    file: Path
    address: str
    token: Path
    prometheus: str = ""
    processes: "dict[str, subprocess.Popen[str]]" = field(default_factory=dict)
    """The run, and Prometheus."""

    def start(self) -> None:
        options = ("--http", self.address, "--token-file", self.token)
        self.processes["run"] = start("run", self.file, "-q", *options)

    def stop(self) -> None:
        code, _, err = end(self.processes.pop("run"), SIGTERM)
        assert code == 128 + SIGTERM, err

    def until_firing(self, name: str) -> dict[str, str]:
        """The labels of the alert."""
        found: list[dict[str, str]] = []

        def fires() -> bool:
            found[:] = [each["metric"] for each in self._firing(name)]
            return bool(found)

        self._until(fires)
        return found[0]

    def until_quiet(self, name: str) -> None:
        """No longer firing, though Prometheus still scrapes."""
        self._until(lambda: bool(ask(self.prometheus, "up == 1")) and not self._firing(name))

    def until_has(self, query: str) -> None:
        self._until(lambda: bool(ask(self.prometheus, query)))

    def _firing(self, name: str) -> list[Any]:
        return ask(self.prometheus, f'ALERTS{{alertname="{name}", alertstate="firing"}}')

    def _until(self, is_so: Any) -> None:
        until(is_so, list(self.processes.values()))


@contextmanager
def watched(programs: Path, directory: Path, text: str) -> Iterator[WatchedRun]:
    file, token = directory / "pipeline.yaml", directory / "token"
    file.write_text(text)
    run = WatchedRun(file, f"127.0.0.1:{free_port()}", token)
    run.start()
    try:
        until(token.exists, list(run.processes.values()))
        rules = directory / "alerts.yaml"
        rules.write_text(yaml.safe_dump({"groups": [{"name": "at once", "rules": at_once()}]}))
        run.prometheus, run.processes["prometheus"] = start_prometheus(
            programs, directory, run.address, token, rules=rules
        )
        run.until_has("headwater_rows_total > 0")
        yield run
    finally:
        for process in run.processes.values():
            process.kill()
            process.communicate()


def at_once() -> list[dict[str, Any]]:
    """The rules without `for`, which `alerts_test.yaml` tests, and with a shorter last minute."""
    return [
        {name: rule[name] for name in rule if name != "for"}
        | {"expr": rule["expr"].replace("[1m]", "[3s]")}
        for rule in alerts()
    ]


def headwater(run: WatchedRun, *arguments: object, code: int = 0) -> str:
    """A command as the page names it, in the directory of the file."""
    done = subprocess.run(
        [*COMMAND, *map(str, arguments)], cwd=run.file.parent, capture_output=True, text=True
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def fill(database: Path) -> None:
    for table in TABLES:
        execute(
            database,
            f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, v TEXT)",
            f"INSERT INTO {table} VALUES (1, 'one'), (2, 'two')",
        )


@pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))
def test_a_disk_that_fills_is_told_before_and_after_it_is_full_and_is_well_once_there_is_room(
    programs: Path, tmp_path: Path
) -> None:
    text = f"""
pipeline: shop
source: {{type: generator, size: 1000, rate: 100}}
sink: {{type: sql, url: "sqlite:///target.db", commit_every: 100ms}}
log: {{path: {tmp_path}/disk/data}}
"""
    with small_disk(tmp_path / "disk", size=DISK_BYTES), watched(programs, tmp_path, text) as run:
        ballast = tmp_path / "disk/ballast"
        room = "headwater_log_disk_free_bytes"
        free = int(ask(run.prometheus, room)[0]["value"][1])
        ballast.write_bytes(bytes(free - RESERVE_BYTES))

        run.until_firing("HeadwaterDiskFull")
        assert not run._firing("HeadwaterLogProblem"), "it is told before it is full"
        more = tmp_path / "disk/more"
        with more.open("ab", buffering=0) as end, pytest.raises(OSError, match="No space left"):
            while True:
                end.write(bytes(4096))
        run.until_firing("HeadwaterLogProblem")
        retrying = run.until_firing("HeadwaterTaskRetrying")
        ballast.unlink()
        more.unlink()

        for name in ("HeadwaterLogProblem", "HeadwaterTaskRetrying", "HeadwaterDiskFull"):
            run.until_quiet(name)
        run.until_has('increase(headwater_rows_total{task="sql"}[2s]) > 0')
    assert retrying["task"] == "source"


@pytest.mark.long("compat")
def test_a_damaged_partition_is_told_until_its_table_is_read_again(
    programs: Path, tmp_path: Path
) -> None:
    fill(tmp_path / "source.db")
    with watched(programs, tmp_path, COPY) as run:
        run.until_has('headwater_rows_total{task="sql", table="b"} >= 2')
        run.stop()
        [segment] = (tmp_path / "data/log/copy.a-0").glob("*.log")
        segment.write_bytes(segment.read_bytes()[:-10])
        run.start()

        told = run.until_firing("HeadwaterPartitionOffline")
        status = headwater(run, "status", "-f", run.file)
        run.stop()
        named = headwater(run, "log", "verify", "data", code=4)
        headwater(run, "drop", "copy/a", "--data", "--yes", "-f", run.file)
        run.start()

        run.until_quiet("HeadwaterPartitionOffline")
        run.until_has('headwater_rows_total{task="sql", table="a"} >= 2')
        verified = headwater(run, "verify", "copy", "-f", run.file)
    assert (told["topic"], told["partition"]) == ("copy.a", "0")
    assert "copy.a-0" in status and "copy.a-0" in named
    assert "equal" in verified


def test_a_table_that_its_target_refuses_is_told_until_it_is_resumed(
    programs: Path, tmp_path: Path
) -> None:
    fill(tmp_path / "source.db")
    execute(tmp_path / "target.db", "CREATE VIEW a AS SELECT 1 AS id")
    with watched(programs, tmp_path, COPY) as run:
        told = run.until_firing("HeadwaterTableQuarantined")
        status = headwater(run, "status", "-f", run.file)
        execute(tmp_path / "target.db", "DROP VIEW a")
        headwater(run, "resume", "copy/a", "-f", run.file)

        run.until_quiet("HeadwaterTableQuarantined")
        verified = headwater(run, "verify", "copy", "-f", run.file)
    assert told["pipeline"] == "copy"
    assert "quarantined" in status
    assert "equal" in verified


def test_write_ahead_log_that_a_paused_pipeline_retains_is_told_until_it_is_resumed(
    programs: Path, tmp_path: Path, guest: Guest
) -> None:
    guest.execute("CREATE TABLE items (id int PRIMARY KEY)", "INSERT INTO items VALUES (1)")
    guest.publish("items", name="headwater_wal")
    text = f"""
pipeline: wal
source:
  type: postgres
  url: "{guest.url}"
  tables: [public.items]
  heartbeat: 200ms
  slot: {{max_retained_wal: 40MiB}}
sink: {{type: sql, url: "sqlite:///target.db", commit_every: 100ms}}
"""
    with watched(programs, tmp_path, text) as run:
        run.until_has("headwater_retained_wal_bytes > 0")
        headwater(run, "pause", "wal", "-f", run.file)
        run.until_has('headwater_task_state{task="source", state="paused"} == 1')
        guest.execute(
            "CREATE TABLE other (t text)",
            "INSERT INTO other SELECT repeat('x', 900) FROM generate_series(1, 50000)",
        )

        told = run.until_firing("HeadwaterRetainedWal")
        headwater(run, "resume", "wal", "-f", run.file)
        guest.execute("CHECKPOINT")
        run.until_quiet("HeadwaterRetainedWal")
    assert told["task"] == "source"


@pytest.mark.long("compat")
def test_a_paused_pipeline_is_told_as_not_verified_until_it_is_resumed(
    programs: Path, tmp_path: Path
) -> None:
    fill(tmp_path / "source.db")
    with watched(programs, tmp_path, COPY) as run:
        run.until_has("count(headwater_rows_total{task='sql'} >= 2) == 2")
        headwater(run, "verify", "copy", "-f", run.file)
        run.until_has("headwater_verified_equal == 1")
        run.stop()
        asyncio.run(as_if_verified(run.file, ago_ms=3 * DAY_MS))
        run.start()
        run.until_has("time() - headwater_verified_timestamp_seconds > 172800")
        assert not run._firing("HeadwaterVerifyOverdue"), "the file does not say when"
        headwater(run, "pause", "copy", "-f", run.file)
        run.stop()
        run.file.write_text(COPY + "verify: {every: 1s}\n")
        run.start()

        told = run.until_firing("HeadwaterVerifyOverdue")
        headwater(run, "resume", "copy", "-f", run.file)
        run.until_quiet("HeadwaterVerifyOverdue")
    assert told["pipeline"] == "copy"


async def as_if_verified(file: Path, *, ago_ms: int) -> None:
    """What a comparison so long ago has left in the log."""
    log = await EmbeddedLog.open(BrokerSettings(data=file.parent / "data", listen="127.0.0.1:0"))
    try:
        found = await read_desired(log, "copy")
        verified = [each for each in found.signals if each.kind == VERIFIED]
        assert {each.table for each in verified} == {*TABLES}
        now_ms = verified[0].at_ms - ago_ms
        await write_control(log, "copy", verified, now_ms=now_ms)
    finally:
        await log.close()
