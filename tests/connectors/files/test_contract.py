"""The files source keeps the promises of every source, for each format and place."""

import gzip
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest
import zstandard
from pyarrow import parquet

from headwater.connectors.files.settings import FilesSettings
from headwater.connectors.files.source import FilesSource
from headwater.connectors.source import Source
from headwater.core_log.objects.settings import S3Settings
from tests.contract.source_suite import SourceSuite, context
from tests.moto_server import client_of

ROWS = [
    {"id": number, "name": f"name {number}", "total": number / 4, "ok": number % 3 == 0}
    for number in range(300)
]
_numbers = count(1)


def as_csv(rows: list[dict[str, Any]]) -> bytes:
    lines = [",".join(str(value) for value in row.values()) for row in rows]
    return "\n".join([",".join(rows[0]), *lines, ""]).encode()


def as_json(rows: list[dict[str, Any]]) -> bytes:
    return b"".join(orjson.dumps(row) + b"\n" for row in rows)


def as_parquet(rows: list[dict[str, Any]]) -> bytes:
    sink = pa.BufferOutputStream()
    parquet.write_table(pa.Table.from_pylist(rows), sink, row_group_size=50)
    return bytes(sink.getvalue())


def as_text(rows: list[dict[str, Any]]) -> bytes:
    return b"".join(b"%d some line\n" % row["id"] for row in rows)


KINDS: dict[str, tuple[Callable[[list[dict[str, Any]]], bytes], str]] = {
    ".csv": (as_csv, "id"),
    ".csv.gz": (lambda rows: gzip.compress(as_csv(rows)), ""),
    ".jsonl": (as_json, "id"),
    ".jsonl.zst": (lambda rows: zstandard.compress(as_json(rows)), ""),
    ".parquet": (as_parquet, ""),
    ".log": (as_text, ""),
}


class DirectoryGround:
    """Three files of one table, read in small pieces."""

    is_exact = True
    change_count = len(ROWS)

    def __init__(self, directory: Path, ending: str) -> None:
        self._directory = directory
        write, key = KINDS[ending]
        for name, rows in (("a", ROWS[:100]), ("b", ROWS[100:101]), ("c", ROWS[101:])):
            (directory / f"{name}{ending}").write_bytes(write(rows))
        self._settings = FilesSettings.model_validate(
            {"path": str(directory), "table": "rows", "batch": "1KiB", "key": [key] if key else []}
        )

    def open(self) -> Source:
        return FilesSource(self._settings, context())

    def outside(self) -> object:
        return {path.name: path.stat().st_mtime_ns for path in self._directory.iterdir()}

    def held(self) -> object:
        links = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
        return sorted(
            str(link.readlink())
            for link in links
            if link.is_symlink() and str(link.readlink()).startswith(str(self._directory))
        )


class BucketGround:
    """The same files as objects."""

    is_exact = True
    change_count = len(ROWS)

    def __init__(self, s3: S3Settings, ending: str) -> None:
        self._client, self._bucket = client_of(s3), f"source-{next(_numbers)}"
        self._client.create_bucket(Bucket=self._bucket)
        write, _ = KINDS[ending]
        for name, rows in (("a", ROWS[:100]), ("b/c", ROWS[100:])):
            self._client.put_object(Bucket=self._bucket, Key=f"in/{name}{ending}", Body=write(rows))
        self._settings = FilesSettings.model_validate(
            {"path": f"s3://{self._bucket}/in/", "s3": s3, "batch": "4KiB"}
        )

    def open(self) -> Source:
        return FilesSource(self._settings, context())

    def outside(self) -> object:
        listed = self._client.list_objects_v2(Bucket=self._bucket)["Contents"]
        return [(each["Key"], each["ETag"]) for each in listed]

    def held(self) -> object:
        return None


class TestFilesOfADirectory(SourceSuite):
    @pytest.fixture(params=KINDS)
    def ground(self, request: pytest.FixtureRequest, tmp_path: Path) -> DirectoryGround:
        return DirectoryGround(tmp_path, request.param)


class TestObjectsOfABucket(SourceSuite):
    @pytest.fixture
    def ground(self, s3: S3Settings) -> BucketGround:
        return BucketGround(s3, ".csv")
