"""A pipeline over a log of its own, run to its end as often as a test wants, and looked at."""

import asyncio
import os
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from headwater.core_log.embedded import EmbeddedLog
from headwater.core_log.foundation.clock import SystemClock
from headwater.core_log.foundation.settings import BrokerSettings
from headwater.pipelines.file.loader import LoadedPipeline, load
from headwater.pipelines.loops.assembly import run_task
from headwater.pipelines.time_travel.verify.result import ComparedSides, TableVerdict
from headwater.pipelines.time_travel.verify.table_selection import (
    ComparedTable,
    subject_of,
    subjects_of,
)
from headwater.pipelines.time_travel.verify.verify import Verifier
from tests.pipelines.task_runs import task_run


class World:
    """A loaded pipeline and its log, open in this very loop."""

    def __init__(self, loaded: LoadedPipeline, log: EmbeddedLog) -> None:
        self.loaded, self.log, self.clock = loaded, log, SystemClock()

    async def run(self, *tasks: str) -> None:
        """The source and every sink to their ends, or only those tasks."""
        for task in tasks or ("source", *(part.name for part in self.loaded.sinks)):
            await run_task(task_run(self.loaded, task, self.log, clock=self.clock))

    async def subject(self, table: str) -> ComparedTable:
        return subject_of(
            await subjects_of(self.loaded, self.log), table, pipeline=self.loaded.name
        )

    async def verified(
        self, *tables: str, sides: ComparedSides | None = None, repairs: bool = False
    ) -> dict[tuple[str, str], TableVerdict]:
        """By table and side."""
        verifier = Verifier(self.loaded, self.log, clock=self.clock, is_running=False)
        subjects: Sequence[ComparedTable] = await subjects_of(self.loaded, self.log)
        if tables:
            subjects = [await self.subject(table) for table in tables]
        found = await verifier.verify(
            subjects, sides or ComparedSides(), repairs=repairs, is_whole=not tables
        )
        return {(str(each.subject.target), each.side): each for each in found}


Story = Callable[[World], Coroutine[Any, Any, Any]]


def tell(directory: Path, pipeline: str, story: Story) -> Any:
    async def run() -> Any:
        (directory / "pipeline.yaml").write_text(pipeline)
        [loaded] = load(directory / "pipeline.yaml", environment=os.environ)
        settings = BrokerSettings(data=loaded.log_path, listen="127.0.0.1:0", internal_partitions=1)
        log = await EmbeddedLog.open(settings)
        try:
            return await story(World(loaded, log))
        finally:
            await log.close()

    return asyncio.run(run())
