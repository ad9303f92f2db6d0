"""After a failed sync nothing more is acknowledged there; everywhere else life goes on."""

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from headwater.core_log.broker.lifecycle import RunningBroker
from headwater.core_log.client import KafkaLog, KafkaSettings
from headwater.core_log.foundation.errors import HeadwaterError
from headwater.core_log.foundation.settings import BrokerSettings, TopicSettings
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.storage.files import OsFiles
from tests.builders import batch
from tests.contract.records import batch_of
from tests.crash.plain_client import LATEST, Wire
from tests.fakes import FaultyFiles

T = TypeVar("T")
FAR_MS = 1 << 50
"""Long after every pause between two tries."""
STORAGE = ErrorCode.KAFKA_STORAGE_ERROR


class BrokenDisk:
    """Fails every sync of files below directories of that name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, operation: str, path: Path) -> None:
        if operation == "sync" and path.parent.name.startswith(self.name):
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))


@asynccontextmanager
async def running(data: Path, files: FaultyFiles) -> AsyncIterator[RunningBroker]:
    settings = BrokerSettings(data=data, listen="127.0.0.1:0", internal_partitions=1)
    broker = await RunningBroker.start(settings, files=files)
    try:
        yield broker
    finally:
        await broker.stop()


async def with_wire(broker: RunningBroker, work: Callable[[Wire], T]) -> T:
    def connected() -> T:
        with Wire(broker.server.address, answer_s_max=10) as wire:
            return work(wire)

    return await asyncio.to_thread(connected)


def values(wire: Wire, index: int) -> list[bytes | None]:
    read = wire.fetch("t", {index: 0}, committed=False)[index]
    return [record.value for each in read.batches for record in each.records]


async def test_a_partition_whose_sync_failed_acknowledges_nothing_until_it_is_reopened(
    tmp_path: Path,
) -> None:
    files = FaultyFiles(OsFiles())
    async with running(tmp_path, files) as broker:

        def before(wire: Wire) -> None:
            assert wire.create_topic("t", 2, {}) == ErrorCode.NONE
            placed = wire.produce("t", {0: bytes(batch("kept")), 1: bytes(batch("other"))})
            assert {each.error_code for each in placed.values()} == {ErrorCode.NONE}

        def broken(wire: Wire) -> None:
            both = {0: bytes(batch("lost")), 1: bytes(batch("more"))}
            placed = wire.produce("t", both)
            assert (placed[0].error_code, placed[1].error_code) == (STORAGE, ErrorCode.NONE)
            for acks in (-1, 1):
                placed = wire.produce("t", {0: bytes(batch("late"))}, acks=acks)
                assert placed[0].error_code == STORAGE

        def healed(wire: Wire) -> None:
            assert values(wire, 0)[0] == b"kept" and b"late" not in values(wire, 0)
            assert wire.produce("t", {0: bytes(batch("healed"))})[0].error_code == ErrorCode.NONE
            assert values(wire, 1) == [b"other", b"more"]

        await with_wire(broker, before)
        files.fault = BrokenDisk("t-0")
        await with_wire(broker, broken)
        files.heal()
        await broker.housekeeping.recovery.recover(FAR_MS)
        await with_wire(broker, healed)

    async with running(tmp_path, FaultyFiles(OsFiles())) as broker:

        def after(wire: Wire) -> None:
            assert values(wire, 0)[0] == b"kept" and values(wire, 0)[-1] == b"healed"
            assert b"late" not in values(wire, 0)
            assert values(wire, 1) == [b"other", b"more"]
            assert wire.produce("t", {0: bytes(batch("anew"))})[0].error_code == ErrorCode.NONE

        await with_wire(broker, after)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["t-0", "__transaction_state", "__consumer_offsets"])
async def test_a_transaction_that_meets_a_broken_disk_is_whole_or_absent_afterwards(
    tmp_path: Path, name: str
) -> None:
    files, parts = FaultyFiles(OsFiles()), [TopicPartition("t", index) for index in range(2)]
    async with running(tmp_path, files) as broker:
        log = connect(broker)
        await log.ensure_topic(TopicSettings(name="t", partitions=2))
        writer = await log.writer("w")
        async with writer.transaction() as transaction:
            for part in parts:
                await transaction.append(part, batch_of("first"))
            await transaction.commit_offsets("g", {parts[0]: 1})

        files.fault = BrokenDisk(name)
        with pytest.raises(HeadwaterError):
            async with writer.transaction() as transaction:
                for part in parts:
                    await transaction.append(part, batch_of("second"))
                await transaction.commit_offsets("g", {parts[0]: 2})
        files.heal()
        await log.close()

    async with running(tmp_path, FaultyFiles(OsFiles())) as broker:
        log = connect(broker)
        found = await with_wire(broker, lambda wire: [stable_values(wire, part) for part in parts])
        offsets = await log.committed_offsets("g")
        await log.close()
    assert found[0] == found[1]
    committed = len(found[0])
    assert found[0] == [b"first", b"second"][:committed]
    assert offsets == {parts[0]: committed}


async def test_a_topic_whose_metadata_cannot_be_synced_is_not_acknowledged(tmp_path: Path) -> None:
    files = FaultyFiles(OsFiles())
    async with running(tmp_path, files) as broker:
        files.fault = BrokenDisk("__cluster_metadata")
        codes = await with_wire(
            broker, lambda wire: [wire.create_topic(name, 1, {}) for name in ("t", "u")]
        )
        assert ErrorCode.NONE not in codes
        files.heal()
        await broker.housekeeping.recovery.recover(FAR_MS)
        assert await with_wire(broker, lambda wire: wire.create_topic("v", 1, {})) == ErrorCode.NONE


@pytest.mark.slow
async def test_an_offset_that_cannot_be_synced_is_not_acknowledged(tmp_path: Path) -> None:
    files, part = FaultyFiles(OsFiles()), TopicPartition("t", 0)
    async with running(tmp_path, files) as broker:
        log = connect(broker)
        await log.ensure_topic(TopicSettings(name="t"))
        await log.commit_offsets("g", {part: 1})
        files.fault = BrokenDisk("__consumer_offsets")
        with pytest.raises(HeadwaterError):
            await log.commit_offsets("g", {part: 2})
        files.heal()
        await log.close()

    async with running(tmp_path, FaultyFiles(OsFiles())) as broker:
        log = connect(broker)
        assert (await log.committed_offsets("g"))[part] in (1, 2)
        await log.close()


def connect(broker: RunningBroker) -> KafkaLog:
    settings = KafkaSettings(bootstrap=[broker.endpoint], retry_for_ms=500, abort_for_ms=100)
    return KafkaLog(settings)


def stable_values(wire: Wire, part: TopicPartition) -> list[bytes | None]:
    end = wire.offset(*part, LATEST)
    assert wire.offset(*part, LATEST, committed=True) == end, "no transaction hangs"
    read = wire.fetch(part.topic, {part.partition: 0}, committed=True)[part.partition]
    aborted = {producer for producer, _ in read.aborted}
    return [
        record.value
        for each in read.batches
        if not each.is_control and not (aborted and each is read.batches[-2])
        for record in each.records
    ]
