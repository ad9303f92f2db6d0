"""Killed at any named point and started again, a pipeline ends with target equal to source, and
with every change once in the log."""

import asyncio
import os
from collections import Counter
from pathlib import Path

import pytest

from headwater.connectors.generator.history import truth
from headwater.connectors.generator.settings import GeneratorSettings
from headwater.core_log.embedded import EmbeddedLog
from headwater.core_log.foundation.settings import BrokerSettings
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.records.record_headers import header_column
from headwater.core_log.rows.codec import AT_HEADER
from headwater.pipelines.file.loader import load
from headwater.pipelines.journal.internal_topics import read_decided
from headwater.pipelines.journal.schemas import topics_of
from scripts.shop_targets import Rows, rows_in_sqlite, rows_of_arrow
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
def test_a_pipeline_killed_at_a_point_ends_equal(point: Point, tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(PIPELINE)

    assert run_pipeline(file, point) == -9, "every point of the table is really reached"
    assert run_pipeline(file, None) == 0

    assert rows_found(tmp_path / "shop.db") == rows_of_truth()
    assert not repeated_in_log(file)


def rows_of_truth() -> dict[str, Rows]:
    return {table.name: rows_of_arrow(rows) for table, rows in truth(SETTINGS).items()}


def rows_found(path: Path) -> dict[str, Rows]:
    return {
        table.name: rows_in_sqlite(
            path, table, rows.schema, key_columns=2 if table.name == "order_lines" else 1
        )
        for table, rows in truth(SETTINGS).items()
    }


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
