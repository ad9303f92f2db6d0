"""Killed by SIGKILL while a topic's next generation is filled, a pipeline goes on where it was."""

import asyncio
from pathlib import Path

import pytest

from headwater.core_log.broker.lifecycle import RunningBroker
from headwater.core_log.embedded import EmbeddedLog
from headwater.core_log.foundation.settings import BrokerSettings
from headwater.pipelines.file.loader import load
from headwater.pipelines.journal.control import control_topic, read_desired
from headwater.pipelines.running.first_checks import checked_first
from headwater.pipelines.running.migration_approval import approve
from tests.crash.pipeline_points import Fuse, KillingLog, Point
from tests.crash.pipeline_process import PATIENCE_S, PROCESSES
from tests.pipelines.loops.migration.test_migrate_pipeline import FIRST, Shop
from tests.pipelines.loops.migration.test_rekey_pipeline import KeyedShop
from tests.pipelines.task_runs import task_run

POINTS = (
    Point("schema appended", 1, True),
    Point("data appended", 2, False),
    Point("position appended", 2, True),
    Point("commit", 2, True),
    Point("boundary appended", 1, True),
    Point("commit", 3, False),
    Point("commit", 3, True),
)
"""Of a migration: a begin with schemas, one piece of three batches, and the switch."""


@pytest.mark.crash
@pytest.mark.parametrize("point", POINTS, ids=str)
def test_a_migration_killed_at_a_point_loses_and_repeats_no_change(
    point: Point, tmp_path: Path
) -> None:
    shop = Shop(tmp_path)
    shop.add("a", range(60), "first")
    shop.run()
    shop.edit(log="partitions: 3, value: flat-json")
    shop.add("b", range(40, 90), "second")

    assert killed(tmp_path / "pipeline.yaml", point) == -9
    shop.run()

    assert list(shop.topics()) == [f"{FIRST}.g2"]
    assert shop.told("mirror") == sorted(shop.rows.items())
    assert len(shop.told("changes")) == 110
    assert shop.verified() == {"mirror": True, "changes": True}


REKEYING = (
    Point("schema appended", 1, True),
    Point("data appended", 1, False),
    Point("position appended", 2, True),
    Point("commit", 2, False),
    Point("commit", 2, True),
    Point("boundary appended", 1, True),
    Point("commit", 3, True),
)
"""The same where the table gets another key; its one piece is one batch."""


@pytest.mark.crash
@pytest.mark.parametrize("point", REKEYING, ids=str)
def test_a_change_of_key_killed_at_a_point_keeps_every_row_once(
    point: Point, tmp_path: Path
) -> None:
    shop = KeyedShop(tmp_path)
    shop.lines("a", [(id, f"old{id}@example.org") for id in range(60)])
    shop.lines("b", [(id, f"{id}@example.org") for id in range(60)])
    shop.run()
    shop.edit(key="email")
    shop.lines("c", [(id + 100, f"{id}@example.org") for id in range(40, 90)])

    assert killed(tmp_path / "pipeline.yaml", point) == -9
    shop.run()

    people = [(id, f"{id}@example.org") for id in range(40)]
    people += [(id + 100, f"{id}@example.org") for id in range(40, 90)]
    assert shop.topics() == {f"{FIRST}.g2": 1}
    assert shop.told("mirror") == people
    assert len(shop.told("changes")) == 170
    verified = shop.verified()
    assert verified["mirror"] and verified["versions"]


def killed(path: Path, point: Point) -> int | None:
    process = PROCESSES.Process(target=_live, args=(path, point))
    process.start()
    process.join(PATIENCE_S)
    process.kill()
    process.join()
    return process.exitcode


def _live(path: Path, point: Point) -> None:
    asyncio.run(live(path, point))


async def live(path: Path, point: Point) -> None:
    """The source alone: what somebody has agreed to comes before anything else."""
    [loaded] = load(path, environment={})
    settings = BrokerSettings(data=loaded.log_path, listen="127.0.0.1:0", internal_partitions=1)
    log = EmbeddedLog(await RunningBroker.start(settings))
    await log.ensure_topic(control_topic())
    await approve(loaded, log, now_ms=1)
    wanted = await read_desired(log, loaded.name)
    await checked_first()(
        task_run(loaded, "source", KillingLog(log, Fuse(point)), desired=lambda: wanted)
    )
    await log.close()
