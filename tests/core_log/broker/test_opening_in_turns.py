"""Opening many partitions does not hold up everything else of the broker."""

import asyncio

import pytest

from headwater.core_log.broker import replicas
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.replication.decisions import NewTopic
from tests.core_log.broker.in_memory import started
from tests.fakes import MemoryFiles


async def test_many_partitions_are_opened_in_turns_and_are_not_offline_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replicas, "TURN_S", 0.0)
    broker = await started(MemoryFiles())
    seen = list[tuple[int, set[ErrorCode], int]]()

    async def look() -> None:
        while len(seen) < 60:
            codes = {
                broker.why_not_led("many", index)
                for index in range(40)
                if broker.find_led("many", index) is None
            }
            opened = sum(broker.find_led("many", index) is not None for index in range(40))
            seen.append((opened, codes, len(broker.unserved)))
            await asyncio.sleep(0)

    looking = asyncio.ensure_future(look())
    wanted = [NewTopic("many", 40)]
    await broker.metadata.change(lambda: broker.controller.create_topics(wanted))
    after = [broker.find_led("many", index) for index in range(40)]
    await looking

    assert all(each is not None for each in after)
    assert len({opened for opened, _, _ in seen} - {0, 40}) > 20, "there were many turns"
    in_between = set[ErrorCode]().union(*(codes for opened, codes, _ in seen if opened))
    assert in_between <= {ErrorCode.NOT_LEADER_OR_FOLLOWER}
    assert not any(unserved for _, _, unserved in seen)
    await broker.close()


async def test_partitions_are_opened_although_their_creator_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replicas, "TURN_S", 0.0)
    broker = await started(MemoryFiles())

    def create(name: str, partitions: int) -> "asyncio.Future[object]":
        wanted = [NewTopic(name, partitions)]
        change = broker.metadata.change(lambda: broker.controller.create_topics(wanted))
        return asyncio.ensure_future(change)

    creating = create("many", 40)
    while broker.find_led("many", 0) is None:
        assert not creating.done()
        await asyncio.sleep(0)
    creating.cancel()
    await create("next", 1)

    assert creating.cancelled()
    assert all(broker.find_led("many", index) for index in range(40))
    assert broker.find_led("next", 0) is not None
    await broker.close()
