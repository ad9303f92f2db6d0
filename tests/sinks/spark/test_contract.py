"""The Spark sink keeps the promises of every sink, in this process and on Spark."""

from itertools import count
from pathlib import Path

import pytest

from core_log.s3.settings import S3Settings
from tests.contract.sink_suite import SinkContract
from tests.moto_server import client_of
from tests.sinks.spark.targets import LakeBench

_numbers = count(1)


class TestDeltaInADirectory(SinkContract):
    @pytest.fixture
    def bench(self, tmp_path: Path) -> LakeBench:
        return LakeBench(str(tmp_path / "lake"))


class TestDeltaInABucket(SinkContract):
    @pytest.fixture
    def bench(self, s3: S3Settings) -> LakeBench:
        bucket = f"lake-{next(_numbers)}"
        client_of(s3).create_bucket(Bucket=bucket)
        return LakeBench(f"s3://{bucket}/shop", s3)


class TestIcebergInADirectory(SinkContract):
    @pytest.fixture
    def bench(self, tmp_path: Path) -> LakeBench:
        return LakeBench(str(tmp_path / "lake"), chosen={"format": "iceberg"})
