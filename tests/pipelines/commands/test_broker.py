"""`headwater broker` starts where it can, says in words where it cannot, and drains on a signal."""

import json
import os
import signal
import socket
from pathlib import Path

import pytest

from headwater.pipelines.terminal import exit_codes
from tests.pipelines.conftest import Headwater
from tests.pipelines.run_process import address_of, end, start_broker


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--listen", "0.0.0.0:0"], "does not listen beyond loopback without authentication"),
        (["--listen", "192.0.2.1:9092"], "does not listen beyond loopback without authentication"),
        (
            ["--listen", "example.org:9092"],
            "does not listen beyond loopback without authentication",
        ),
        (["--listen", "9092"], "listen address is not HOST:PORT"),
        (["--listen", "127.0.0.1:70000"], "listen address is not HOST:PORT"),
        (["--set", "fsnc=never"], "did you mean fsync?"),
        (["--set", "fsync=sometimes"], "input should be 'group' or 'never'"),
        (["--set", "default_partitions"], "the setting is not of the form NAME=VALUE"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_in_words(
    headwater: Headwater, tmp_path: Path, arguments: list[str], problem: str
) -> None:
    ran = headwater("broker", "--data", tmp_path / "data", *arguments)

    assert ran.code == exit_codes.INVALID
    assert problem in ran.remarks
    assert "Traceback" not in ran.remarks
    assert not (tmp_path / "data" / "endpoint.json").exists()


def test_a_port_in_use_is_said_to_be(headwater: Headwater, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"

        ran = headwater("broker", "--data", tmp_path, "--listen", address)

    assert ran.code == exit_codes.INVALID
    assert address in ran.remarks and "in use" in ran.remarks


def test_a_data_directory_of_another_kind_is_not_touched(
    headwater: Headwater, tmp_path: Path
) -> None:
    (tmp_path / "meta.properties").write_text("garbage\n")

    ran = headwater("broker", "--data", tmp_path, "--listen", "127.0.0.1:0")

    assert ran.code == exit_codes.INVALID
    assert "not written by this format version" in ran.remarks
    assert (tmp_path / "meta.properties").read_text() == "garbage\n"


def test_a_place_where_no_directory_can_be_is_told_as_the_system_tells_it(
    headwater: Headwater,
) -> None:
    ran = headwater("broker", "--data", "/proc/nowhere", "--listen", "127.0.0.1:0")

    assert ran.code == exit_codes.UNREACHABLE
    assert "the system says: no such file or directory" in ran.remarks


@pytest.mark.slow
def test_a_second_broker_on_the_same_data_is_told_who_owns_it(
    headwater: Headwater, tmp_path: Path
) -> None:
    broker = start_broker(tmp_path)

    ran = headwater("broker", "--data", tmp_path, "--listen", "127.0.0.1:0", "--json")

    assert ran.code == exit_codes.UNREACHABLE
    assert ran.envelope["error"]["kind"] == "DirectoryInUse"
    assert f"stop process {broker.pid}" in ran.envelope["error"]["hint"]
    assert address_of(tmp_path), "the first one is undisturbed"
    assert end(broker, signal.SIGTERM)[0] == exit_codes.TERMINATED


@pytest.mark.slow
def test_a_signal_drains_and_the_next_start_takes_over(tmp_path: Path) -> None:
    broker = start_broker(tmp_path)
    endpoint = json.loads((tmp_path / "endpoint.json").read_text())

    code, out, err = end(broker, signal.SIGINT)

    assert endpoint["pid"] == broker.pid
    assert (code, out, err) == (exit_codes.INTERRUPTED, "", "")
    assert not (tmp_path / "endpoint.json").exists()
    assert end(start_broker(tmp_path), signal.SIGTERM)[0] == exit_codes.TERMINATED


@pytest.mark.parametrize("command", [["topics", "ls"], ["groups", "ls"], ["tail", "orders"]])
def test_a_command_without_a_broker_names_the_one_that_starts_it(
    headwater: Headwater, tmp_path: Path, command: list[str]
) -> None:
    ran = headwater(*command, "--data", tmp_path)

    assert ran.code == exit_codes.UNREACHABLE
    assert "the data directory has no running broker" in ran.remarks
    assert f"hint: headwater broker --data {tmp_path}" in ran.remarks


@pytest.mark.slow
def test_an_endpoint_that_a_killed_broker_left_behind_is_not_believed(
    headwater: Headwater, tmp_path: Path
) -> None:
    broker = start_broker(tmp_path)
    assert end(broker, signal.SIGKILL)[0] == -signal.SIGKILL
    assert (tmp_path / "endpoint.json").exists()

    killed = headwater("topics", "ls", "--data", tmp_path)
    endpoint = json.loads((tmp_path / "endpoint.json").read_text())
    (tmp_path / "endpoint.json").write_text(json.dumps(endpoint | {"pid": os.getpid()}))
    reused = headwater("topics", "ls", "--data", tmp_path)

    assert killed.code == reused.code == exit_codes.UNREACHABLE
    assert "has no running broker" in killed.remarks and "has no running broker" in reused.remarks


def test_an_endpoint_that_is_no_endpoint_is_named(headwater: Headwater, tmp_path: Path) -> None:
    (tmp_path / "endpoint.json").write_text("[]")

    ran = headwater("topics", "ls", "--data", tmp_path)

    assert ran.code == exit_codes.UNREACHABLE
    assert "endpoint.json is invalid" in ran.remarks


@pytest.mark.slow
def test_an_address_where_nobody_listens_is_named(headwater: Headwater) -> None:
    ran = headwater("topics", "ls", "--bootstrap", "127.0.0.1:1")

    assert ran.code == exit_codes.UNREACHABLE
    assert "127.0.0.1:1" in ran.remarks


def test_the_log_is_named_once(headwater: Headwater, tmp_path: Path) -> None:
    ran = headwater("topics", "ls", "--bootstrap", "127.0.0.1:1", "--data", tmp_path)

    assert ran.code == exit_codes.INVALID
    assert "the log is named twice" in ran.remarks
