"""What a test runs on a cluster: counts a topic's changes there, and says who has read them."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from sinks.spark.columns import map_arrow
from sinks.spark.session import SessionChoices, close_session, open_session

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
    import core_log

    for _ in batches:
        yield pa.RecordBatch.from_pydict(
            {"executor": [str(Path.cwd())], "code": [core_log.__file__]}
        )


def main() -> None:
    master, address, topic = sys.argv[1:4]
    spark = open_session(SessionChoices(master=master, memory_bytes=512 << 20, config=CONFIG))
    reading = spark.read.format("headwater").option("bootstrap", address).option("topic", topic)
    changes = reading.option("splitRecords", "1000").load()
    [counted] = changes.selectExpr("count(*) n", "sum(after.id) total").toArrow().to_pylist()
    places = map_arrow(spark.range(0, 8, 1, 8), whereabouts, "executor string, code string")
    found = places.toArrow().to_pylist()
    close_session()
    sys.stdout.write(json.dumps({**counted, "places": found}) + "\n")


if __name__ == "__main__":
    main()
