"""Spark does its work in containers of Hadoop's own YARN, by code that was sent to them, and a
lake ends equal whoever is killed there."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest

from tests.compat.yarn_cluster import yarn_cluster
from tests.crash.lake_history import LakeHistory
from tests.crash.lake_kills import KILLS
from tests.crash.test_a_killed_lake_ends_equal import check
from tests.served_log import served_log
from tests.slices import changes_of, schema_of

pytestmark = pytest.mark.long("compat")

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = "tests.pipelines.spark_source.cluster_program"
SCHEMA = schema_of(id=pa.int64(), note=pa.string())
COUNT = 4_000
SPARK = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.instances": "2",
    "spark.executorEnv.PYTHONPATH": str(ROOT),
    # The nodes have Spark's jars, which else are sent with every application.
    "spark.yarn.jars": f"local:{Path(pyspark.__file__).parent}/jars/*",
}


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[Path]:
    with yarn_cluster(tmp_path / "yarn", nodes=2) as settings:
        yield settings


def test_two_containers_share_a_topic_between_them_and_have_the_functions_of_a_pipeline(
    settings: Path, tmp_path: Path
) -> None:
    with served_log(tmp_path / "log") as served:
        served.write([changes_of(SCHEMA, *[("c", {"id": key}) for key in range(COUNT)])])
        done = subprocess.run(
            [sys.executable, "-m", PROGRAM, "yarn", ",".join(served.log.bootstrap),
             "shop.public.orders"],
            cwd=ROOT,
            env={**os.environ, "HADOOP_CONF_DIR": str(settings)},
            capture_output=True,
            text=True,
            check=False,
        )  # fmt: skip

    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert (said["n"], said["total"]) == (COUNT, COUNT * (COUNT - 1) // 2)
    assert len({place["executor"] for place in said["places"]}) == 2
    assert all("container_" in place["executor"] for place in said["places"])
    assert all("headwater.zip" in place["code"] for place in said["places"])
    assert said["notes"] == ["from far away"]


def test_a_lake_on_yarn_ends_equal_whichever_process_is_killed(
    settings: Path, tmp_path: Path
) -> None:
    history = LakeHistory(
        tmp_path,
        KILLS[:6],
        master="yarn",
        spark=SPARK,
        surroundings={"HADOOP_CONF_DIR": str(settings)},
    )
    check(history)
