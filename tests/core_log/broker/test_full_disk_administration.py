"""On a full disk nothing is half done for good: what was answered holds, and the rest heals."""

import errno
import os
from pathlib import Path
from random import Random

import pytest

from headwater.core_log.broker.lifecycle import PartitionRecovery
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tests.core_log.broker.in_memory import ask, started
from tests.fakes import FaultyFiles, MemoryFiles

TAKING_ROOM = {"write", "create", "replace"}


class FullDisk:
    """Has room for some more operations, then for none; truncating and syncing go on working."""

    def __init__(self, room: int) -> None:
        self.room = room

    def __call__(self, operation: str, path: Path) -> None:
        if operation in TAKING_ROOM:
            self.room -= 1
            if self.room < 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


@pytest.mark.parametrize("room", range(24))
async def test_a_topic_made_on_a_full_disk_is_whole_once_there_is_room(room: int) -> None:
    files = FaultyFiles(MemoryFiles())
    broker = await started(files)
    topics = [CreatableTopic(name="t", num_partitions=2, replication_factor=1)]

    files.fault = FullDisk(room)
    first = await ask(broker, CreateTopicsRequest(topics=topics))
    is_known = broker.image.topic("t") is not None
    missing = [index for index in range(2) if broker.find_led("t", index) is None]
    codes = {broker.why_not_led("t", index) for index in missing}
    files.heal()
    second = await ask(broker, CreateTopicsRequest(topics=topics))
    await PartitionRecovery(broker).recover(broker.clock.now_ms())

    if first.topics[0].error_code == ErrorCode.NONE:
        assert is_known and not missing
    else:
        assert first.topics[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert not is_known or codes == {ErrorCode.KAFKA_STORAGE_ERROR}
    already = ErrorCode.TOPIC_ALREADY_EXISTS if is_known else ErrorCode.NONE
    assert second.topics[0].error_code == already
    for index in range(2):
        partition = broker.find_led("t", index)
        assert partition is not None and not partition.is_offline
    await broker.close()


@pytest.mark.parametrize("room", range(0, 24, 3))
async def test_a_broker_started_after_a_full_disk_knows_what_was_answered(room: int) -> None:
    memory = MemoryFiles()
    files = FaultyFiles(memory)
    broker = await started(files)
    topics = [CreatableTopic(name="t", num_partitions=2, replication_factor=1)]
    files.fault = FullDisk(room)
    answer = await ask(broker, CreateTopicsRequest(topics=topics))

    after = await started(memory.after_power_cut(Random(room)))

    if answer.topics[0].error_code == ErrorCode.NONE:
        assert [after.find_led("t", index) is not None for index in range(2)] == [True, True]
    await after.close()
    files.heal()
    await broker.close()
