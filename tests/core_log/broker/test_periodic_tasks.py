"""Housekeeping goes on after whatever stood in its way."""

import asyncio
import errno
from pathlib import Path

import pytest

from headwater.core_log.broker.broker import Broker
from headwater.core_log.broker.lifecycle import PeriodicTasks, RunningBroker
from headwater.core_log.broker.log_cleaner import LogCleaner
from headwater.core_log.broker.partition import Partition, Reach, read_line
from headwater.core_log.foundation.errors import StorageFailed
from headwater.core_log.foundation.settings import BrokerSettings
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.fetch_frames import FetchPart
from headwater.core_log.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from headwater.core_log.storage.compaction import CompactionRequest, CompactionResult
from tests.builders import START_MS, Sequenced, append
from tests.core_log.broker.in_memory import ask, create, started
from tests.fakes import FaultyFiles, MemoryFiles, SimulatedClock

SEGMENT = "00000000000000000000"


async def test_compaction_is_tried_again_after_the_system_had_no_file_to_give(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    came_again, attempts = asyncio.Event(), 0

    async def clean(now_ms: int) -> None:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            raise OSError(24, "too many open files")
        came_again.set()

    monkeypatch.setattr(
        "headwater.core_log.broker.log_cleaner.LogCleaner.clean_what_is_due",
        lambda _, now: clean(now),
    )
    settings = BrokerSettings(data=tmp_path, listen="127.0.0.1:0", housekeeping_interval_ms=10)
    running = await RunningBroker.start(settings)

    await came_again.wait()

    await running.stop()


def led(broker: Broker, topic: str) -> Partition:
    partition = broker.find_led(topic, 0)
    assert partition is not None
    return partition


async def reopened(files: FaultyFiles, **config: str) -> Broker:
    """A broker that has read nothing yet of the closed segments of its topics `first` and
    `second`. Each begins with an aborted transaction."""
    broker = await started(files, clock=SimulatedClock(START_MS))
    for topic in ("first", "second"):
        await create(broker, topic, 1, **config)
        log = led(broker, topic).log
        append(log, "aborted", producer=Sequenced(7, is_transactional=True))
        log.append_marker(7, 0, commit=False, coordinator_epoch=0, leader_epoch=0, now_ms=START_MS)
        for _ in range(3):
            log.roll()
            append(log, "value")
        led(broker, topic).on_written(is_urgent=True)
        await led(broker, topic).wait_committed(log.end_offset)
    await broker.close()
    return await started(files, clock=SimulatedClock(START_MS + 10_000))


def unreadable(files: FaultyFiles, name: str) -> None:
    def fail(operation: str, path: Path) -> None:
        if operation == "read" and path.parent.name == "first-0" and path.name == name:
            raise OSError(errno.EIO, "Input/output error")

    files.fault = fail


async def test_a_closed_segment_that_cannot_be_read_keeps_no_other_partition_from_retention() -> (
    None
):
    files = FaultyFiles(MemoryFiles())
    broker = await reopened(files, retention_ms="1000")
    unreadable(files, f"{SEGMENT}.log")

    await PeriodicTasks(broker).tidy(broker.clock.now_ms())

    assert led(broker, "first").log.start_offset == 0
    assert led(broker, "second").log.start_offset == led(broker, "second").log.end_offset
    await broker.close()


@pytest.mark.parametrize("is_damaged", [False, True])
async def test_a_closed_segment_that_cannot_be_read_keeps_no_other_partition_from_compaction(
    is_damaged: bool,
) -> None:
    memory = MemoryFiles()
    files = FaultyFiles(memory)
    broker = await reopened(files, cleanup_policy="compact")
    if is_damaged:
        memory.open(Path(f"/data/log/first-0/{SEGMENT}.log")).write(0, b"\xff" * 61)
    else:
        unreadable(files, f"{SEGMENT}.log")
    asked: list[str] = []

    async def compact(request: CompactionRequest) -> CompactionResult:
        asked.append(Path(request.directory).name)
        raise StorageFailed("only asked")

    await LogCleaner(broker, compact).clean_what_is_due(broker.clock.now_ms())

    assert asked == ["second-0"]
    await broker.close()


async def test_a_file_that_cannot_be_read_is_an_answer() -> None:
    files = FaultyFiles(MemoryFiles())
    broker = await reopened(files)
    topics = tuple(
        ListOffsetsTopic(
            name=name,
            partitions=(ListOffsetsPartition(partition_index=0, timestamp=START_MS - 1),),
        )
        for name in ("first", "second")
    )

    unreadable(files, f"{SEGMENT}.txnindex")
    lines = [
        read_line(
            led(broker, topic),
            FetchPart(topic, 0, -1, 0, -1, -1, 1_000),
            reach=Reach.STABLE,
            bytes_max=1_000,
            at_least_one=True,
        )
        for topic in ("first", "second")
    ]
    unreadable(files, f"{SEGMENT}.log")
    led(broker, "first").log.segments.first.release()
    listed = await ask(broker, ListOffsetsRequest(replica_id=-1, topics=topics))

    failed = ErrorCode.KAFKA_STORAGE_ERROR
    assert [line.error_code for line in lines] == [failed, 0]
    assert lines[1].aborted == [(7, 0)]
    assert [each.partitions[0].error_code for each in listed.topics] == [failed, 0]
    await broker.close()
