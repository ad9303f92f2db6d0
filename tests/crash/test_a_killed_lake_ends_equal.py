"""Whoever is killed at any step of a table's commit, the lake ends equal to its source."""

from pathlib import Path
from random import Random

import pytest

from headwater.connectors.generator.settings import GeneratorSettings
from tests.crash.lake_history import LakeHistory, lake_rows, true_rows
from tests.crash.lake_kills import KILLS
from tests.crash.lake_points import LAKE_POINTS, STAGED_POINTS, hold_little
from tests.crash.pipeline_points import Point
from tests.crash.pipeline_process import run_pipeline
from tests.pipelines.spark_source.standalone_cluster import standalone_cluster

PIPELINE = """
pipeline: shop
source: {type: generator, size: 1000, total: 5500, rate: 0, batch_rows: 100, batch_wait: 0ms}
limits: {transaction_size: 16KiB}
sink:
  {type: spark, path: ./lake, commit_every: 0s, slice_rows: 500, tables: {"*": {file_rows: 200}}}
"""
SETTINGS = GeneratorSettings(size=1000, total=5500, rate=0, batch_rows=100)


@pytest.mark.crash
@pytest.mark.parametrize("point", LAKE_POINTS, ids=str)
def test_a_lake_killed_at_a_point_ends_equal(point: Point, tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(PIPELINE)

    assert run_pipeline(file, point) == -9, "every point of the table is really reached"
    assert run_pipeline(file, None) == 0

    assert lake_rows(tmp_path / "lake", SETTINGS) == true_rows(SETTINGS)


@pytest.mark.crash
@pytest.mark.parametrize("point", STAGED_POINTS, ids=str)
def test_a_lake_killed_while_a_slice_is_staged_ends_equal(point: Point, tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(PIPELINE)

    assert run_pipeline(file, point, before=hold_little) == -9, "the point is really reached"
    assert run_pipeline(file, None, before=hold_little) == 0

    assert lake_rows(tmp_path / "lake", SETTINGS) == true_rows(SETTINGS)


@pytest.mark.crash
def test_driver_and_executor_killed_while_spark_works_the_lake_ends_equal(tmp_path: Path) -> None:
    """In and after a commit of the table; `make crash` kills tasks and the broker as well."""
    check(LakeHistory(tmp_path, KILLS[2:4]))


@pytest.mark.long("crash")
@pytest.mark.parametrize("seed", range(4))
def test_the_lake_ends_equal_whichever_process_is_killed_while_spark_works(
    seed: int, tmp_path: Path
) -> None:
    check(LakeHistory(tmp_path, Random(seed).sample(KILLS, len(KILLS))))


@pytest.mark.long("crash")
def test_an_iceberg_lake_ends_equal_whichever_process_is_killed(tmp_path: Path) -> None:
    kills = [each for each in KILLS if each.moment != "linking"]  # which only Delta comes to
    check(LakeHistory(tmp_path, kills, format="iceberg"))


@pytest.mark.long("crash")
def test_the_lake_ends_equal_whichever_process_of_a_cluster_is_killed(tmp_path: Path) -> None:
    with standalone_cluster(tmp_path, workers=2) as master:
        check(LakeHistory(tmp_path, KILLS, master=master))


def check(history: LakeHistory) -> None:
    history.live_through()

    found = lake_rows(history.directory / "lake", history.generator, format=history.format)
    assert found == true_rows(history.generator)
