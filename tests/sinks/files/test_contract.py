"""The files sink keeps the promises of every sink, in a directory and in a bucket."""

from itertools import count
from pathlib import Path

import pytest

from headwater.core_log.objects.settings import S3Settings
from tests.contract.sink_suite import SinkContract
from tests.moto_server import client_of
from tests.sinks.files.targets import FilesBench

_numbers = count(1)


class TestParquetInADirectory(SinkContract):
    keeps_newest = False

    @pytest.fixture
    def bench(self, tmp_path: Path) -> FilesBench:
        return FilesBench(str(tmp_path / "out"))


class TestJsonLinesInADirectory(SinkContract):
    keeps_newest = False

    @pytest.fixture
    def bench(self, tmp_path: Path) -> FilesBench:
        chosen = {"format": "jsonl", "compression": "zstd", "metadata_columns": False}
        return FilesBench(str(tmp_path / "out"), chosen=chosen)


class TestParquetInABucket(SinkContract):
    keeps_newest = False

    @pytest.fixture
    def bench(self, s3: S3Settings) -> FilesBench:
        bucket = f"sink-{next(_numbers)}"
        client_of(s3).create_bucket(Bucket=bucket)
        return FilesBench(f"s3://{bucket}/lake", s3)
