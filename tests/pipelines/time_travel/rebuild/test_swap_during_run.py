"""A sink that runs while its table is rebuilt and swapped goes on, and is not fenced by that."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from headwater.core_log.client.gather import let_go
from headwater.core_log.foundation.clock import SystemClock
from headwater.core_log.foundation.errors import Fenced
from headwater.pipelines.file.loader import load
from headwater.pipelines.journal.control import (
    DesiredState,
    control_topic,
    pause_signal,
    read_desired,
    write_control,
)
from headwater.pipelines.loops.assembly import make_sink, run_task
from headwater.pipelines.running.tasks import _newest_restart
from headwater.pipelines.time_travel.rebuild import rebuild as rebuilding
from tests.pipelines.task_runs import task_run
from tests.pipelines.time_travel.world import World, tell

PIPELINE = """
pipeline: shop
source: {type: generator, size: 1000, total: %d, rate: 0, batch_rows: 500}
sink: {type: sql, url: "sqlite:///shop.db", commit_every: 0s}
"""
RESTARTED_LATE_S = 2
"""What a busy loop meets now and then happens every time."""


@pytest.mark.slow
def test_a_running_sink_goes_on_after_a_swap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(world: World) -> Any:
        await world.run()
        (tmp_path / "pipeline.yaml").write_text(PIPELINE % 5000)
        [later] = load(tmp_path / "pipeline.yaml", environment=os.environ)
        desired = DesiredState(world.log, "shop")
        settled, restart = rebuilding._wait_settled, rebuilding._send_restart

        async def settles(*args: Any, **kwargs: Any) -> Any:
            found = await settled(*args, **kwargs)
            await World(later, world.log).run("source")  # goes on while the table is paused
            return found

        async def restarts(*args: Any, **kwargs: Any) -> None:
            await asyncio.sleep(RESTARTED_LATE_S)
            await restart(*args, **kwargs)

        monkeypatch.setattr(rebuilding, "_wait_settled", settles)
        monkeypatch.setattr(rebuilding, "_send_restart", restarts)
        found = await rebuilding.find_rebuilding(world.loaded, world.log, table="orders", sink=None)
        wanted = rebuilding.RebuildOptions(swaps=True)
        await world.log.ensure_topic(control_topic())
        await desired.load()
        follow = asyncio.create_task(desired.follow())

        async def live() -> None:
            """As a running process does it: a restart begins it afresh, and who is
            fenced has ended for good."""
            while True:
                seen = _newest_restart(desired.now)
                life = asyncio.create_task(
                    run_task(
                        task_run(
                            later, "sql", world.log, desired=lambda: desired.now, until_end=False
                        )
                    )
                )
                try:
                    while not life.done() and _newest_restart(desired.now) == seen:  # noqa: ASYNC110
                        await asyncio.sleep(0.005)
                    if life.done():
                        return life.result()
                finally:
                    await let_go(life)

        sink = asyncio.create_task(live())
        await rebuilding.rebuild(
            found, world.log, wanted, is_running=True, clock=SystemClock(), reporter=lambda _: None
        )
        await asyncio.sleep(1)
        ended = sink.done() and sink.exception()
        for task in (sink, follow):
            task.cancel()
        await asyncio.wait([sink, follow])
        assert not isinstance(ended, Fenced), ended
        offsets = await _load_offsets(world)
        assert offsets, "the sink would fill the table from the start of the log"

    async def _load_offsets(world: World) -> Any:
        sink = make_sink(world.loaded, world.loaded.sinks[0], clock=SystemClock())
        found = await sink.committed_offsets(["shop.shop.orders", "shop.orders"])
        await sink.close()
        return found

    tell(tmp_path, PIPELINE % 3000, story)


@pytest.mark.slow
@pytest.mark.parametrize("runs", [True, False])
def test_a_run_that_began_while_the_copy_was_filled_is_restarted_after_the_swap(
    runs: bool, tmp_path: Path
) -> None:
    async def runs_by_now() -> bool:
        return runs

    async def story(world: World) -> Any:
        await world.run()
        found = await rebuilding.find_rebuilding(world.loaded, world.log, table="orders", sink=None)
        await rebuilding.rebuild(
            found,
            world.log,
            rebuilding.RebuildOptions(swaps=True),
            is_running=False,
            clock=SystemClock(),
            reporter=lambda _: None,
            runs_by_now=runs_by_now,
        )
        now = await read_desired(world.log, "shop")
        assert bool(_newest_restart(now)) is runs
        assert not now.paused_tables

    tell(tmp_path, PIPELINE % 1000, story)


@pytest.mark.slow
@pytest.mark.parametrize("when", ["never", "before", "meanwhile"])
def test_a_pause_that_a_person_has_set_outlives_a_swap(
    when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled = rebuilding._wait_settled

    async def story(world: World) -> Any:
        async def pause() -> None:
            signal = pause_signal(table="shop.orders", is_paused=True, id="of-a-person")
            await write_control(world.log, "shop", [signal], now_ms=world.clock.now_ms())

        async def settles(*args: Any, **kwargs: Any) -> Any:
            if when == "meanwhile":
                await pause()
            during.append((await read_desired(world.log, "shop")).paused_tables)
            return await settled(*args, **kwargs)

        await world.run()
        if when == "before":
            await pause()
        during: list[frozenset[str]] = []
        monkeypatch.setattr(rebuilding, "_wait_settled", settles)
        found = await rebuilding.find_rebuilding(world.loaded, world.log, table="orders", sink=None)
        swapped = await rebuilding.rebuild(
            found,
            world.log,
            rebuilding.RebuildOptions(swaps=True),
            is_running=True,
            clock=SystemClock(),
            reporter=lambda _: None,
        )
        assert swapped.kept
        return during, (await read_desired(world.log, "shop")).paused_tables

    during, after = tell(tmp_path, PIPELINE % 1000, story)

    assert during == [{"shop.orders"}]
    assert after == (set() if when == "never" else {"shop.orders"})
