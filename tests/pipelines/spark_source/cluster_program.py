"""What a test runs on a cluster: counts a topic's changes there, and says who has read them."""

import asyncio
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.core_log.client import KafkaLog, KafkaSettings
from headwater.core_log.model.log import TopicPartition
from headwater.pipelines.file.spec import TransformRule
from headwater.pipelines.loops.deliver.split_reader import LogSplitReader
from headwater.sinks.spark.executor_tasks import map_arrow
from headwater.sinks.spark.session import SessionChoices, close_session, open_session
from headwater.sinks.spark.splits import Split

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FUNCTION = """
def note(rows):
    return [{**row, "note": "from far away"} for row in rows]
"""
CONFIG = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
    "spark.cores.max": "2",
    # Compiling would take longer than reading a few records.
    "spark.executorEnv.HEADWATER_SPEED": "python",
}


def whereabouts(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Which executor this is, and where it has our code from."""
    import headwater.core_log

    for _ in batches:
        yield pa.RecordBatch.from_pydict(
            {"executor": [str(Path.cwd())], "code": [headwater.core_log.__file__]}
        )


@dataclass(frozen=True, slots=True)
class Notes:
    """What a function makes of rows where only executors are."""

    reader: LogSplitReader
    split: Split

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            for changes in self.reader.read(self.split.starts, self.split.ends):
                yield pa.RecordBatch.from_pydict({"note": changes.rows.column("note")})


def notes(spark: "SparkSession", address: str, topic: str, count: int) -> list[str]:
    """By a module whose directory is gone before any executor could look for it."""
    with TemporaryDirectory() as directory:
        Path(directory, "far_rules.py").write_text(FUNCTION)
        rule = TransformRule.model_validate({"table": "*.*", "python": "far_rules:note"})
        reader = LogSplitReader(
            settings=KafkaSettings(bootstrap=address.split(",")),
            rules=(rule,),
            routes=(),
            directory=Path(directory),
            fetch_bytes=1 << 20,
            skipped=dict,
        )
        partition = TopicPartition(topic, 0)
        topic_id = asyncio.run(topic_id_of(address, topic))
        task = Notes(reader, Split(partition, topic_id, 0, count))
        frame = map_arrow(spark.range(0, 1, 1, 1), task, "note string")
    return sorted({row["note"] for row in frame.toArrow().to_pylist()})


async def topic_id_of(address: str, topic: str) -> str:
    log = KafkaLog(KafkaSettings(bootstrap=address.split(",")))
    try:
        return await log.topic_id(topic)
    finally:
        await log.close()


def main() -> None:
    master, address, topic = sys.argv[1:4]
    spark = open_session(SessionChoices(master=master, memory_bytes=512 << 20, config=CONFIG))
    reading = spark.read.format("headwater").option("bootstrap", address).option("topic", topic)
    changes = reading.option("splitRecords", "1000").load()
    [counted] = changes.selectExpr("count(*) n", "sum(after.id) total").toArrow().to_pylist()
    places = map_arrow(spark.range(0, 8, 1, 8), whereabouts, "executor string, code string")
    found = places.toArrow().to_pylist()
    said = notes(spark, address, topic, counted["n"])
    close_session()
    sys.stdout.write(json.dumps({**counted, "places": found, "notes": said}) + "\n")


if __name__ == "__main__":
    main()
