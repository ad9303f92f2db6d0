"""A pipeline without a sink fills the log; one that is added later gets everything."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from headwater.pipelines.terminal import exit_codes
from tests.pipelines.conftest import Headwater

FILE = """
pipeline: shop
source: {type: files, path: ./in/*.csv, table: "{stem}", key: id, settle: 0s}
workers: 0
"""
SINK = 'sink: {type: sql, url: "sqlite:///target.db"}\n'


@pytest.mark.slow
@pytest.mark.parametrize("written", ["", "sink: []\n"])
def test_a_pipeline_without_a_sink_only_fills_the_log(
    tmp_path: Path, headwater: Headwater, written: str
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/orders.csv").write_text("id,total\n1,2\n2,3\n")
    file = tmp_path / "pipeline.yaml"
    file.write_text(FILE + written)
    checked = headwater("check", file)
    planned = headwater("plan", file, "--json")

    ran = headwater("run", file, "--once", "--json")

    assert checked.code == planned.code == ran.code == exit_codes.OK, ran.remarks
    assert set(ran.envelope["data"]["pipelines"]["shop"]["tasks"]) == {"source"}
    row = headwater("rows", "shop/orders", "1", "-f", file)
    assert row.code == exit_codes.OK and "total" in row.data
    verified = headwater("verify", "shop", "-f", file)
    assert verified.code == exit_codes.DIFFERENT and "could be compared" in verified.remarks
    refused = headwater("rebuild", "shop/orders", "-f", file)
    assert refused.code == exit_codes.INVALID and "the pipeline has no sink" in refused.remarks
    assert headwater("doctor", file).code == exit_codes.OK

    file.write_text(FILE + SINK)
    later = headwater("run", file, "--once")

    assert later.code == exit_codes.OK, later.remarks
    with closing(sqlite3.connect(tmp_path / "target.db")) as connection:
        assert connection.execute("SELECT id, total FROM orders").fetchall() == [
            (1, 2),
            (2, 3),
        ]
