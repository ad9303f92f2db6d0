"""Housekeeping goes on after whatever stood in its way."""

import asyncio
from pathlib import Path

import pytest

from headwater.core_log.broker.lifecycle import RunningBroker
from headwater.core_log.foundation.settings import BrokerSettings


async def test_compaction_is_tried_again_after_the_system_had_no_file_to_give(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    came_again, attempts = asyncio.Event(), 0

    async def clean(now_ms: int) -> None:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            raise OSError(24, "too many open files")
        came_again.set()

    monkeypatch.setattr(
        "headwater.core_log.broker.log_cleaner.LogCleaner.clean_what_is_due",
        lambda _, now: clean(now),
    )
    settings = BrokerSettings(data=tmp_path, listen="127.0.0.1:0", housekeeping_interval_ms=10)
    running = await RunningBroker.start(settings)

    await came_again.wait()

    await running.stop()
