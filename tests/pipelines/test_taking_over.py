"""Who comes to a log that another process has waits for it, uses it or takes over, and says so."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import click
import pytest

from headwater.core_log.client import KafkaLog
from headwater.core_log.embedded import EmbeddedLog
from headwater.core_log.foundation.endpoint import Endpoint, encode_endpoint
from headwater.core_log.foundation.errors import LogUnavailable
from headwater.core_log.foundation.settings import BrokerSettings
from headwater.core_log.storage.files import OsFiles
from headwater.pipelines.terminal import exit_codes
from headwater.pipelines.terminal.log_address import LogAddress
from headwater.pipelines.terminal.log_place import find_owner
from headwater.pipelines.terminal.output import Output
from tests.pipelines.commands.test_run import (
    ENDLESS,
    FINITE,
    assert_equals_truth,
    console_of,
    rows_in,
    until,
    until_said,
    write,
)
from tests.pipelines.run_process import ROOT, end, start

HOLDER = """
import asyncio, sys
from pathlib import Path
from headwater.core_log.embedded import EmbeddedLog
from headwater.core_log.foundation.settings import BrokerSettings

async def hold():
    settings = BrokerSettings(data=Path(sys.argv[1]), listen="127.0.0.1:0")
    log = await EmbeddedLog.open(settings, command="headwater rebuild")
    print("held", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await log.close()

asyncio.run(hold())
"""


def a_holder(data: Path) -> "subprocess.Popen[str]":
    """A command that has the log until its standard input closes."""
    data.mkdir(exist_ok=True)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(data)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"
    return holder


@pytest.mark.slow
@pytest.mark.parametrize("how", ["ends", "is killed"])
def test_a_run_waits_for_the_command_that_has_the_log_and_then_takes_it(
    tmp_path: Path, runs: "list[subprocess.Popen[str]]", how: str
) -> None:
    file = write(tmp_path, FINITE)
    holder = a_holder(tmp_path / "data")
    runs.append(holder)
    ran = start("run", file, "--once")
    runs.append(ran)

    until_said(ran, f"`headwater rebuild` (process {holder.pid}) has the log of")
    if how == "is killed":
        holder.kill()
    else:
        holder.communicate("")
    _, said = ran.communicate()

    assert ran.returncode == exit_codes.OK, said
    assert_equals_truth(tmp_path / "target.db")


@pytest.mark.slow
def test_a_broker_waits_for_the_command_that_has_the_log(
    tmp_path: Path, runs: "list[subprocess.Popen[str]]"
) -> None:
    holder = a_holder(tmp_path / "data")
    runs.append(holder)
    broker = start("broker", "--data", tmp_path / "data", "--listen", "127.0.0.1:0")
    runs.append(broker)
    until_said(broker, "has the log of")

    holder.kill()
    until_said(broker, "the log listens on")

    assert end(broker, signal.SIGTERM)[0] == exit_codes.TERMINATED


@pytest.mark.slow
def test_one_of_two_watching_runs_takes_over_when_the_owner_drains_and_the_other_joins_it(
    tmp_path: Path, runs: "list[subprocess.Popen[str]]"
) -> None:
    file = write(tmp_path, ENDLESS)
    first = start("run", file)
    runs.append(first)
    until(lambda: rows_in(tmp_path / "target.db") > 0)
    others = [start("run", file), start("run", file)]
    runs.extend(others)
    for each in others:
        until_said(each, "runs the pipelines of this log")

    assert end(first, signal.SIGTERM)[0] == exit_codes.TERMINATED
    rows = rows_in(tmp_path / "target.db")
    until(lambda: rows_in(tmp_path / "target.db") > rows)
    owner = next(each for each in others if each.pid == console_of(tmp_path)["pid"])
    [other] = [each for each in others if each is not owner]
    until_said(other, f"process {owner.pid} runs the pipelines of this log")

    assert end(owner, signal.SIGINT)[0] == exit_codes.INTERRUPTED
    rows = rows_in(tmp_path / "target.db")
    until(lambda: rows_in(tmp_path / "target.db") > rows)
    assert console_of(tmp_path)["pid"] == other.pid
    assert end(other, signal.SIGTERM)[0] == exit_codes.TERMINATED


class Asked:
    """An address as a command has it, and what the command says."""

    def __init__(self, data: Path) -> None:
        self.output = Output()
        self.data, self.address = data, LogAddress(data, None)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[KafkaLog]:
        command = click.Command("rows")
        parent = click.Context(click.Command("headwater"), info_name="headwater")
        with click.Context(command, info_name="rows", parent=parent, obj=self.output):
            async with self.address.open_or_own() as log:
                yield log


async def a_log(data: Path, **named: Any) -> EmbeddedLog:
    return await EmbeddedLog.open(BrokerSettings(data=data, listen="127.0.0.1:0"), **named)


@pytest.mark.slow
async def test_a_command_waits_for_an_owner_that_does_not_say_yet_where_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await (await a_log(tmp_path)).close()
    assert not (tmp_path / "endpoint.json").exists()
    lock = OsFiles().lock(tmp_path / "lock")

    async def bounds() -> object:
        async with Asked(tmp_path).open() as log:
            return await log.topics.all()

    asked = asyncio.ensure_future(bounds())
    while "waiting for it" not in (said := capsys.readouterr().err):
        assert not asked.done(), said
        await asyncio.sleep(0)
    del lock  # which closes it
    found = await asked

    assert isinstance(found, list)
    assert find_owner(tmp_path) is None


async def test_a_command_that_has_the_log_says_which_it_is(tmp_path: Path) -> None:
    await (await a_log(tmp_path)).close()

    async with Asked(tmp_path).open():
        endpoint = find_owner(tmp_path)

    assert endpoint is not None and endpoint.command == "headwater rows"


@pytest.mark.slow
async def test_a_command_takes_the_log_of_an_owner_that_is_gone_though_its_number_lives(
    tmp_path: Path,
) -> None:
    await (await a_log(tmp_path)).close()
    dead = Endpoint(1, "127.0.0.1:1")
    (tmp_path / "endpoint.json").write_bytes(encode_endpoint(dead))

    async with Asked(tmp_path).open() as log:
        assert isinstance(log, EmbeddedLog)


async def test_a_command_whose_log_was_anothers_says_so_when_that_one_has_ended(
    tmp_path: Path,
) -> None:
    lender = await a_log(tmp_path, command="headwater verify")

    with pytest.raises(LogUnavailable, match="the log belonged to `headwater verify`") as end:
        async with Asked(tmp_path).open():
            await lender.close()
            raise LogUnavailable("no broker answers")

    assert end.value.hint == "run this command again"
