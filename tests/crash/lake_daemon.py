"""What Spark's executors start in place of `pyspark.daemon`: the same, with the kills watched."""

import os
from pathlib import Path

from pyspark.daemon import manager

from tests.crash.lake_kills import PLACE, Plan, watch_tasks

if __name__ == "__main__":
    watch_tasks(Plan(Path(os.environ[PLACE])))
    manager()  # type: ignore[no-untyped-call]
