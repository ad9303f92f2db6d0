"""The second broker finds a log whose transactions need no short cuts any more."""

import asyncio
from random import Random
from uuid import uuid4

import pytest

from headwater.core_log.broker.broker import Broker
from headwater.core_log.groups.transactions import VERSION_2, ProducerIdentity
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.records.batch_header import BatchHeader
from tests.builders import Sequenced, batch, values_of
from tests.core_log.broker.in_memory import started
from tests.core_log.broker.test_epochs_after_power_cuts import PARTITION, commit_one, led
from tests.fakes import MemoryFiles

SEEDS = 10


async def begin(broker: Broker, producer: ProducerIdentity) -> None:
    """Its beginning is in memory only, and its record was not synced when it was answered."""
    verdicts = broker.transactions.verify_or_add_at_once("w", *producer, [PARTITION], may_add=True)
    assert verdicts == {PARTITION: ErrorCode.NONE}
    data = batch("open", producer=Sequenced(*producer, 0, is_transactional=True))
    partition = led(broker)
    partition.log.append(
        memoryview(data), BatchHeader.read(data), leader_epoch=partition.leader_epoch, now_ms=1
    )
    partition.on_written(is_urgent=False)


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_an_open_transaction_survives_a_power_cut_from_the_second_broker_on(
    seed: int,
) -> None:
    files = MemoryFiles()
    broker = await started(files, internal_partitions=1)
    for name in ("t", "__transaction_state"):
        await broker.create_unknown(name, may_create=True)
    producer = (await broker.transactions.init_producer_id("w", timeout_ms=60_000)).producer
    producer = await commit_one(broker, producer)
    await begin(broker, producer)

    await broker.end_short_cuts()
    await broker.metadata.change(
        lambda: broker.controller.register_broker(2, uuid4(), host="h", port=1)
    )
    after = await started(files.after_power_cut(Random(seed)), internal_partitions=1)
    assert after.coordination is not None
    await asyncio.gather(*after.coordination._loads.values())
    ended = await after.transactions.end("w", producer, commit=True, version=VERSION_2)

    assert ended.error is ErrorCode.NONE
    assert [value for _, value in values_of(led(after).log)] == [b"a", b"open"]
    assert led(after).last_stable_offset == led(after).log.end_offset == 4
    await after.close()
    await broker.close()
