"""Spark itself, by the jars of Delta and of Iceberg, reads our tables as we wrote them."""

import json
import os
import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.sinks.sink import RebuildRecipe
from tests.compat.java_programs import directory_from
from tests.sinks.spark.orders import TABLE, applied, bench_of, state_of
from tests.sinks.spark.targets import LakeBench
from tests.slices import ScriptedTopic, schema_of

pytestmark = pytest.mark.compat
JARS = ("delta-spark", "delta-storage", "iceberg-spark-runtime", "sqlite-jdbc")
READ = """
import json, sys
from pyspark.sql import SparkSession

jars, table, delta, version, iceberg = sys.argv[1:]
settings = {
    "spark.jars": jars,
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.catalog.headwater": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.headwater.type": "jdbc",
    "spark.sql.catalog.headwater.uri": f"jdbc:sqlite:{iceberg}/catalog.db",
    "spark.sql.catalog.headwater.jdbc.schema-version": "V1",
    "spark.sql.catalog.headwater.warehouse": f"file://{iceberg}",
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
}
builder = SparkSession.builder.master("local[1]")
for name, value in settings.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
frames = {
    "delta": spark.read.format("delta").option("versionAsOf", version).load(f"{delta}/{table}"),
    "first": spark.read.format("delta").option("versionAsOf", 0).load(f"{delta}/{table}"),
    "iceberg": spark.table(f"headwater.headwater.{table.replace('.', '_')}"),
}
found = {name: [row.asDict() for row in frame.orderBy("id").collect()]
         for name, frame in frames.items()}
print(json.dumps(found, default=str))
"""
SCHEMA = schema_of(
    "public.orders",
    id=pa.int64(),
    note=pa.string(),
    total=pa.decimal128(12, 2),
    day=pa.date32(),
    at=pa.timestamp("us", "UTC"),
    done=pa.bool_(),
    rate=pa.float64(),
)
WIDER = schema_of(
    "public.orders", **{each.name: each.type for each in SCHEMA.columns}, more=pa.int32()
)


def row(id: int, **others: Any) -> dict[str, Any]:
    return {
        "id": id,
        "note": f"ü/{id % 2}",
        "total": Decimal("-1234567890.12"),
        "day": date(1969, 12, 31),
        "at": datetime(2026, 1, 1, 12, 0, 0, 1, UTC),
        "done": None,
        "rate": 0.1,
        **others,
    }


def seen_by_spark(delta: LakeBench, iceberg: LakeBench) -> dict[str, Any]:
    """The newest rows of both, and those of Delta's first version, by one Spark."""
    jars = directory_from("fetch_spark_jars.sh", "HEADWATER_SPARK_JARS")
    chosen = ",".join(str(each) for each in jars.glob("*.jar") if each.name.startswith(JARS))
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, "-c", READ, chosen, "public.orders", delta.path,
         str(state_of(delta).version), iceberg.path],
        stdout=subprocess.PIPE,
        env=environment,
        check=True,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def plainly(rows: list[dict[str, Any]]) -> Any:
    """As the program prints them."""
    bare = [
        {name: each.replace(tzinfo=None) if isinstance(each, datetime) else each
         for name, each in row.items()}
        for row in rows
    ]  # fmt: skip
    return json.loads(json.dumps(bare, default=str))


async def test_spark_reads_rows_after_every_kind_of_commit(tmp_path: Path) -> None:
    delta, iceberg = await written(tmp_path, "delta"), await written(tmp_path, "iceberg")

    found = seen_by_spark(delta, iceberg)
    rows = [row(0), row(1), row(3, note="moved", done=True), row(4, more=7)]
    newest = plainly([{**each, "more": each.get("more")} for each in rows])
    assert found["delta"] == found["iceberg"] == newest
    assert found["first"] == plainly([row(id) for id in range(4)])


async def written(directory: Path, format: str) -> LakeBench:
    bench = bench_of(directory / format, format=format, tables={"*": {"partition_by": ["note"]}})
    topic = ScriptedTopic()
    topic.append(SCHEMA, *(("c", row(id)) for id in range(4)))
    await applied(bench, topic)
    topic.append(SCHEMA, ("d", {"id": 2}), ("u", row(3, note="moved", done=True)))
    await applied(bench, topic)
    topic.append(WIDER, ("c", row(4, more=7)))
    await applied(bench, topic)
    sink = bench.sink()
    shadow = await sink.shadow(RebuildRecipe(TABLE))
    await shadow.committed_offsets([topic.name])
    await shadow.apply(topic.slice(start={0: 0}))
    await sink.swap(TABLE)
    return bench
