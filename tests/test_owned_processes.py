"""No server outlives the process that started it, however that one ended."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest

pytestmark = pytest.mark.integration

OWNER = """
import signal
import sys
import time
from scripts.embedded_postgres import embedded_postgres
from scripts.owned_process import start_owned

signal.signal(signal.SIGINT, signal.default_int_handler)  # which shells ignore in the background
with embedded_postgres() as server:
    other = start_owned([sys.executable, "-c", "import time; time.sleep(9999)"])
    print(server.address, server.pid, other.pid, flush=True)
    time.sleep(9999)
"""
ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_servers_end_with_whoever_started_them(number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as owner:
        assert owner.stdout is not None, "its only line is read"
        address, *pids = owner.stdout.readline().split()
        psycopg.connect(address).close()

        owner.send_signal(number)
        owner.wait()

        for pid in pids:
            wait_until_it_ended(int(pid))
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(address)


def wait_until_it_ended(pid: int) -> None:
    while True:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.01)
