"""`headwater recover` uses the log that it is given, and makes none."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from headwater.pipelines.terminal import exit_codes
from tests.pipelines.conftest import Headwater

PIPELINE = """
pipeline: shop
source: {type: files, path: orders.csv, table: orders, key: [id]}
sink: {name: target, type: sql, url: "sqlite:///target.db"}
workers: 0
"""


def write(directory: Path) -> Path:
    (directory / "orders.csv").write_text("id,name\n1,a\n2,b\n")
    (directory / "pipeline.yaml").write_text(PIPELINE)
    return directory / "pipeline.yaml"


def test_a_directory_without_a_log_is_refused_and_stays_as_it_is(
    headwater: Headwater, tmp_path: Path
) -> None:
    file = write(tmp_path)

    refused = headwater("recover", file)

    assert refused.code == exit_codes.INVALID
    assert "the directory has no log" in refused.remarks
    assert not (tmp_path / "data").exists()


@pytest.mark.slow
def test_a_log_in_another_directory_than_the_file_says_is_used(
    headwater: Headwater, tmp_path: Path
) -> None:
    file, data = write(tmp_path), tmp_path / "elsewhere"
    ran = headwater("run", file, "--once", "--data", data)
    with closing(sqlite3.connect(tmp_path / "target.db")) as target:
        target.execute("DELETE FROM orders WHERE id = 1")
        target.commit()

    recovered = headwater("recover", file, "--data", data)

    assert (ran.code, recovered.code) == (exit_codes.OK, exit_codes.OK), recovered.remarks
    assert recovered.data.splitlines()[-1] == f"headwater run {file} --data {data}"
    assert not (tmp_path / "data").exists()
    with closing(sqlite3.connect(tmp_path / "target.db")) as target:
        assert target.execute("SELECT id FROM orders ORDER BY id").fetchall() == [(1,), (2,)]
