"""A table that is held at its source is shown as that, and nobody takes it for equal."""

from pathlib import Path

import pytest

from headwater.core_log.embedded import EmbeddedLog
from headwater.core_log.foundation.clock import SystemClock
from headwater.core_log.foundation.errors import BeingReadAgain
from headwater.core_log.foundation.settings import BrokerSettings
from headwater.core_log.model.table_schema import TableId
from headwater.pipelines.file.loader import load
from headwater.pipelines.journal.replacements import check_not_reread
from headwater.pipelines.loops.ingest.ingest import SOURCE
from headwater.pipelines.loops.ingest.signals import free_space
from headwater.pipelines.reports import Report, StateChanged, TaskState
from headwater.pipelines.running.first_checks import checked_first
from headwater.pipelines.time_travel.rebuild.rebuild import nothing
from headwater.pipelines.time_travel.rebuild.schema_change import cross_over
from tests.databases import Guest
from tests.pipelines.task_runs import task_run

FILE = """
pipeline: {{name: shop, schema_changes: {{change_type: fail}}}}
source: {{type: postgres, url: "{url}", tables: [public.items]}}
sink:
- {{type: sql, url: "sqlite:///target.db"}}
- {{type: spark, path: lake}}
- {{type: files, path: "s3://bucket/out"}}
"""


async def test_a_table_that_is_held_says_what_it_waits_for(guest: Guest, tmp_path: Path) -> None:
    guest.execute("CREATE TABLE items (id int PRIMARY KEY, b int)", "INSERT INTO items VALUES (1)")
    guest.publish("items")
    file = tmp_path / "pipeline.yaml"
    file.write_text(FILE.format(url=guest.url))
    [loaded] = load(file, environment={})
    said = list[Report]()
    log = await EmbeddedLog.open(BrokerSettings(data=tmp_path / "data", listen="127.0.0.1:0"))

    async def run() -> None:
        await checked_first()(task_run(loaded, SOURCE, log, report=said.append))

    try:
        await run()
        guest.execute("ALTER TABLE items ALTER b TYPE text USING 'b' || b")
        await run()
        with pytest.raises(BeingReadAgain, match="the table is quarantined"):
            await check_not_reread(log, "shop", [TableId("public", "items")])
        failure = await cross_over(
            loaded,
            loaded.sinks[0],
            "items",
            log,
            clock=SystemClock(),
            report=said.append,
            beginnings={},
            stop=nothing,
        )
    finally:
        await log.close()

    told = [each for each in said if isinstance(each, StateChanged) and each.table]
    assert told[-1].state is TaskState.QUARANTINED
    assert told[-1].reason.startswith("the column b was altered and the table rewritten; ")
    assert "headwater snapshot start shop/public.items" in told[-1].reason
    assert "the table is quarantined" in failure


def test_the_log_and_targets_of_one_disk_share_its_room(guest: Guest, tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(FILE.format(url=guest.url))
    [loaded] = load(file, environment={})

    [found] = free_space(loaded)

    assert found.users == ["the log", "sql", "spark"]
    assert found.bytes > 0
