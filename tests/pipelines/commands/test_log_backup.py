"""`headwater log backup` finds who has the log, and says in words where it cannot be copied."""

import signal
from pathlib import Path

import pytest

from headwater.core_log.storage.files import OsFiles
from headwater.pipelines.terminal import exit_codes
from tests.pipelines.conftest import Headwater
from tests.pipelines.run_process import address_of, end, start_broker

pytestmark = pytest.mark.slow


def test_a_log_at_rest_or_of_a_broker_with_http_is_copied(
    headwater: Headwater, tmp_path: Path
) -> None:
    data, copies = tmp_path / "data", tmp_path / "copies"
    broker = start_broker(data, "--http", "127.0.0.1:0")
    made = headwater("topics", "create", "orders", "--bootstrap", address_of(data))
    while not has_control(data):
        assert broker.poll() is None, broker.communicate()
    running = headwater("log", "backup", copies, "--data", data)
    end(broker, signal.SIGTERM)
    resting = headwater("log", "backup", copies, "--data", data, "--keep", "1", "--json")
    listed = headwater("log", "restore", copies, "--list")
    restored = headwater("log", "restore", copies, tmp_path / "again", "--json")
    found = headwater("log", "inspect", tmp_path / "again")

    assert made.code == running.code == exit_codes.OK, running.remarks
    assert resting.code == exit_codes.OK, resting.remarks
    assert resting.envelope["data"]["removed"] == 1
    assert listed.data.split() == [resting.envelope["data"]["name"]]
    assert restored.envelope["data"]["next"] == "headwater recover FILE"
    assert found.code == exit_codes.OK and "orders" in found.data
    assert not (data / "backup").exists()


def has_control(data: Path) -> bool:
    return b'"control": "127' in (data / "endpoint.json").read_bytes()


def test_a_log_that_cannot_be_copied_now_is_named(headwater: Headwater, tmp_path: Path) -> None:
    data, copies = tmp_path / "data", tmp_path / "copies"
    nothing = headwater("log", "backup", copies, "--data", tmp_path / "nothing")
    broker = start_broker(data)
    lock = OsFiles().lock(data / "backup.lock")
    twice = headwater("log", "backup", copies, "--data", data)
    assert lock is not None
    del lock
    without = headwater("log", "backup", copies, "--data", data)
    end(broker, signal.SIGTERM)
    wrong = headwater("log", "backup", "s3://x/y", "--data", data, "--s3", "endpint=x")
    nowhere = headwater("log", "restore", copies)

    assert "the directory has no log" in nothing.remarks
    assert "a broker without --http has the log" in without.remarks
    assert "another backup of this log is running" in twice.remarks
    assert "the setting of the bucket is wrong" in wrong.remarks
    assert "the data directory to fill is missing" in nowhere.remarks
    for each in (nothing, without, twice, wrong, nowhere):
        assert each.code == exit_codes.INVALID
    assert not copies.exists()
