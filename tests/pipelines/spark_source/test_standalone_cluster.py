"""Executors of a real cluster read the log over the network, by code that was sent to them."""

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from tests.pipelines.spark_source.standalone_cluster import standalone_cluster
from tests.served_log import served_log
from tests.slices import changes_of, schema_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.long("compat"),
]
ROOT = Path(__file__).resolve().parents[3]
PROGRAM = "tests.pipelines.spark_source.cluster_program"
SCHEMA = schema_of(id=pa.int64(), note=pa.string())
COUNT = 4_000


def test_two_executors_share_a_topic_between_them_and_have_the_functions_of_a_pipeline(
    tmp_path: Path,
) -> None:
    with served_log(tmp_path / "log") as served:
        served.write([changes_of(SCHEMA, *[("c", {"id": key}) for key in range(COUNT)])])
        address = ",".join(served.log.bootstrap)

        with standalone_cluster(tmp_path, workers=2) as master:
            done = subprocess.run(
                [sys.executable, "-m", PROGRAM, master, address, "shop.public.orders"],
                cwd=ROOT,
                capture_output=True,
                text=True,
                check=False,
            )

    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert (said["n"], said["total"]) == (COUNT, COUNT * (COUNT - 1) // 2)
    assert len({place["executor"] for place in said["places"]}) == 2
    assert all("headwater.zip" in place["code"] for place in said["places"])
    assert said["notes"] == ["from far away"]
