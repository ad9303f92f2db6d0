"""A coordinator reads what it takes over before it serves it, and says so meanwhile."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest

from headwater.core_log.broker.broker import Broker
from headwater.core_log.broker.coordination import Coordination
from headwater.core_log.broker.partition import Partition
from headwater.core_log.foundation.errors import CorruptLog
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.describe_transactions import DescribeTransactionsRequest
from headwater.core_log.protocol.messages.find_coordinator import FindCoordinatorRequest
from headwater.core_log.protocol.messages.heartbeat import HeartbeatRequest
from headwater.core_log.protocol.messages.init_producer_id import InitProducerIdRequest
from headwater.core_log.protocol.messages.list_groups import ListGroupsRequest
from headwater.core_log.protocol.messages.list_transactions import ListTransactionsRequest
from headwater.core_log.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headwater.core_log.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from headwater.core_log.protocol.messages.sync_group import SyncGroupRequest
from headwater.core_log.replication.metadata import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from tests.core_log.broker.in_memory import ask, create, started
from tests.fakes import MemoryFiles

LOADING, MOVED = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    """One that knows of a second broker, with a committed offset and a transactional id."""
    broker = await started(MemoryFiles(), internal_partitions=1)
    await create(broker, "t")
    for key_type in (0, 1):
        await ask(broker, FindCoordinatorRequest(key_type=key_type, coordinator_keys=("g",)))
    await commit(broker, 7)
    await ask(broker, InitProducerIdRequest(transactional_id="g", transaction_timeout_ms=9_000))
    await broker.end_short_cuts()
    await broker.metadata.change(
        lambda: broker.controller.register_broker(2, uuid4(), host="h", port=1)
    )
    yield broker
    await broker.close()


def coordination(broker: Broker) -> Coordination:
    assert broker.coordination is not None
    return broker.coordination


async def all_read(broker: Broker) -> None:
    await asyncio.gather(*coordination(broker)._loads.values())


def led(broker: Broker, topic: str) -> Partition:
    partition = broker.partition(topic, 0)
    assert partition is not None
    return partition


async def commit(broker: Broker, offset: int) -> ErrorCode:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topic = OffsetCommitRequestTopic(name="t", partitions=(partition,))
    answer = await ask(broker, OffsetCommitRequest(group_id="g", topics=(topic,)), 8)
    return ErrorCode(answer.topics[0].partitions[0].error_code)


async def committed(broker: Broker) -> tuple[ErrorCode, list[int]]:
    request = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="g", topics=None),))
    answer = (await ask(broker, request, 8)).groups[0]
    offsets = [each.committed_offset for topic in answer.topics for each in topic.partitions]
    return ErrorCode(answer.error_code), offsets


async def described(broker: Broker) -> Any:
    request = DescribeTransactionsRequest(transactional_ids=("g",))
    return (await ask(broker, request)).transaction_states[0]


async def test_a_group_is_refused_until_its_partition_is_read(broker: Broker) -> None:
    coordination(broker).on_elected(led(broker, OFFSETS_TOPIC))

    refused = await committed(broker)
    listed = await ask(broker, ListGroupsRequest())
    assert await commit(broker, 8) is LOADING
    await all_read(broker)

    assert refused == (LOADING, [])
    assert listed.error_code == LOADING
    assert await committed(broker) == (ErrorCode.NONE, [7])


async def test_a_member_hears_no_error_that_it_cannot_handle_while_its_group_is_read(
    broker: Broker,
) -> None:
    coordination(broker).on_elected(led(broker, OFFSETS_TOPIC))

    beat = await ask(broker, HeartbeatRequest(group_id="g", generation_id=1, member_id="m"))
    named: Any = {"protocol_type": "consumer", "protocol_name": "range"}
    synced = await ask(broker, SyncGroupRequest(group_id="g", member_id="m", **named))

    assert beat.error_code == ErrorCode.NONE
    assert synced.error_code == ErrorCode.REBALANCE_IN_PROGRESS


async def test_a_group_that_moved_away_is_not_coordinated_here(broker: Broker) -> None:
    coordination(broker).on_resigned(OFFSETS_TOPIC, 0)

    assert await committed(broker) == (MOVED, [])
    assert await commit(broker, 8) is MOVED


async def test_a_read_that_is_overtaken_is_dropped(broker: Broker) -> None:
    coordination(broker).on_elected(led(broker, OFFSETS_TOPIC))
    coordination(broker).on_elected(led(broker, TRANSACTIONS_TOPIC))
    coordination(broker).on_resigned(OFFSETS_TOPIC, 0)
    await all_read(broker)

    assert await committed(broker) == (MOVED, [])


async def test_transactional_ids_are_refused_until_they_are_read(broker: Broker) -> None:
    coordination(broker).on_elected(led(broker, TRANSACTIONS_TOPIC))

    refused, listed = await described(broker), await ask(broker, ListTransactionsRequest())
    await all_read(broker)
    known = await described(broker)
    coordination(broker).on_resigned(TRANSACTIONS_TOPIC, 0)

    assert (refused.error_code, listed.error_code) == (LOADING, LOADING)
    assert (known.error_code, known.transaction_state) == (ErrorCode.NONE, "Empty")
    assert (await described(broker)).error_code == MOVED


async def test_a_partition_that_cannot_be_read_is_tried_again(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.core_log.broker.coordination.LOAD_RETRY_S", 0.01)
    partition = led(broker, OFFSETS_TOPIC)
    attempts: list[int] = []

    def batches(offset: int) -> Any:
        attempts.append(offset)
        if len(attempts) < 3:
            raise CorruptLog("a batch is damaged")
        return whole(offset)

    whole = partition.log.batches
    monkeypatch.setattr(type(partition.log), "batches", lambda self, offset: batches(offset))
    coordination(broker).on_elected(partition)
    await all_read(broker)

    assert len(attempts) == 3
    assert await committed(broker) == (ErrorCode.NONE, [7])
