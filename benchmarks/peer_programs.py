"""The tools that copy tables to a lake, as their own pages show them; one run per process."""

# python -m benchmarks.peer_programs TOOL ADDRESS TARGET JARS TABLE ..., with the Python of
# scripts/fetch_peers.sh; it imports nothing of ours.

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

KEY = "id"
CHUNK_ROWS = 200_000


def dlt_connectorx(address: str, target: Path, jars: Path, tables: Sequence[str]) -> None:
    """dlt with its fastest backend; one process, since two cores are all there is."""
    os.environ |= {
        "DLT_DATA_DIR": str(target / "dlt"),
        "RUNTIME__DLTHUB_TELEMETRY": "false",
        "RUNTIME__LOG_LEVEL": "ERROR",
        "DESTINATION__FILESYSTEM__BUCKET_URL": str(target),
    }
    import dlt  # type: ignore[import-not-found]
    from dlt.sources.sql_database import (  # type: ignore[import-not-found]
        sql_database,
    )

    source = sql_database(
        address,
        schema="public",
        table_names=list(tables),
        backend="connectorx",
        backend_kwargs={
            "return_type": "arrow_stream",
            "batch_size": CHUNK_ROWS,
            "protocol": "binary",
        },
        reflection_level="full_with_precision",
    )
    pipeline = dlt.pipeline("peers", destination="filesystem", dataset_name="lake")
    done = pipeline.run(source, table_format="delta", write_disposition="replace")
    done.raise_on_failed_jobs()


def connectorx_delta(address: str, target: Path, jars: Path, tables: Sequence[str]) -> None:
    import connectorx  # type: ignore[import-not-found]
    from deltalake import write_deltalake

    for table in tables:
        rows = connectorx.read_sql(
            address, f"SELECT * FROM {table}", return_type="arrow", protocol="binary"
        )
        write_deltalake(str(target / table), rows)


def duckdb_parquet(address: str, target: Path, jars: Path, tables: Sequence[str]) -> None:
    import duckdb
    from duckdb_extensions import import_extension  # type: ignore[import-not-found]

    import_extension("postgres_scanner")
    connection = duckdb.connect()
    connection.execute("LOAD postgres_scanner")
    connection.execute(f"ATTACH '{address}' AS source (TYPE postgres, READ_ONLY)")
    for table in tables:
        (target / table).mkdir()
        connection.execute(
            f"COPY (FROM source.public.{table}) TO '{target / table}/rows.parquet'"
            " (FORMAT parquet, COMPRESSION zstd)"
        )


def pyspark_jdbc(address: str, target: Path, jars: Path, tables: Sequence[str]) -> None:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    cores = os.cpu_count() or 1
    user, _, place = address.removeprefix("postgresql://").partition("@")
    builder = SparkSession.builder.master(f"local[{cores}]")
    settings = {
        "spark.jars": ",".join(map(str, jars.glob("*.jar"))),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    for table in tables:
        asked = f"(SELECT min({KEY}) AS low, max({KEY}) AS high FROM {table}) AS bounds"
        reader = (
            spark.read.format("jdbc")
            .option("url", f"jdbc:postgresql://{place}?user={user}")
            .option("driver", "org.postgresql.Driver")
            .option("fetchsize", "10000")
        )
        [bounds] = reader.option("dbtable", asked).load().collect()
        rows = (
            reader.option("dbtable", table)
            .option("partitionColumn", KEY)
            .option("lowerBound", bounds.low)
            .option("upperBound", bounds.high)
            .option("numPartitions", cores)
            .load()
        )
        rows.write.format("delta").save(str(target / table))
    spark.stop()


PROGRAMS: dict[str, Callable[[str, Path, Path, Sequence[str]], None]] = {
    "dlt": dlt_connectorx,
    "connectorx": connectorx_delta,
    "duckdb": duckdb_parquet,
    "pyspark": pyspark_jdbc,
}


def main() -> None:
    tool, address, target, jars, *tables = sys.argv[1:]
    PROGRAMS[tool](address, Path(target), Path(jars), tables)


if __name__ == "__main__":
    main()
