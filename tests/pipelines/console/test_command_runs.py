"""Commands that the console starts: however much they print, and however many are started."""

import asyncio
import sys
from pathlib import Path

import pytest

from headwater.core_log.foundation.errors import ConfigError
from headwater.pipelines.console import command_runs
from headwater.pipelines.console.command_runs import CommandRuns
from headwater.pipelines.console.hidden_columns import NOTHING_HIDDEN

ANSWER = """
import json, sys
print(json.dumps({"ok": True, "data": {"rows": "x" * 1_000_000}}))
"""


def runs_of(monkeypatch: pytest.MonkeyPatch, script: str) -> CommandRuns:
    monkeypatch.setattr(command_runs, "HEADWATER", (sys.executable, "-c", script))
    return CommandRuns((), file=Path("pipeline.yaml"), hidden=NOTHING_HIDDEN)


async def test_an_answer_that_is_larger_than_a_pipe_is_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs = runs_of(monkeypatch, ANSWER)
    plan = await runs.plan("verify", "shop", {})

    await runs.start(plan.id, plan.typed)
    await asyncio.wait(runs._tasks)

    [ended] = runs.all()
    assert ended.state == "done"
    assert ended.answer == {"rows": "x" * 1_000_000}


async def test_one_of_two_commands_for_one_target_at_once_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs = runs_of(monkeypatch, "import sys; sys.stdin.read()")
    plans = [await runs.plan("verify", "shop", {}) for _ in range(2)]

    found = await asyncio.gather(
        *(runs.start(plan.id, plan.typed) for plan in plans), return_exceptions=True
    )
    await runs.close()

    [refused] = [each for each in found if isinstance(each, BaseException)]
    assert isinstance(refused, ConfigError) and "another command runs" in refused.problem
