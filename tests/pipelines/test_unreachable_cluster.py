"""A cluster that is not there is named at once, with what stands in the way at each address."""

import json
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.core_log.replication.metadata_records import METADATA_VERSION
from headwater.pipelines.terminal import exit_codes
from scripts.free_port import free_port
from tests.budget import PATIENCE_S
from tests.pipelines.conftest import Headwater
from tests.pipelines.run_process import end, running

PIPELINE = """
pipeline: shop
source: {{type: generator}}
sink: {{type: sql, url: "sqlite:///target.db"}}
log: {{type: kafka, bootstrap: "{address}", path: "{data}"}}
"""


@pytest.fixture
def address() -> Iterator[str]:
    """Nobody can listen there meanwhile."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


@pytest.fixture
def file(tmp_path: Path, address: str) -> Path:
    path = tmp_path / "pipeline.yaml"
    path.write_text(PIPELINE.format(address=address, data=tmp_path / "data"))
    return path


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", [("plan",), ("topics", "ls", "-f"), ("verify", "shop", "-f"), ("doctor",)]
)
def test_a_command_names_the_address_and_what_is_wrong_there(
    headwater: Headwater, file: Path, address: str, command: tuple[str, ...]
) -> None:
    ran = headwater(*command, file)

    assert ran.code == exit_codes.UNREACHABLE
    assert f"{address} (connection refused)" in ran.data + ran.remarks
    assert "correct `bootstrap`" in ran.data + ran.remarks


@pytest.mark.slow
def test_doctor_names_the_address_of_a_kafka_sink(
    headwater: Headwater, tmp_path: Path, address: str
) -> None:
    file = tmp_path / "out.yaml"
    sink = f"{{type: kafka, bootstrap: '{address}'}}"
    file.write_text(f"pipeline: out\nsource: {{type: generator}}\nsink: {sink}\n")

    ran = headwater("doctor", file)

    assert ran.code == exit_codes.UNREACHABLE
    assert f"the cluster does not answer (tried='{address} (connection refused)')" in ran.data
    assert "correct `bootstrap`" in ran.data


@pytest.mark.slow
def test_a_run_says_so_in_its_lines_and_in_status_and_tries_again(
    headwater: Headwater, file: Path, address: str
) -> None:
    with running("run", file) as process:
        assert process.stderr is not None
        lines = iter(process.stderr)
        first = next(line for line in lines if address in line and "the log is at" not in line)
        said = next(line for line in lines if "tries again in" in line)
        tasks = _tasks(headwater("status", "-f", file, "--json").data)
        code, _, _ = end(process, signal.SIGINT)

    why = f"the cluster does not answer (tried='{address} (connection refused)')"
    assert f"the cluster does not answer: {address} (connection refused)" in first
    assert "retrying; hint: start the cluster, or correct `bootstrap`" in first
    assert why in said
    assert any(task["state"] == "retrying" and why in task["reason"] for task in tasks)
    assert code == exit_codes.INTERRUPTED


def _tasks(status: str) -> list[dict[str, Any]]:
    """Of the one pipeline that runs."""
    return list(json.loads(status)["data"]["pipelines"]["shop"]["tasks"].values())


@pytest.mark.slow
def test_a_person_who_waits_for_a_healthy_cluster_also_waits_for_its_first_answer(
    tmp_path: Path,
) -> None:
    address = f"127.0.0.1:{free_port()}"
    with running("cluster", "status", "--wait", "--bootstrap", address) as status:
        assert status.stderr is not None
        while not status.stderr.readline().endswith("; waiting\n"):
            assert status.poll() is None, "it waits"
        with running("broker", "--data", tmp_path / "data", "--listen", address):
            out, _ = status.communicate(timeout=PATIENCE_S)

    assert status.returncode == exit_codes.OK
    assert out.startswith("quorum  leader 1")
    assert f"\nmetadata version {METADATA_VERSION}\n" in out
