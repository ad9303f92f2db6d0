"""A commit costs two disk rounds, is answered after the second, and survives whoever gives up."""

import asyncio

import pytest

from headwater.core_log.foundation.errors import StorageFailed
from headwater.core_log.groups.transaction_coordinator import NO_PRODUCER
from headwater.core_log.groups.transactions import VERSION_1, VERSION_2, ProducerIdentity
from headwater.core_log.protocol.error_codes import ErrorCode
from tests.core_log.groups.recorded_coordinator import LIMITS, T0, T1, TIMEOUT_MS, Broker


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_commit_takes_two_disk_rounds(broker: Broker) -> None:
    producer = await broker.begin()

    error, following = await broker.end(producer)

    assert error is ErrorCode.NONE
    assert following == ProducerIdentity(producer.producer_id, producer.epoch + 1)
    assert broker.events == ["sync [0, 1]", "decision on disk", "commit"]
    assert len(broker.read()) == 2


async def test_the_next_transaction_begins_without_a_disk_round(broker: Broker) -> None:
    _, following = await broker.end(await broker.begin())
    broker.events.clear()

    verdicts = await broker.coordinator.verify_or_add("id", *following, [T0], may_add=True)
    begun = list(broker.events)
    error, _ = await broker.end(following)

    assert verdicts == {T0: ErrorCode.NONE}
    assert begun == []
    assert error is ErrorCode.NONE
    assert broker.events == ["sync [0, 1]", "decision on disk", "commit"]


async def test_a_client_of_version_1_has_its_next_transaction_recorded_first(
    broker: Broker,
) -> None:
    producer = await broker.begin()
    await broker.end(producer, version=VERSION_1)
    broker.events.clear()

    error = await broker.coordinator.add_partitions("id", producer, [T0], version=VERSION_1)

    assert error is ErrorCode.NONE
    assert broker.events == ["sync [0, 1]", "decision on disk"]


async def test_an_abort_does_not_wait_for_the_data(broker: Broker) -> None:
    producer = await broker.begin()

    error, _ = await broker.end(producer, commit=False)

    assert error is ErrorCode.NONE
    assert broker.events == ["decision on disk", "abort"]
    assert broker.read() == []


async def test_requests_beside_one_that_decides_are_told_to_wait(broker: Broker) -> None:
    producer = await broker.begin()
    broker.log.is_free.clear()
    ending = asyncio.ensure_future(broker.end(producer))
    await turns()

    twice, _ = await broker.end(producer)
    added = await broker.coordinator.add_partitions("id", producer, [T0], version=VERSION_2)
    begun = await broker.coordinator.init_producer_id("id", timeout_ms=TIMEOUT_MS)
    was_early = ending.done()
    broker.log.is_free.set()

    assert (twice, added) == (ErrorCode.CONCURRENT_TRANSACTIONS,) * 2
    assert begun == (ErrorCode.CONCURRENT_TRANSACTIONS, NO_PRODUCER)
    assert not was_early
    assert (await ending)[0] is ErrorCode.NONE


async def test_a_commit_that_finds_no_disk_decides_nothing(broker: Broker) -> None:
    producer = await broker.begin()
    broker.partitions.fails_now = True

    refused, _ = await broker.end(producer)
    broker.partitions.fails_now = False
    granted, _ = await broker.end(producer)

    assert refused is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert granted is ErrorCode.NONE
    assert len(broker.read()) == 2


async def test_a_decision_that_is_not_known_to_be_on_disk_waits_for_its_fate(
    broker: Broker,
) -> None:
    producer = await broker.begin()
    broker.log.fails_now = True

    refused, _ = await broker.end(producer)
    other_way, _ = await broker.end(producer, commit=False)
    broker.log.fails_now = False
    await broker.later(LIMITS.retry_ms)

    assert refused is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert other_way is ErrorCode.CONCURRENT_TRANSACTIONS
    assert len(broker.read()) == 2
    assert (await broker.end(producer))[0] is ErrorCode.NONE


async def test_a_client_that_gives_up_does_not_hold_up_its_transaction(broker: Broker) -> None:
    producer = await broker.begin()
    broker.log.is_free.clear()
    ending = asyncio.ensure_future(broker.end(producer))
    await turns()

    ending.cancel()
    await turns()
    broker.log.is_free.set()
    await broker.later(LIMITS.retry_ms)

    assert len(broker.read()) == 2
    assert (await broker.end(producer))[0] is ErrorCode.NONE


async def test_a_marker_that_cannot_be_written_is_tried_again(broker: Broker) -> None:
    producer = await broker.begin()
    broker.partitions.refused = {T1}

    error, following = await broker.end(producer)
    seen = broker.read()
    early, _ = await broker.coordinator.init_producer_id("id", timeout_ms=TIMEOUT_MS)
    begun = await broker.coordinator.verify_or_add("id", *following, [T1], may_add=True)
    broker.partitions.refused = set()
    await broker.later(LIMITS.retry_ms)

    assert (error, len(seen)) == (ErrorCode.NONE, 1)
    assert early is ErrorCode.CONCURRENT_TRANSACTIONS
    assert begun == {T1: ErrorCode.CONCURRENT_TRANSACTIONS}
    assert len(broker.read()) == 2


@pytest.mark.parametrize("version", [VERSION_1, VERSION_2])
async def test_a_transaction_that_a_failed_disk_may_have_lost_can_only_be_aborted(
    broker: Broker, version: int
) -> None:
    producer = await broker.begin()
    broker.world.data[T0].entries.clear()

    await broker.coordinator.on_partition_reopened(T0, [], is_whole=False)
    await broker.later(LIMITS.save_after_ms)
    written = await broker.coordinator.verify_or_add("id", *producer, [T0], may_add=False)
    added = await broker.coordinator.add_partitions("id", producer, [T0], version=version)
    lost, _ = await broker.end(producer, version=version)
    aborted, following = await broker.end(producer, commit=False, version=version)

    abortable = ErrorCode.TRANSACTION_ABORTABLE
    assert (written, added, lost) == ({T0: abortable}, abortable, abortable)
    assert aborted is ErrorCode.NONE
    assert broker.world.open_transactions() == {T0: [], T1: []}
    assert broker.read() == []
    assert following.epoch == producer.epoch + (version == VERSION_2)
    await broker.begin(following)
    assert (await broker.end(following, version=version))[0] is ErrorCode.NONE


async def test_a_stop_is_not_clean_while_a_transaction_may_have_lost_of_itself(
    broker: Broker,
) -> None:
    producer = await broker.begin()
    broker.world.data[T0].entries.clear()
    await broker.coordinator.on_partition_reopened(T0, [], is_whole=False)

    with pytest.raises(StorageFailed):
        await broker.coordinator.drain()
    await broker.start(was_clean=False)

    assert (await broker.end(producer))[0] is ErrorCode.TRANSACTION_ABORTABLE
    assert broker.world.open_transactions() == {T0: [], T1: []}


async def test_a_marker_that_a_failed_disk_lost_is_written_again(broker: Broker) -> None:
    producer = await broker.begin()
    await broker.end(producer)
    del broker.world.data[T0].entries[-1]

    await broker.coordinator.on_partition_reopened(T0, [producer], is_whole=False)

    assert len(broker.read()) == 2
