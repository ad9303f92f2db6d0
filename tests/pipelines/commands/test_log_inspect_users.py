"""`headwater log inspect` shows users, and not what their passwords are checked against."""

import json
import signal
from pathlib import Path

import pytest

from headwater.pipelines.terminal import exit_codes
from tests.pipelines.conftest import Headwater
from tests.pipelines.run_process import end, start_broker

pytestmark = pytest.mark.slow


def test_a_user_is_shown_without_its_keys(headwater: Headwater, tmp_path: Path) -> None:
    data, password = tmp_path / "data", tmp_path / "password"
    password.write_text("a-password\n")
    broker = start_broker(data, "--set", "security.sasl=SCRAM-SHA-512")
    try:
        headwater("cluster", "users", "add", "alice", "--password-file", password, "--data", data)
    finally:
        end(broker, signal.SIGTERM)

    shown = headwater("log", "inspect", data, "--records", "--json")

    assert shown.code == exit_codes.OK, shown.remarks
    stored = b"".join(each.read_bytes() for each in data.rglob("__cluster_metadata-0/*.log"))
    at = stored.index(b'"stored_key":"') + len(b'"stored_key":"')
    key = stored[at : stored.index(b'"', at)].decode()
    assert len(key) > 40 and key not in shown.data
    values = [json.loads(line)["data"].get("value") or "" for line in shown.data.splitlines()]
    [user] = [each for each in values if "alice" in each]
    assert "not shown" in user
