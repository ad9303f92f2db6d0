"""Killed at any step of a table's commit and started again, the lake equals its source."""

from pathlib import Path

import pyarrow as pa
import pytest

from connectors.generator.settings import GeneratorSettings
from connectors.generator.truth import truth
from scripts.shop_targets import Rows, rows_of_arrow
from sinks.spark.column_types import take_back
from tests.crash.lake_points import LAKE_POINTS
from tests.crash.pipeline_points import Point
from tests.crash.pipeline_process import run_pipeline
from tests.sinks.spark.targets import LakeBench

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
def test_killed_at_a_point_the_lake_ends_equal(point: Point, tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(PIPELINE)

    assert run_pipeline(file, point) == -9, "every point of the table is really reached"
    assert run_pipeline(file, None) == 0

    bench = LakeBench(str(tmp_path / "lake"))
    for table, expected in truth(SETTINGS).items():
        found = bench.table(str(table))
        assert found is not None
        columns = {
            field.name: take_back(found[field.name].combine_chunks(), field.type)
            for field in expected.schema
        }
        rows = pa.Table.from_pydict(columns, schema=expected.schema)
        assert in_order(rows) == in_order(expected), table


def in_order(rows: pa.Table) -> Rows:
    return sorted(rows_of_arrow(rows), key=str)
