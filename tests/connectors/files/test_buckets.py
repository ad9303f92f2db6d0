"""Objects of a bucket are files that are replaced and never change."""

import gzip
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from headwater.connectors.files.settings import FilesSettings
from headwater.connectors.files.source import FilesSource
from headwater.core_log.foundation.errors import SourceRejected, SourceUnavailable
from headwater.core_log.objects.settings import S3Settings
from tests.connectors.files.stepwise_reader import Reader
from tests.contract.source_suite import context
from tests.moto_server import client_of

_numbers = count(1)


class Objects:
    """A fresh bucket."""

    def __init__(self, s3: S3Settings) -> None:
        self._client, self._s3 = client_of(s3), s3
        self.name = f"objects-{next(_numbers)}"
        self._client.create_bucket(Bucket=self.name)

    def put(self, key: str, content: bytes) -> None:
        self._client.put_object(Bucket=self.name, Key=key, Body=content)

    def reader(self, prefix: str, *, page_keys: int = 1_000, **chosen: Any) -> Reader:
        path, s3 = (
            f"s3://{self.name}/{prefix}",
            self._s3.model_copy(update={"page_keys": page_keys}),
        )
        return Reader(Path(), {"path": path, "s3": s3, **chosen})


@pytest.fixture
def objects(s3: S3Settings) -> Objects:
    return Objects(s3)


def test_an_object_that_is_replaced_by_a_longer_one_goes_on(objects: Objects) -> None:
    objects.put("logs/a.log", b"one\ntwo\n")
    objects.put("logsold/x.log", b"not below the prefix\n")
    reader = objects.reader("logs")
    reader.read_all()
    objects.put("logs/a.log", b"one\ntwo\nthree")
    objects.put("logs/deep/b.log.gz", gzip.compress(b"four\n"))
    reader.look = None

    reader.read_all()

    assert reader.lines() == ["one", "two", "three", "four"]
    assert {state.partition("file/")[2] for state in reader.positions} == {
        "", "a.log", "deep/b.log.gz"
    }  # fmt: skip


def test_an_object_that_is_replaced_by_another_one_was_rewritten(objects: Objects) -> None:
    objects.put("a.csv", b"id,x\n1,a\n2,b\n")
    keyed, keyless = objects.reader("*.csv", key="id"), objects.reader("*.csv")
    keyed.read_all()
    keyless.read_all()
    objects.put("a.csv", b"id,x\n1,A\n")

    keyed.read_all()
    with pytest.raises(SourceRejected, match="rewritten"):
        keyless.read()

    assert [(row["id"], row["x"]) for row in keyed.rows()] == [(1, "a"), (2, "b"), (1, "A")]


def test_parquet_is_read_where_it_lies(objects: Objects) -> None:
    sink = pa.BufferOutputStream()
    parquet.write_table(pa.table({"id": range(5_000)}), sink, row_group_size=1_000)
    objects.put("a.parquet", bytes(sink.getvalue()))
    reader = objects.reader("a.parquet", batch="4KiB")
    reader.read(batches_max=3)
    reader.look = None

    reader.read_all()

    assert [row["id"] for row in reader.rows()] == list(range(5_000))


def test_a_long_listing_is_read_page_by_page(objects: Objects) -> None:
    for number in range(7):
        objects.put(f"many/{number}.log", b"x\n")
    reader = objects.reader("many/", page_keys=3)

    reader.read_all()

    assert len(reader.lines()) == 7
    assert len(reader.batches) == 1, "small files come together"


async def test_a_bucket_that_is_missing_or_not_ours_is_said(s3: S3Settings) -> None:
    missing = FilesSettings.model_validate({"path": "s3://nowhere/a", "s3": s3})

    (finding,) = await FilesSource(missing, context()).examine()

    assert "bucket does not exist" in finding.problem
    assert "canary" not in finding.problem + finding.hint


@pytest.mark.slow
def test_a_store_that_does_not_answer_is_tried_again_later() -> None:
    s3 = {"endpoint": "http://127.0.0.1:9", "access_key": "a", "secret_key": "b", "retries": 0}
    reader = Reader(Path(), {"path": "s3://b/a", "s3": s3})

    with pytest.raises(SourceUnavailable, match="cannot be reached") as caught:
        reader.read()

    assert caught.value.facts["reason"] == "connection refused"
    assert caught.value.facts["endpoint"] == "http://127.0.0.1:9"
