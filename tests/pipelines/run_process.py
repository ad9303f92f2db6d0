"""A broker and commands in processes of their own, for what only real processes show."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scripts.owned_process import start_owned
from tests.budget import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "headwater.pipelines.cli"]


@contextmanager
def running(*arguments: object) -> "Iterator[subprocess.Popen[str]]":
    """A command that is gone, with its streams closed, when the block ends."""
    with start(*arguments) as process:
        try:
            yield process
        finally:
            process.kill()


def start(*arguments: object) -> "subprocess.Popen[str]":
    """A command with all three streams in our hands."""
    return start_owned(
        [*COMMAND, *arguments],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def start_broker(data: Path, *arguments: object) -> "subprocess.Popen[str]":
    """Returns once it listens."""
    broker = start("broker", "--data", data, "--listen", "127.0.0.1:0", "-q", *arguments)
    deadline = time.monotonic() + PATIENCE_S
    while not (data / "endpoint.json").exists():
        if broker.poll() is not None:
            raise AssertionError(f"the broker ended: {broker.communicate()[1]}")
        assert time.monotonic() < deadline, "the broker says where it listens"
        time.sleep(0.01)
    return broker


def address_of(data: Path) -> str:
    return str(json.loads((data / "endpoint.json").read_text())["kafka"])


def end(process: "subprocess.Popen[str]", number: signal.Signals) -> tuple[int, str, str]:
    """Exit code, stdout and stderr after one signal."""
    process.send_signal(number)
    out, err = process.communicate(timeout=PATIENCE_S)
    return process.returncode, out, err
