"""Runs on Apache Kafka share their tasks as on a broker of ours: the group is an ordinary one."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headwater.core_log.client import KafkaLog, KafkaSettings
from headwater.pipelines.running.assignor import GROUP, pipelines_of_members
from tests.contract.apache_kafka import run_apache_kafka
from tests.pipelines.running.test_worker_group import ALL, Stage, a_file, cut_off

SESSION_MS = 6_000
"""The shortest that Kafka takes."""


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    with run_apache_kafka(tmp_path) as address:

        def new_client() -> KafkaLog:
            return KafkaLog(KafkaSettings(bootstrap=[address]))

        log = new_client()
        yield Stage(log, new_client, SESSION_MS)
        await log.close()


async def test_runs_on_kafka_come_go_are_cut_off_and_edited(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage.run("a") as a:
        await stage.until(lambda shares: shares == {"a": ALL})
        async with stage.run("b") as b:
            await stage.until_shared()
            assert await pipelines_of_members(stage.log) == {"shop": "host-b"}
            groups = {each.name: each for each in await stage.log.groups.all()}
            assert (groups[GROUP].state, groups[GROUP].protocol) == ("Stable", "headwater")

            with cut_off(b, monkeypatch):
                await stage.until(lambda shares: shares == {"a": ALL, "b": set()})
            await stage.until_shared()

            await a.edit(a_file("second"))
            await stage.until(lambda shares: shares == {"a": ALL, "b": set()})
        await stage.until(lambda shares: shares == {"a": ALL})
