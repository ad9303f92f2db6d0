"""A secret in a file is read again whenever a task begins again, so that it can be changed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import quote

import pytest

from headwater.core_log.foundation.errors import SourceUnavailable
from headwater.pipelines.file.loader import LoadedPipeline, load
from headwater.pipelines.journal.control import control_topic
from headwater.pipelines.reports import TaskRun
from headwater.pipelines.running.supervisor import TaskEnvironment
from headwater.pipelines.running.tasks import Listeners, TaskAssignment, TaskRunner
from tests.fakes import SimulatedClock
from tests.memory_log import MemoryLog
from tests.pipelines.pipeline_files import Write

FILE = """
pipeline: shop
source: {type: made-up, url: "pg://app:${file:password}@${env:HOST}/x?key=$${file:no}"}
sink:
  - {type: made-up, path: "${file:password}"}
  - {type: made-up, name: plain, path: x}
"""


def url_of(loaded: LoadedPipeline) -> str:
    return str(loaded.source.content["url"])


@pytest.fixture
def loaded(write: Write, tmp_path: Path) -> LoadedPipeline:
    (tmp_path / "password").write_text("first secret\n")
    [found] = load(write(FILE), environment={"HOST": "db$${env:X}"})
    return found


def test_a_changed_file_changes_the_settings_of_the_parts_that_refer_to_it(
    loaded: LoadedPipeline, tmp_path: Path
) -> None:
    (tmp_path / "password").write_text("sec/ond ${env:HOST}\n")

    now = LoadedPipeline.from_wire(loaded.to_wire()).with_secrets_of_now()

    assert url_of(loaded) == "pg://app:first%20secret@db$${env:X}/x?key=${file:no}"
    password = quote("sec/ond ${env:HOST}", safe="")
    assert url_of(now) == f"pg://app:{password}@db$${{env:X}}/x?key=${{file:no}}"
    assert now.sinks[0].content["path"] == "sec/ond ${env:HOST}"
    assert now.sinks[1] is not loaded.sinks[1] and now.sinks[1] == loaded.sinks[1]
    assert "sec/ond" not in now.redaction.scrub("it says: sec/ond ${env:HOST}")
    assert "first secret" not in now.redaction.scrub("it says: first secret")
    assert now.with_secrets_of_now() is now


def test_a_file_that_cannot_be_read_leaves_the_former_value(
    loaded: LoadedPipeline, tmp_path: Path
) -> None:
    (tmp_path / "password").unlink()

    assert loaded.with_secrets_of_now() is loaded


async def test_a_task_that_reconnects_uses_the_secret_of_now(
    loaded: LoadedPipeline, tmp_path: Path
) -> None:
    used: list[str] = []
    unsaid: list[LoadedPipeline] = []

    @asynccontextmanager
    async def open_log(_: object) -> AsyncIterator[Any]:
        log = MemoryLog()
        await log.ensure_topic(control_topic())
        yield log

    async def connect(task: TaskRun) -> None:
        used.append(url_of(task.loaded).partition("@")[0])
        if len(used) == 1:
            (tmp_path / "password").write_text("second")
            raise SourceUnavailable("the password was changed")

    async with asyncio.TaskGroup() as tasks:
        around = TaskEnvironment(
            SimulatedClock(), Random(7), sleep=lambda _: asyncio.sleep(0), keep_unsaid=unsaid.append
        )
        listeners = Listeners(lambda _: None, lambda _: None, lambda _: None)
        runner = TaskRunner(tasks, connect, open_log, listeners, around)
        runner.start(TaskAssignment(loaded, "source"))
        while len(used) < 2:  # noqa: ASYNC110 - a task that ends ends the group
            await asyncio.sleep(0)
        await runner.stop_all()

    assert used == ["pg://app:first%20secret", "pg://app:second"]
    assert [each.source.content for each in unsaid] != [loaded.source.content]
