"""The same first materialisation by Spark's own means: Kafka source, from_json, Delta's MERGE."""

# python -m benchmarks.lake_rival JARS BOOTSTRAP DIRECTORY TOPIC ...; a line of JSON per topic.

import json
import os
import sys
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as fn

JARS = (
    "spark-sql-kafka", "spark-token-provider-kafka", "kafka-clients", "commons-pool2",
    "delta-spark", "delta-storage",
)  # fmt: skip
"""The wheel brings everything else."""
ROW = (
    "id BIGINT, name STRING, email STRING, city STRING, status STRING, amount DECIMAL(12,2), "
    "quantity INT, rating DOUBLE, is_active BOOLEAN, updated_at BIGINT"
)
EVENT = f"op STRING, before STRUCT<{ROW}>, after STRUCT<{ROW}>"


def session(jars: Path) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    chosen = [str(jar) for jar in jars.glob("*.jar") if jar.name.startswith(JARS)]
    delta = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    settings = {
        "spark.jars": ",".join(chosen),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": delta,
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.sql.shuffle.partitions": "4",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
    }
    builder = SparkSession.builder.master(f"local[{os.cpu_count()}]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def newest(spark: SparkSession, bootstrap: str, topic: str) -> DataFrame:
    """Typed rows, the last one of every key; tombstones follow deletes and say nothing more."""
    records = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("kafka.isolation.level", "read_committed")
        .option("minPartitions", "8")
        .load()
        .where("value IS NOT NULL")
    )
    event = fn.from_json(fn.col("value").cast("string"), EVENT)
    typed = records.select("offset", event.alias("e")).select(
        "offset", "e.op", fn.coalesce("e.after.id", "e.before.id").alias("id"), "e.after"
    )
    order = Window.partitionBy("id").orderBy(fn.desc("offset"))
    return typed.withColumn("n", fn.row_number().over(order)).where("n = 1")


def materialise(spark: SparkSession, bootstrap: str, topic: str, path: Path) -> float:
    begun = time.perf_counter()
    columns = [each.split()[0] for each in ROW.split(", ")]
    spark.sql(f"CREATE TABLE delta.`{path}` ({ROW}) USING delta")
    newest(spark, bootstrap, topic).createOrReplaceTempView("changes")
    values = ", ".join(f"s.after.{name}" for name in columns)
    updates = ", ".join(f"t.{name} = s.after.{name}" for name in columns)
    spark.sql(
        f"MERGE INTO delta.`{path}` t USING changes s ON t.id = s.id "
        "WHEN MATCHED AND s.op = 'd' THEN DELETE "
        f"WHEN MATCHED THEN UPDATE SET {updates} "
        f"WHEN NOT MATCHED AND s.op <> 'd' THEN INSERT ({', '.join(columns)}) VALUES ({values})"
    )
    return time.perf_counter() - begun


def main() -> None:
    jars, bootstrap, directory, *topics = sys.argv[1:]
    spark = session(Path(jars))
    for topic in topics:
        path = Path(directory) / topic
        seconds = materialise(spark, bootstrap, topic, path)
        rows = spark.read.format("delta").load(str(path)).count()
        print(json.dumps({"seconds": seconds, "table_rows": rows}), flush=True)


if __name__ == "__main__":
    main()
