"""Runs in processes of their own, as on several machines, share a pipeline: they are killed, stand
still and come back, and what arrives is whole, once."""

import asyncio
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
import pytest

from headwater.core_log.client import KafkaLog, KafkaSettings
from headwater.core_log.foundation.errors import ConfigError
from headwater.pipelines.commands.drop import keep_tasks_from_beginning
from headwater.pipelines.journal.control import begin_drop, read_dropping
from headwater.pipelines.terminal import exit_codes
from headwater.pipelines.terminal.log_address import LogAddress
from headwater.pipelines.terminal.output import Output
from scripts.free_port import free_ports
from tests.pipelines.commands.test_run import until, workers_of
from tests.pipelines.conftest import Headwater
from tests.pipelines.known_history import PIPELINE, audit, changes_in, count_changes, is_whole
from tests.pipelines.run_process import address_of, end, start, start_broker

pytestmark = pytest.mark.slow

Runs = list["subprocess.Popen[str]"]
T = TypeVar("T")


class Machines:
    """One directory and at most one run on each; the targets are reached by all."""

    def __init__(self, at: Path, runs: Runs, headwater: Headwater) -> None:
        self.at, self._runs, self._headwater = at, runs, headwater
        runs.append(start_broker(at / "log"))
        self.address = address_of(at / "log")

    def file(self, name: str, *, rate: int = 150, more: str = "") -> Path:
        directory = self.at / name
        directory.mkdir(exist_ok=True)
        file = directory / "pipeline.yaml"
        file.write_text(PIPELINE.format(at=self.at, log=self.log(name), rate=rate) + more)
        return file

    def log(self, name: str) -> str:
        return f'{{type: kafka, bootstrap: "{self.address}", path: data, cleanup: delete}}'

    def start(self, name: str, **written: Any) -> "subprocess.Popen[str]":
        process = start("run", self.file(name, **written), "-q")
        self._runs.append(process)
        return process

    def tasks(self, name: str) -> dict[str, dict[str, Any]]:
        """What the status on this machine says of each task."""
        ran = self._headwater("status", "--json", "-f", self.at / name / "pipeline.yaml")
        if ran.code != exit_codes.OK:
            return {}
        found: dict[str, Any] = ran.envelope["data"]["pipelines"].get("shop", {"tasks": {}})
        tasks: dict[str, dict[str, Any]] = found["tasks"]
        return tasks

    def until_shared(self, seen_from: str, count: int) -> None:
        """Until so many runs have all of the tasks."""
        until(lambda: self._is_shared(self.tasks(seen_from), count))

    def _is_shared(self, tasks: dict[str, dict[str, Any]], count: int) -> bool:
        fine = [each for each in tasks.values() if each["state"] in ("running", "done")]
        return len(fine) == 3 and len({each["member"] for each in fine}) == count

    def audit(self) -> None:
        until(lambda: is_whole(self.at))
        audit(self.at, self.ask(_changes))

    def ask(self, question: Callable[[KafkaLog], Awaitable[T]]) -> T:
        async def asked() -> T:
            log = KafkaLog(KafkaSettings(bootstrap=[self.address]))
            try:
                return await question(log)
            finally:
                await log.close()

        return asyncio.run(asked())


async def _changes(log: KafkaLog) -> Counter[bytes]:
    return await changes_in(log, [each.name for each in await log.topics.all()])


@pytest.fixture
def machines(tmp_path: Path, runs: Runs, headwater: Headwater) -> Machines:
    return Machines(tmp_path, runs, headwater)


def test_the_others_go_on_when_a_run_is_killed_and_it_gets_a_share_again(
    machines: Machines,
) -> None:
    a, b = machines.start("a"), machines.start("b")
    machines.until_shared("a", 2)

    a.kill()
    a.wait()
    machines.until_shared("b", 1)
    moved = count_changes(machines.at)
    until(lambda: count_changes(machines.at) > moved or is_whole(machines.at))
    a = machines.start("a")
    machines.until_shared("b", 2)

    assert end(b, signal.SIGTERM)[0] == exit_codes.TERMINATED
    machines.until_shared("a", 1)
    machines.audit()


@pytest.mark.long("crash")
def test_a_run_that_is_killed_and_begins_at_once_has_a_share_again(machines: Machines) -> None:
    """Within its session it has the same one: test_worker_group.py, without the clock."""
    a, _ = machines.start("a"), machines.start("b")
    machines.until_shared("a", 2)

    a.kill()
    a.wait()
    machines.start("a")
    until(lambda: (machines.at / "a/data/endpoint.json").exists() and bool(machines.tasks("a")))
    machines.until_shared("a", 2)
    machines.until_shared("b", 2)

    machines.audit()


def test_a_run_that_stood_still_finds_its_tasks_elsewhere_and_doubles_nothing(
    machines: Machines,
) -> None:
    a, _ = machines.start("a"), machines.start("b")
    machines.until_shared("a", 2)

    os.kill(a.pid, signal.SIGSTOP)  # its worker processes go on until their lease is over
    machines.until_shared("b", 1)
    os.kill(a.pid, signal.SIGCONT)
    machines.until_shared("b", 2)

    machines.audit()


@pytest.mark.long("crash")
def test_a_whole_machine_that_stood_still_doubles_nothing(machines: Machines) -> None:
    a, _ = machines.start("a"), machines.start("b")
    machines.until_shared("a", 2)
    everything = [a.pid, *workers_of(a.pid)]

    for pid in everything:
        os.kill(pid, signal.SIGSTOP)
    machines.until_shared("b", 1)
    for pid in everything:
        os.kill(pid, signal.SIGCONT)
    machines.until_shared("b", 2)

    machines.audit()


@pytest.mark.long("crash")
def test_a_worker_process_that_dies_is_replaced_on_its_own_machine(machines: Machines) -> None:
    a, b = machines.start("a"), machines.start("b")
    machines.until_shared("a", 2)
    before = places(machines.tasks("b"))

    for pid in (*workers_of(a.pid), *workers_of(b.pid)):
        os.kill(pid, signal.SIGKILL)
    machines.until_shared("a", 2)

    assert places(machines.tasks("b")) == before
    machines.audit()


def test_a_pause_and_a_resume_are_obeyed_wherever_the_task_is(
    machines: Machines, headwater: Headwater
) -> None:
    machines.start("a"), machines.start("b")
    machines.until_shared("a", 2)

    assert headwater("pause", "shop", "-f", machines.at / "b/pipeline.yaml").code == 0
    until(lambda: states(machines.tasks("a")) <= {"paused", "done"})
    assert headwater("resume", "shop", "-f", machines.at / "a/pipeline.yaml").code == 0

    machines.audit()


def test_commands_that_need_a_pipeline_at_rest_are_refused_on_other_machines_too(
    machines: Machines, headwater: Headwater
) -> None:
    machines.start("a")
    machines.until_shared("a", 1)

    ran = headwater("run", machines.file("b"), "--once")

    assert ran.code != exit_codes.OK
    assert "the pipeline is already running without --once" in ran.remarks
    ran = headwater("drop", "shop", "--yes", "-f", machines.file("b"))
    assert ran.code != exit_codes.OK
    assert "the pipeline is running" in ran.remarks
    machines.audit()


def test_no_task_begins_on_any_machine_while_the_pipeline_is_dropped(
    machines: Machines, headwater: Headwater
) -> None:
    """Targets and source are emptied before the log, and its topics last."""
    a = machines.start("a", rate=2000)
    machines.until_shared("a", 1)
    assert end(a, signal.SIGTERM)[0] == exit_codes.TERMINATED

    async def dropping(log: KafkaLog) -> None:
        await begin_drop(log, "shop", now_ms=0)

    machines.ask(dropping)
    ran = headwater("run", machines.file("b", rate=2000), "--once", "--json")
    ended = headwater("drop", "shop", "--data", "--yes", "-f", machines.at / "a/pipeline.yaml")
    machines.start("b", rate=2000)

    held = {each["task"] for each in ran.envelope["data"]["undelivered"]}
    assert ran.code == exit_codes.DIFFERENT and held == {"source", "mirror", "changes"}
    assert "the pipeline is being dropped" in ran.remarks
    assert ended.code == exit_codes.OK
    machines.audit()


def test_a_run_that_begins_after_the_first_look_of_a_drop_is_noticed_and_goes_on(
    machines: Machines,
) -> None:
    machines.start("a", rate=2000)
    machines.until_shared("a", 1)

    async def late(log: KafkaLog) -> frozenset[str]:
        output = Output()
        context = click.Context(click.Command("drop"), obj=output)
        with context.scope(), pytest.raises(ConfigError, match="the pipeline is running"):
            async with keep_tasks_from_beginning(LogAddress(None, machines.address), log, "shop"):
                raise AssertionError("nothing is removed")
        return await read_dropping(log, "shop")

    assert not machines.ask(late)
    machines.audit()


@pytest.mark.long("crash")
def test_runs_whose_logs_form_a_cluster_share_their_tasks_and_go_on_without_one(
    tmp_path: Path, runs: Runs, headwater: Headwater
) -> None:
    ports = free_ports(3)
    machines = Cluster(tmp_path, runs, headwater, ports)
    for name in ("1", "2", "3"):
        machines.start(name)
        until((tmp_path / name / "data/endpoint.json").exists)
    machines.until_shared("1", 3)

    runs[1].kill()  # its broker may lead topics, which may not have grown to the third
    runs[1].wait()
    machines.until_shared("3", 2)

    refused = headwater("run", machines.file("2"), "--once")
    assert refused.code == exit_codes.INVALID
    assert "would take a broker from its cluster" in refused.remarks
    machines.audit()


class Cluster(Machines):
    """The log of each run is a broker; the first begins the cluster."""

    def __init__(self, at: Path, runs: Runs, headwater: Headwater, ports: Sequence[int]) -> None:
        self.at, self._runs, self._headwater, self._ports = at, runs, headwater, ports
        self.address = f"127.0.0.1:{ports[0]}"

    def log(self, name: str) -> str:
        join = "" if name == "1" else f'join: ["{self.address}"], '
        listen = f"127.0.0.1:{self._ports[int(name) - 1]}"
        cluster = f"{{{join}node_id: {name}}}"
        return f'{{path: data, listen: "{listen}", cleanup: delete, cluster: {cluster}}}'


def places(tasks: dict[str, dict[str, Any]]) -> dict[str, str]:
    return {name: each["member"] for name, each in tasks.items()}


def states(tasks: dict[str, dict[str, Any]]) -> set[str]:
    return {each["state"] for each in tasks.values()} or {"unknown"}
