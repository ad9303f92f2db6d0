"""What the disk failed comes back by itself once the disk is well, with all that was promised."""

import asyncio
import errno
import os
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.core_log.broker.batch_validation import append_batch
from headwater.core_log.broker.broker import Broker
from headwater.core_log.broker.lifecycle import PartitionRecovery
from headwater.core_log.groups.transactions import VERSION_1, VERSION_2
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from headwater.core_log.records.batch_header import BatchHeader
from headwater.core_log.replication.metadata import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from tests.builders import Sequenced, batch
from tests.core_log.broker.failing_disk import Life
from tests.core_log.broker.in_memory import ask, create, fill, started
from tests.fakes import FaultyFiles, MemoryFiles

HISTORIES = max(20, settings().max_examples // 4)


async def history(seed: int) -> None:
    random, memory = Random(seed), MemoryFiles()
    files = FaultyFiles(memory)
    broker = await started(files, internal_partitions=1)
    await create(broker, "t", partitions=2, segment_bytes=str(random.choice([1 << 14, 1 << 20])))
    for name in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC):
        await broker.create_unknown(name, may_create=False)
    life = Life(broker, files, random)
    for _ in range(random.randrange(5, 60)):
        await life.step()

    await life.heal()

    life.check(broker)
    after = await started(memory.after_power_cut(random), internal_partitions=1)
    assert not after.unserved
    life.check(after)
    await after.close()
    await broker.close()


@pytest.mark.simulation
@settings(max_examples=HISTORIES)
@given(seed=st.integers(0, 2**32))
def test_a_partition_comes_back_with_all_acknowledged_records_whatever_the_disk_fails(
    seed: int,
) -> None:
    asyncio.run(history(seed))


async def delete(broker: Broker, name: str) -> ErrorCode:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)])
    return ErrorCode((await ask(broker, request)).responses[0].error_code)


@pytest.mark.parametrize("damaged", ["t-0", "__transaction_state-0", "__consumer_offsets-0"])
async def test_a_damaged_partition_keeps_no_other_from_being_served(damaged: str) -> None:
    memory = MemoryFiles()
    broker = await started(memory, internal_partitions=2)
    for name in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC):
        await broker.create_unknown(name, may_create=False)
    await create(broker, "t", partitions=2)
    topic, _, _ = damaged.rpartition("-")
    for name, index in {("t", 0), ("t", 1), (topic, 0)}:
        await fill(broker, name, 3, index=index)
    memory.files[Path(f"/data/log/{damaged}/{0:020d}.log")].flip_bit(30)
    memory.after_kill()

    after = await started(memory, internal_partitions=2)

    everything = {(each.name, index) for each in after.image.topics.values() for index in (0, 1)}
    assert {at for at in everything if after.find_led(*at) is None} == {(topic, 0)}
    assert after.why_not_led(topic, 0) is ErrorCode.KAFKA_STORAGE_ERROR
    [(offline, reason)] = after.offline.items()
    assert offline == (topic, 0) and "recovery point" in reason
    await fill(after, "t", 1, index=1)
    assert (await create(after, "u")).error_code == ErrorCode.NONE
    if topic == "t":
        assert await delete(after, "t") is ErrorCode.NONE
        assert (await create(after, "t")).error_code == ErrorCode.NONE
        await fill(after, "t", 1)
    await after.close()


class NoRoom:
    """Nothing can be written until the reserve is given back, and then very little."""

    def __init__(self) -> None:
        self.room = 0

    def __call__(self, operation: str, path: Path) -> None:
        if operation == "remove" and path.name == "reserve":
            self.room += 2
        if operation in {"write", "create", "replace"} and path.name != "reserve":
            self.room -= 1
            if self.room < 0:
                self.room = 0
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


async def test_a_topic_can_be_deleted_on_a_full_disk() -> None:
    files = FaultyFiles(MemoryFiles())
    broker = await started(files)
    await create(broker, "t", partitions=2)
    broker.store.keep_reserve()
    files.fault = NoRoom()
    assert (await create(broker, "u")).error_code == ErrorCode.KAFKA_STORAGE_ERROR

    code = await delete(broker, "t")

    assert code is ErrorCode.NONE and broker.image.topic("t") is None
    files.heal()
    await broker.close()
    assert [name for name in files.names(broker.store.log_directory) if name[:2] == "t-"] == []


class OneFailedSync:
    """Of one partition's files; nothing that was written is lost by it."""

    def __init__(self, name: str) -> None:
        self._name, self.is_over = name, False

    def __call__(self, operation: str, path: Path) -> None:
        if operation == "sync" and path.parent.name == self._name and not self.is_over:
            self.is_over = True
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))


@pytest.mark.parametrize("failing", ["t-0", "__transaction_state-0"])
@pytest.mark.parametrize("version", [VERSION_1, VERSION_2])
async def test_a_commit_is_granted_once_the_disk_has_all_that_was_written(
    failing: str, version: int
) -> None:
    files = FaultyFiles(MemoryFiles())
    broker = await started(files, internal_partitions=1)
    await create(broker, "t")
    await broker.create_unknown(TRANSACTIONS_TOPIC, may_create=False)
    transactions = broker.transactions
    producer = (await transactions.init_producer_id("id", timeout_ms=60_000)).producer
    at = TopicPartition("t", 0)
    await transactions.add_partitions("id", producer, [at], version=version)
    partition = broker.find_led(*at)
    assert partition is not None
    data = batch(b"v", producer=Sequenced(*producer, 0, True), timestamp_ms=1_000)
    header = BatchHeader.read(data)
    append_batch(partition, memoryview(data), header, now_ms=1_000, is_urgent=False)
    files.fault = OneFailedSync(failing)

    refused = await transactions.end("id", producer, commit=True, version=version)
    offline = list(broker.offline)
    await PartitionRecovery(broker).recover(broker.clock.now_ms())
    await transactions.tick(broker.clock.now_ms() + 1_000)
    granted = await transactions.end("id", producer, commit=True, version=version)

    assert refused.error is ErrorCode.COORDINATOR_NOT_AVAILABLE and len(offline) == 1
    assert granted.error is ErrorCode.NONE and not broker.unserved
    assert granted.producer == (producer.producer_id, producer.epoch + (version == VERSION_2))
    partition = broker.find_led(*at)
    assert partition is not None and not partition.log.find_aborted(0, partition.log.end_offset)
    assert partition.last_stable_offset == 2
    await broker.close()
