"""The first signal drains, the second ends at once, and the exit code names the signal."""

import signal
import subprocess
import sys

import pytest

from tests.budget import PATIENCE_S
from tests.pipelines.run_process import ROOT

PROGRAM = """
import asyncio, sys
from headwater.pipelines.terminal.exit_codes import Interrupted
from headwater.pipelines.terminal.signals import run_until_signal

async def work():
    print("working", flush=True)
    try:
        await asyncio.Event().wait()
    finally:
        print("draining", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        print("drained", flush=True)

try:
    run_until_signal(work())
except Interrupted as interrupted:
    sys.exit(interrupted.exit_code)
"""


def start() -> "subprocess.Popen[str]":
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert program.stdout is not None
    assert program.stdout.readline() == "working\n"
    return program


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_first_signal_waits_until_what_was_begun_has_ended(
    number: signal.Signals, code: int
) -> None:
    program = start()

    program.send_signal(number)
    out, _ = program.communicate("go on\n", timeout=PATIENCE_S)

    assert out == "draining\ndrained\n"
    assert program.returncode == code


def test_the_second_signal_waits_for_nothing() -> None:
    program = start()
    assert program.stdout is not None

    program.send_signal(signal.SIGINT)
    assert program.stdout.readline() == "draining\n"
    program.send_signal(signal.SIGINT)

    assert program.wait(PATIENCE_S) == 130
    assert program.communicate()[0] == ""
