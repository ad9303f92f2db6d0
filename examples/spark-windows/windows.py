"""Orders per window of time: by when they were made, and by when we came to hear of them."""

import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

WIDTH = "10 seconds"


def changes(spark: SparkSession, address: str, topic: str) -> DataFrame:
    """`format("headwater")` needs no registering: Spark finds it where Headwater is installed."""
    reading = spark.readStream.format("headwater")
    return reading.option("bootstrap", address).option("topic", topic).load()


def by_event_time(events: DataFrame, *, width: str, patience: str) -> DataFrame:
    """A window is told once, when nothing can be missing from it that is less than `patience` late.
    What is later still is left out, and counted in the progress of the query."""
    made = events.where("op in ('r', 'c')").withColumn(
        "made_at", f.timestamp_millis("source.ts_ms")
    )
    return made.withWatermark("made_at", patience).groupBy(f.window("made_at", width)).count()


def by_processing_time(events: DataFrame, *, width: str) -> DataFrame:
    """The same orders by the clock of whoever counts: read again, they fall into other windows."""
    heard = events.where("op in ('r', 'c')").withColumn("heard_at", f.current_timestamp())
    return heard.groupBy(f.window("heard_at", width)).count()


def main() -> None:
    address, topic = sys.argv[1:3]
    session = SparkSession.builder.master("local[2]").config("spark.sql.session.timeZone", "UTC")
    few = session.config("spark.sql.shuffle.partitions", "2")  # of 200, most would wait for a core
    with few.getOrCreate() as spark:
        events = changes(spark, address, topic)
        for name, counts, mode in (
            ("event time", by_event_time(events, width=WIDTH, patience=WIDTH), "append"),
            ("processing time", by_processing_time(events, width=WIDTH), "complete"),
        ):
            writing = counts.writeStream.format("console").queryName(name).outputMode(mode)
            writing.option("truncate", "false").trigger(processingTime="5 seconds").start()
        spark.streams.awaitAnyTermination()  # until Ctrl-C


if __name__ == "__main__":
    main()
