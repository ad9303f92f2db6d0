"""The Spark sink keeps the promises of every sink, in this process and on Spark."""

from pathlib import Path

import pytest

from tests.contract.sink_suite import SinkContract
from tests.sinks.spark.targets import LakeBench


class TestDeltaInADirectory(SinkContract):
    @pytest.fixture
    def bench(self, tmp_path: Path) -> LakeBench:
        return LakeBench(str(tmp_path / "lake"))
