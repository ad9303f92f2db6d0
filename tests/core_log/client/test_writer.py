"""A writer never goes on when it cannot know how its last transaction ended."""

import asyncio
from typing import Any

import pytest

from headwater.core_log.foundation.errors import Fenced, LogUnavailable
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from headwater.core_log.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from headwater.core_log.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from headwater.core_log.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from headwater.core_log.records.batch_header import Batch, BatchHeader
from headwater.core_log.records.record_codec import PlainRecord, encode_batch
from tests.core_log.client.scripted_cluster import NEVER, ScriptedCluster

ORDERS = TopicPartition("orders", 0)


def batch() -> Batch:
    return Batch(bytearray(encode_batch([PlainRecord(b"k", b"v", timestamp_ms=1)])), 1)


class Script:
    """A coordinator and a leader that do as they are told, and remember what they were sent."""

    def __init__(self, *, version: int = 2) -> None:
        self.cluster = ScriptedCluster(transaction_version=version)
        self.cluster.leaders["orders"] = 1
        self.cluster.versions[ProduceRequest.api_key] = (3, 12)  # in which topics have names
        self.version, self.epoch = version, -1
        self.sent: list[tuple[int, int]] = []  # epoch and sequence of every batch
        self.produce_code = self.end_code = self.init_code = ErrorCode.NONE
        self.is_silent, self.has_sent = False, asyncio.Event()
        for kind, handler in (
            (InitProducerIdRequest, self._init),
            (AddPartitionsToTxnRequest, self._add),
            (EndTxnRequest, self._end),
            (ProduceRequest, self._produce),
        ):
            self.cluster.on(kind, handler)

    def _init(self, node: int, request: InitProducerIdRequest) -> Any:
        if self.init_code is not ErrorCode.NONE:
            return InitProducerIdResponse(error_code=self.init_code)
        self.epoch += 1
        return InitProducerIdResponse(producer_id=5, producer_epoch=self.epoch)

    def _add(self, node: int, request: AddPartitionsToTxnRequest) -> Any:
        part = AddPartitionsToTxnPartitionResult(partition_index=0)
        topic = AddPartitionsToTxnTopicResult(name="orders", results_by_partition=[part])
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[topic])

    def _end(self, node: int, request: EndTxnRequest) -> Any:
        if self.is_silent:
            return NEVER
        if self.end_code is not ErrorCode.NONE:
            return EndTxnResponse(error_code=self.end_code)
        if self.version < 2:
            return EndTxnResponse()
        self.epoch += 1
        return EndTxnResponse(producer_id=5, producer_epoch=self.epoch)

    def _produce(self, node: int, request: ProduceRequest) -> Any:
        records = request.topic_data[0].partition_data[0].records
        assert records is not None, "a writer sends records"
        header = BatchHeader.read(records)
        self.sent.append((header.producer_epoch, header.base_sequence))
        self.has_sent.set()
        part = PartitionProduceResponse(error_code=self.produce_code)
        topic = TopicProduceResponse(name="orders", partition_responses=[part])
        return ProduceResponse(responses=[topic])

    def ends(self) -> list[bool]:
        return [request.committed for _, request in self.cluster.requests(EndTxnRequest)]


async def test_a_transaction_of_version_2_has_an_epoch_of_its_own() -> None:
    script = Script()
    writer = await script.cluster.log().writer("writer")

    for _ in range(2):
        async with writer.transaction() as transaction:
            await transaction.append(ORDERS, batch())
            await transaction.append(ORDERS, batch())

    assert script.sent == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert script.ends() == [True, True]
    assert script.cluster.requests(AddPartitionsToTxnRequest) == []


async def test_a_transaction_of_version_1_keeps_the_epoch_and_announces_partitions_once() -> None:
    script = Script(version=1)
    writer = await script.cluster.log().writer("writer")

    for _ in range(2):
        async with writer.transaction() as transaction:
            await transaction.append(ORDERS, batch())
            await transaction.append(ORDERS, batch())

    assert script.sent == [(0, 0), (0, 1), (0, 2), (0, 3)]
    assert len(script.cluster.requests(AddPartitionsToTxnRequest)) == 2


async def test_an_uncertain_sequence_of_version_1_is_not_used_again() -> None:
    script = Script(version=1)
    writer = await script.cluster.log().writer("writer")

    script.produce_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(Exception, match="not allowed"):
        await writer.append(ORDERS, batch())
    script.produce_code = ErrorCode.NONE
    await writer.append(ORDERS, batch())

    assert script.ends() == [False, True]
    assert script.sent == [(0, 0), (1, 0)]
    renewal = script.cluster.requests(InitProducerIdRequest)[-1][1]
    assert (renewal.producer_id, renewal.producer_epoch) == (5, 0)


async def test_a_writer_is_of_no_use_after_an_unanswered_commit() -> None:
    script = Script()
    log = script.cluster.log(request_wait_ms_max=20, retry_for_ms=40)
    writer = await log.writer("writer")
    script.is_silent = True

    with pytest.raises(LogUnavailable):
        await writer.append(ORDERS, batch())
    script.is_silent = False

    with pytest.raises(LogUnavailable, match="outcome of the last transaction is unknown"):
        await writer.append(ORDERS, batch())
    assert set(script.ends()) == {True}  # it is not aborted either: it may be committed already


async def test_a_writer_is_of_no_use_after_an_abort_that_failed() -> None:
    script = Script()
    log = script.cluster.log(request_wait_ms_max=20, abort_for_ms=40)
    writer = await log.writer("writer")
    script.is_silent = True

    with pytest.raises(KeyError):
        async with writer.transaction() as transaction:
            await transaction.append(ORDERS, batch())
            raise KeyError
    script.is_silent = False

    with pytest.raises(LogUnavailable, match="could not be aborted"):
        await writer.append(ORDERS, batch())


async def test_a_cancelled_transaction_is_aborted() -> None:
    script = Script()
    writer = await script.cluster.log().writer("writer")

    async def write() -> None:
        async with writer.transaction() as transaction:
            await transaction.append(ORDERS, batch())
            await asyncio.Event().wait()

    writing = asyncio.ensure_future(write())
    await script.has_sent.wait()
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing

    assert script.ends() == [False]
    await writer.append(ORDERS, batch())
    assert script.sent == [(0, 0), (1, 0)]


async def test_a_writer_is_fenced_only_by_a_newer_one() -> None:
    script = Script()
    writer = await script.cluster.log().writer("writer")

    script.produce_code = ErrorCode.INVALID_PRODUCER_EPOCH
    with pytest.raises(LogUnavailable, match="aborted the transaction"):
        await writer.append(ORDERS, batch())
    script.init_code = ErrorCode.PRODUCER_FENCED
    with pytest.raises(Fenced):
        await writer.append(ORDERS, batch())
    script.produce_code = ErrorCode.NONE

    with pytest.raises(Fenced):
        await writer.append(ORDERS, batch())


async def test_a_fence_is_told_from_among_the_failures_of_appends_side_by_side() -> None:
    script = Script()
    writer = await script.cluster.log().writer("writer")
    script.produce_code, script.init_code = (
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
    )

    with pytest.raises(Fenced):
        async with writer.transaction() as transaction, asyncio.TaskGroup() as appends:
            for _ in range(3):
                appends.create_task(transaction.append(ORDERS, batch()))


async def test_another_writers_fence_only_aborts_this_ones_transaction() -> None:
    script = Script()
    writer = await script.cluster.log().writer("writer")

    with pytest.raises(Fenced, match="somebody else"):
        async with writer.transaction() as transaction:
            await transaction.append(ORDERS, batch())
            raise Fenced("somebody else")

    assert script.ends() == [False]
    await writer.append(ORDERS, batch())


async def test_a_writer_that_is_fenced_while_it_aborts_stays_fenced() -> None:
    script = Script()
    writer = await script.cluster.log().writer("writer")

    with pytest.raises(KeyError):
        async with writer.transaction() as transaction:
            await transaction.append(ORDERS, batch())
            script.end_code = script.init_code = ErrorCode.PRODUCER_FENCED
            raise KeyError

    with pytest.raises(Fenced):
        await writer.append(ORDERS, batch())


async def test_a_transaction_without_steps_is_not_told_to_anybody() -> None:
    script = Script()
    writer = await script.cluster.log().writer("writer")

    async with writer.transaction():
        pass

    assert script.ends() == []


async def test_a_step_that_was_not_awaited_spoils_its_transaction() -> None:
    script = Script()
    writer = await script.cluster.log().writer("writer")

    with pytest.raises(Exception, match="aborted"):
        async with writer.transaction() as transaction:
            late = asyncio.ensure_future(transaction.append(ORDERS, batch()))
            await asyncio.sleep(0)
    await asyncio.gather(late, return_exceptions=True)

    assert script.ends() == [False]
