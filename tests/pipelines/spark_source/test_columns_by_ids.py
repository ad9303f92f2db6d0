"""A column that was renamed is one column for who reads topics with Spark."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from headwater.core_log.model.table_schema import Column, TableId, TableSchema
from headwater.pipelines.spark_source import read_plan
from headwater.pipelines.spark_source.options import ReadOptions, read_options
from headwater.pipelines.spark_source.typed import typed_batches
from tests.served_log import ServedLog, served_log
from tests.slices import changes_of

pytestmark = pytest.mark.slow

TOPIC = "shop.public.orders"
KEY = Column("id", pa.int64(), is_nullable=False, id=1)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServedLog]:
    with served_log(tmp_path) as served:
        yield served


def form(*columns: Column) -> TableSchema:
    return TableSchema(TableId("public", "orders"), (KEY, *columns), ("id",), id=5)


BEFORE = form(Column("a", pa.string(), id=2), Column("gone", pa.string(), id=3))
AFTER = form(Column("b", pa.string(), id=2), Column("n", pa.int64(), id=4, missing="7"))


def options_of(served: ServedLog) -> ReadOptions:
    return read_options({"bootstrap": ",".join(served.log.bootstrap), "topic": TOPIC})


def read(options: ReadOptions, schema: StructType) -> list[dict[str, Any]]:
    parts = asyncio.run(read_plan.batch(options))
    return [
        row["after"]
        for part in parts
        for batch in typed_batches(options, schema, part.split)
        for row in batch.to_pylist()
    ]


def test_older_changes_have_the_columns_of_now(served: ServedLog) -> None:
    served.write([changes_of(BEFORE, ("c", {"id": 1, "a": "one", "gone": "x"}))])
    served.write([changes_of(AFTER, ("c", {"id": 2, "b": "two", "n": 8}))])
    options = options_of(served)

    found = read(options, asyncio.run(read_plan.columns(options)))

    assert found == [
        {"id": 1, "b": "one", "n": 7, "gone": "x"},
        {"id": 2, "b": "two", "n": 8, "gone": None},
    ]


def test_a_query_that_was_begun_before_a_rename_goes_on(served: ServedLog) -> None:
    served.write([changes_of(BEFORE, ("c", {"id": 1, "a": "one", "gone": "x"}))])
    options = options_of(served)
    schema = asyncio.run(read_plan.columns(options))
    served.write([changes_of(AFTER, ("c", {"id": 2, "b": "two", "n": 8}))])

    assert read(options, schema) == [
        {"id": 1, "a": "one", "gone": "x"},
        {"id": 2, "a": "two", "gone": None},
    ]
