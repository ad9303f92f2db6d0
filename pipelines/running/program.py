"""Runs a pipeline file from a Python program, as `headwater run` does from the command line."""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headwater.pipelines.file.loader import load
from headwater.pipelines.running.run import Look, RunOptions, run
from headwater.pipelines.watching.status import find_undelivered


async def run_pipeline(
    path: str | Path,
    *,
    once: bool = False,
    data: str | Path | None = None,
    migrate: bool = False,
    environment: Mapping[str, str] | None = None,
) -> Mapping[str, Any]:
    """Runs a pipeline file, or all pipeline files of a directory, and returns the last status, with
    the fields of `headwater status --json`. Raises the error of the first pipeline that failed.

    `once`: end when everything that is there now has been delivered; `undelivered` in the status
    then lists the tables that were not delivered whole. Without it, cancel the task to stop. `data`
    and `migrate` are the options of `headwater run`. `environment` replaces the process's own for
    `${env:NAME}`.
    """
    given = os.environ if environment is None else environment
    place = None if data is None else Path(data)
    wanted = RunOptions(
        lambda: [each.with_log_at(place) for each in load(Path(path), environment=given)],
        _show_nothing,
        once=once,
        migrates=migrate,
    )
    status = await run(wanted)
    if not once:
        return status
    return {**status, "undelivered": [each.as_json() for each in find_undelivered(status)]}


async def _show_nothing(_: Look) -> None:
    await asyncio.Event().wait()
