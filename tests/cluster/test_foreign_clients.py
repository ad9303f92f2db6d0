"""The clients of librdkafka in the scenarios go on where it leaves that to the program."""

import asyncio
from pathlib import Path
from random import Random

import pytest

from headwater.core_log.embedded import EmbeddedLog
from headwater.core_log.foundation.settings import BrokerSettings, TopicSettings
from headwater.core_log.groups.group_coordinator import GroupCoordinator
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.protocol.error_codes import ErrorCode
from tests.cluster.foreign_clients import ForeignWiring, GroupClient
from tests.cluster.workload import GROUP, PROGRESS_S_MAX
from tests.simulation.checker import Observed
from tests.simulation.load import batch_of

pytestmark = [pytest.mark.integration, pytest.mark.slow]


async def test_a_member_reads_on_after_its_offsets_were_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """librdkafka asks no second time, and stays a member that reads nothing (its issue 5586)."""
    refusals, confirm = [ErrorCode.NOT_COORDINATOR] * 2, GroupCoordinator.confirm

    async def refuse(self: GroupCoordinator, group_id: str) -> ErrorCode:
        return refusals.pop() if refusals else await confirm(self, group_id)

    monkeypatch.setattr(GroupCoordinator, "confirm", refuse)
    log = await EmbeddedLog.open(BrokerSettings(data=tmp_path, listen="127.0.0.1:0"))
    await log.ensure_topic(TopicSettings(name="orders"))
    await log.append(TopicPartition("orders", 0), batch_of(["a"], 0))
    seen = Observed()
    host, port = log.running.server.address
    wiring = ForeignWiring(f"{GROUP}/m1", [f"{host}:{port}"], Random(1), seen)
    member = GroupClient(wiring, ["orders"])

    working = asyncio.ensure_future(member.work())
    try:
        async with asyncio.timeout(PROGRESS_S_MAX):
            while True:
                if seen.group_commits:
                    break
                await asyncio.sleep(0.05)
    finally:
        member.is_over = True
        await working
        await log.close()

    assert not refusals
    assert seen.group_commits[0].offset == 1
