"""A pipeline whose slices Spark puts into a lake, and whoever is killed meanwhile: all start again
at once."""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml

from headwater.connectors.generator.history import truth
from headwater.connectors.generator.settings import GeneratorSettings
from headwater.sinks.spark.column_types import take_back
from scripts.shop_targets import Rows, rows_of_arrow
from tests.crash.broker_process import BrokerProcess
from tests.crash.command_process import CommandProcess
from tests.crash.lake_kills import PLACE, Kill, Plan, watch_commits
from tests.sinks.spark.targets import LakeBench

SLICE_ROWS = 6_000
LOOK_S = 0.05
PATIENCE_S = 3_600
KILLED = -9
AllRows = Mapping[str, Rows]
DAEMON = "tests.crash.lake_daemon"


@dataclass(slots=True)
class LakeHistory:
    """As many slices as kills, and none of them small enough for the pipeline's own process."""

    directory: Path
    kills: Sequence[Kill]
    master: str = "local[2]"
    format: str = "delta"
    spark: Mapping[str, str] = field(default_factory=dict)
    """Further settings of Spark."""
    surroundings: Mapping[str, str] = field(default_factory=dict)
    """Variables of the pipeline's process."""
    generator: GeneratorSettings = field(init=False)
    lives: int = 0
    """Of the pipeline's process."""

    def __post_init__(self) -> None:
        self.generator = GeneratorSettings(
            mode="wide",
            size=SLICE_ROWS,
            total=SLICE_ROWS * (1 + len(self.kills)),
            rate=0,
            updates=0.4,
            deletes=0.2,
            batch_rows=2_000,
        )

    def live_through(self) -> None:
        """Until source and lake have come to their end."""
        plan = Plan(self.directory / "kills")
        plan.write(self.kills)
        broker = BrokerProcess(self.directory / "log", self.directory / "broker.log", {})
        pipeline = self._pipeline(broker.address, plan)
        deadline = time.monotonic() + PATIENCE_S
        try:
            while (code := pipeline.poll()) != 0:
                assert time.monotonic() < deadline, f"it does not end: {pipeline.last_words()}"
                if not broker.is_running:
                    broker.forget()
                    broker.start()
                    plan.know("broker", broker.pid)
                if code == KILLED:
                    pipeline.wait()  # Spark's own processes may live a little longer
                assert code in (None, KILLED), pipeline.last_words()
                if not pipeline.is_started:
                    pipeline.start()
                    self.lives += 1
                time.sleep(LOOK_S)
            assert not plan.left(), "every moment is really come to"
        finally:
            pipeline.end()
            broker.kill_if_running()
            broker.forget()
            broker.end_children()

    def _pipeline(self, address: str, plan: Plan) -> CommandProcess:
        file = self.directory / "pipeline.yaml"
        file.write_text(yaml.safe_dump(self._spec(address, plan)))
        return CommandProcess(
            ["run", file, "--once"],
            directory=self.directory,
            output=self.directory / "run.log",
            before=partial(begin, plan.place, dict(self.surroundings)),
        )

    def _spec(self, address: str, plan: Plan) -> dict[str, Any]:
        chosen = self.generator
        return {
            "pipeline": "shop",
            "workers": 0,
            "source": {
                "type": "generator",
                "batch_wait": "0ms",
                **{name: getattr(chosen, name) for name in chosen.model_fields_set},
            },
            "log": {"type": "kafka", "bootstrap": address},
            "limits": {"transaction_size": "64KiB"},
            "errors": {"retry": {"for": "10m", "backoff": "50ms..400ms"}},
            "sink": {
                "type": "spark",
                "path": "./lake",
                "format": self.format,
                "commit_every": "0s",
                "slice_rows": SLICE_ROWS,
                "small_rows": 10,
                "rewritten_rows": 0,
                "split_rows": SLICE_ROWS // 3,
                "tables": {"*": {"file_rows": SLICE_ROWS // 4}},
                "master": self.master,
                "memory": "512MiB",
                "spark": {
                    "spark.python.daemon.module": DAEMON,
                    f"spark.executorEnv.{PLACE}": str(plan.place),
                    "spark.executor.memory": "512m",
                    "spark.sql.shuffle.partitions": "2",
                    **self.spark,
                },
            },
        }


def begin(plan: Path, surroundings: Mapping[str, str]) -> None:
    """In the process of the pipeline, before it runs."""
    os.environ.update(surroundings)
    watch_commits(plan)


def lake_rows(lake: Path, settings: GeneratorSettings, *, format: str = "delta") -> AllRows:
    """What the lake holds, read by others than us."""
    bench = LakeBench(str(lake), chosen={"format": format})
    rows: dict[str, Rows] = {}
    for table, expected in truth(settings).items():
        held = bench.table(str(table))
        assert held is not None, "there is a table"
        columns = {
            each.name: take_back(held[each.name].combine_chunks(), each.type)
            for each in expected.schema
        }
        rows[str(table)] = in_order(pa.Table.from_pydict(columns, schema=expected.schema))
    return rows


def true_rows(settings: GeneratorSettings) -> AllRows:
    return {str(table): in_order(rows) for table, rows in truth(settings).items()}


def in_order(rows: pa.Table) -> Rows:
    return sorted(rows_of_arrow(rows), key=str)
