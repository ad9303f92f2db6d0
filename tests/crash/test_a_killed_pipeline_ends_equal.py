"""Killed at any named point and started again, a pipeline ends with target equal to source, and
with every change once in the log."""

import asyncio
import os
import sqlite3
from collections import Counter
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from connectors.generator.settings import GeneratorSettings
from connectors.generator.truth import truth
from core_log.embedded import EmbeddedLog
from core_log.log import TopicPartition
from core_log.record_headers import header_column
from core_log.rows.codec import AT_HEADER
from core_log.settings import BrokerSettings
from pipelines.decided import read_decided
from pipelines.loading import load
from pipelines.schemas import topics_of
from tests.crash.pipeline_points import POINTS, Point
from tests.crash.pipeline_process import run_pipeline

PIPELINE = """
pipeline: shop
source: {type: generator, size: 1000, total: 5500, rate: 0, batch_rows: 100, batch_wait: 0ms}
limits: {slice_rows: 500, transaction_size: 16KiB}
sink: {type: sql, url: "sqlite:///shop.db", commit_every: 0s}
"""
SETTINGS = GeneratorSettings(size=1000, total=5500, rate=0, batch_rows=100)


@pytest.mark.crash
@pytest.mark.parametrize("point", POINTS, ids=str)
def test_killed_at_a_point_it_ends_equal(point: Point, tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(PIPELINE)

    assert run_pipeline(file, point) == -9, "every point of the table is really reached"
    assert run_pipeline(file, None) == 0

    assert rows_in_sqlite(tmp_path / "shop.db") == rows_of_truth()
    assert not repeated_in_log(file)


def rows_of_truth() -> dict[str, list[tuple[object, ...]]]:
    return {
        table.name: [tuple(row.values()) for row in rows.to_pylist()]
        for table, rows in truth(SETTINGS).items()
    }


def rows_in_sqlite(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """In the order of their keys, with values as Arrow gives them."""
    found = {}
    with closing(sqlite3.connect(path)) as database:
        for table, rows in truth(SETTINGS).items():
            order = ", ".join(str(number + 1) for number in range(rows.num_columns))
            said = database.execute(f'SELECT * FROM "{table.name}" ORDER BY {order}')
            types = rows.schema.types
            found[table.name] = [tuple(map(value_of, row, types)) for row in said.fetchall()]
    return found


def value_of(stored: object, type_: pa.DataType) -> object:
    """SQLite has no decimals, dates and booleans of its own."""
    if stored is None:
        return None
    if pa.types.is_decimal(type_):
        return Decimal(str(stored)).quantize(Decimal(1).scaleb(-type_.scale))
    if pa.types.is_timestamp(type_):
        moment = datetime.fromisoformat(str(stored))
        return moment.replace(tzinfo=UTC) if type_.tz else moment
    if pa.types.is_date(type_):
        return date.fromisoformat(str(stored))
    return bool(stored) if pa.types.is_boolean(type_) else stored


def repeated_in_log(file: Path) -> dict[str, int]:
    """Changes that stand in the log more than once, by where they come from at the source."""
    return asyncio.run(_repeated(file))


async def _repeated(file: Path) -> dict[str, int]:
    [loaded] = load(file, environment=os.environ)
    log = await EmbeddedLog.open(BrokerSettings(data=loaded.log_path, listen="127.0.0.1:0"))
    try:
        seen: Counter[str] = Counter()
        for topic in await topics_of(log, loaded.name):
            for number in range(await log.partition_count(topic)):
                partition = TopicPartition(topic, number)
                async for columns in read_decided(log, partition):
                    whole = columns.values.is_valid()
                    at = header_column(columns.headers, AT_HEADER).filter(whole).to_pylist()
                    seen.update(f"{topic} {each.decode()}" for each in at)
        return {place: count for place, count in seen.items() if count > 1}
    finally:
        await log.close()
