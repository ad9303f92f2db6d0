"""A reader that passed a marker which a power cut took is not told that its place is lost."""

from random import Random

import pytest

from headwater.core_log.broker.broker import Broker
from headwater.core_log.broker.partition import Partition
from headwater.core_log.groups.transactions import VERSION_2, ProducerIdentity
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.records.batch_header import BatchHeader
from tests.builders import Sequenced, batch
from tests.core_log.broker.in_memory import started
from tests.fakes import MemoryFiles

PARTITION = TopicPartition("t", 0)


def led(broker: Broker) -> Partition:
    partition = broker.find_led(*PARTITION)
    assert partition is not None
    return partition


async def commit_one(broker: Broker, producer: ProducerIdentity) -> ProducerIdentity:
    """A transaction of one record; who the producer is afterwards."""
    transactions = broker.transactions
    verdicts = await transactions.verify_or_add("w", *producer, [PARTITION], may_add=True)
    assert verdicts[PARTITION] == ErrorCode.NONE
    data = batch("a", producer=Sequenced(*producer, 0, is_transactional=True))
    partition = led(broker)
    partition.log.append(
        memoryview(data), BatchHeader.read(data), leader_epoch=partition.leader_epoch, now_ms=1
    )
    partition.on_written(is_urgent=False)
    ended = await transactions.end("w", producer, commit=True, version=VERSION_2)
    assert ended.error == ErrorCode.NONE
    return ended.producer


@pytest.mark.parametrize("seed", range(30))
async def test_an_epoch_ends_no_earlier_than_readers_of_it_have_been(seed: int) -> None:
    files = MemoryFiles()
    broker = await started(files, internal_partitions=1)
    for name in ("t", "__transaction_state"):
        await broker.create_unknown(name, may_create=True)
    producer = (await broker.transactions.init_producer_id("w", timeout_ms=1000)).producer
    for _ in range(3):
        producer = await commit_one(broker, producer)
    reached, epoch = led(broker).high_watermark, led(broker).leader_epoch
    assert reached == 6

    after = await started(files.after_power_cut(Random(seed)), internal_partitions=1)

    assert led(after).leader_epoch > epoch
    assert led(after).log.epochs.end_offset_for(epoch) == (epoch, reached)
    assert led(after).high_watermark >= reached
    await after.close()
    await broker.close()
