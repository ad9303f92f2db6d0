"""One task of a pipeline alone in a process, over a broker that is not: how long it takes."""

# python -m benchmarks.pipeline_task FILE TASK [FILE TASK ...]; prints a line of JSON for each, in
# one process, so that the later ones find it warm.

import asyncio
import json
import os
import sys
import time
from pathlib import Path

from headwater.core_log.client import KafkaLog
from headwater.core_log.foundation.clock import SystemClock
from headwater.pipelines.file.loader import load
from headwater.pipelines.journal.control import DesiredTaskState
from headwater.pipelines.loops.assembly import ensure_topics, run_task
from headwater.pipelines.reports import Report, RowsMoved, TaskRun
from headwater.pipelines.running.data_directory_lock import kafka_settings


async def measure(path: Path, task: str) -> dict[str, float]:
    """Rows and seconds of one whole life of the task, from its first step to its last commit."""
    [loaded] = load(path, environment=os.environ)
    log = KafkaLog(kafka_settings(loaded, loaded.spec.log.bootstrap))
    rows = 0

    def count(report: Report) -> None:
        nonlocal rows
        if isinstance(report, RowsMoved):
            rows += report.rows

    await ensure_topics(loaded, log)
    begun, cpu = time.perf_counter(), time.process_time()
    await run_task(
        TaskRun(
            loaded,
            task,
            log,
            desired=lambda: DesiredTaskState(loaded.name),
            clock=SystemClock(),
            report=count,
            until_end=True,
        )
    )
    seconds = time.perf_counter() - begun
    await log.close()
    return {
        "rows": rows,
        "seconds": seconds,
        "per_second": rows / seconds,
        "task_cpu_s": time.process_time() - cpu,
    }


if __name__ == "__main__":
    for file, name in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
        print(json.dumps(asyncio.run(measure(Path(file), name))), flush=True)
