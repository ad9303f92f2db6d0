"""Commands find the log in the directory that `--data` names, in place of `log.path` of the file,
and so do the worker processes of a run."""

import json
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from headwater.pipelines.cli import cli
from headwater.pipelines.terminal import exit_codes
from tests.pipelines.conftest import Headwater
from tests.pipelines.run_process import end, start_broker

pytestmark = pytest.mark.slow

PIPELINE = """
pipeline: shop
source: {type: files, path: orders.csv, table: orders, key: [id]}
sink: {name: target, type: sql, url: "sqlite:///target.db"}
workers: 1
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "orders.csv").write_text("id,name\n1,a\n2,b\n")
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    return tmp_path / "pipeline.yaml"


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Path]:
    """The data directory of a broker whose clients must authenticate."""
    data, secret = tmp_path / "elsewhere", tmp_path / "cluster.secret"
    secret.write_text(CliRunner().invoke(cli, ["cluster", "secret"]).output)
    security = ("--cluster-secret", secret, "--set", "security.sasl=SCRAM-SHA-512")
    broker = start_broker(data, *security)
    try:
        yield data
    finally:
        assert end(broker, signal.SIGTERM)[0] == 143


def delivered(directory: Path) -> list[tuple[int, str]]:
    with closing(sqlite3.connect(directory / "target.db")) as target:
        return target.execute("SELECT id, name FROM orders ORDER BY id").fetchall()


def test_workers_authenticate_at_the_broker_of_the_named_directory(
    headwater: Headwater, file: Path, secured: Path
) -> None:
    ran = headwater("run", file, "--once", "--data", secured)

    assert ran.code == exit_codes.OK, ran.remarks
    assert delivered(file.parent) == [(1, "a"), (2, "b")]
    assert not (file.parent / "data").exists()


def test_commands_take_the_file_and_the_directory_of_its_log(
    headwater: Headwater, file: Path, secured: Path
) -> None:
    assert headwater("run", file, "--once", "--data", secured).code == exit_codes.OK
    place = ("-f", file, "--data", secured)

    compared = headwater("verify", "shop", *place)
    planned = headwater("plan", file, "--data", secured, "--json")
    examined = headwater("doctor", file, "--data", secured)
    rebuilt = headwater("rebuild", "shop/orders", "--swap", *place)
    dropped = headwater("drop", "shop/orders", "-f", file, "--log", secured, "--yes")

    assert compared.code == exit_codes.OK, compared.remarks
    (plan,) = planned.envelope["data"]
    assert [each["is_new"] for each in plan["topics"]] == [False], plan
    assert examined.code == exit_codes.OK and f"disk of {secured}" in examined.data
    assert rebuilt.code == exit_codes.OK, rebuilt.remarks
    assert dropped.code == exit_codes.INVALID and "cannot read one table again" in dropped.remarks
    assert not (file.parent / "data").exists()


def test_a_log_is_not_named_by_a_file_and_by_its_address(headwater: Headwater, file: Path) -> None:
    refused = headwater("status", "-f", file, "--bootstrap", "127.0.0.1:1")

    assert refused.code == exit_codes.INVALID
    assert "the log is named twice" in refused.remarks


def test_a_run_that_is_missing_is_named_with_its_directory(
    headwater: Headwater, file: Path, tmp_path: Path
) -> None:
    ran = headwater("status", "-f", file, "--data", tmp_path / "elsewhere", "--json")

    assert ran.code == exit_codes.UNREACHABLE
    assert json.loads(ran.data)["error"]["hint"].endswith(f"--data {tmp_path / 'elsewhere'}")
