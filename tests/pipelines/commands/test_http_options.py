"""`--http` gives a broker and a run an address that stays, and says in words where it cannot."""

import signal
import socket
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from headwater.pipelines.terminal import exit_codes
from scripts.free_port import free_port
from tests.pipelines.conftest import Headwater
from tests.pipelines.run_process import end, start_broker


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--http", "8471"], "the HTTP address is not HOST:PORT"),
        (["--http", "0.0.0.0:8471"], "an address beyond loopback needs"),
        (["--http-host", "hw.example"], "http.listen is missing"),
        (["--http", "127.0.0.1:0", "--key-file", "k"], "a key its certificate"),
    ],
)
def test_options_that_cannot_be_are_refused_before_anything_is_written(
    headwater: Headwater, tmp_path: Path, arguments: list[str], problem: str
) -> None:
    ran = headwater("broker", "--data", tmp_path / "data", *arguments)

    assert ran.code == exit_codes.INVALID
    assert problem in ran.remarks
    assert not (tmp_path / "data").exists()


@pytest.mark.slow
def test_a_broker_answers_probes_and_metrics_and_nothing_else(tmp_path: Path) -> None:
    address, token = f"127.0.0.1:{free_port()}", tmp_path / "token"
    broker = start_broker(tmp_path / "data", "--http", address, "--token-file", token)

    def ask(path: str, *, has_token: bool = True) -> tuple[int, bytes]:
        headers = {"Authorization": f"Bearer {token.read_text().strip()}"} if has_token else {}
        request = urllib.request.Request(f"http://{address}{path}", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, b""

    while not listens(address):  # it says where its log is a moment earlier
        assert broker.poll() is None, broker.communicate()
    assert ask("/readyz", has_token=False) == (200, b'{"ok":true}')
    assert ask("/metrics", has_token=False)[0] == 401
    assert b"headwater_log_disk_free_bytes" in ask("/metrics")[1]
    assert ask("/status")[0] == 404
    assert end(broker, signal.SIGTERM)[0] == exit_codes.TERMINATED


def listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0
