"""A start that fails leaves nothing behind: neither its address nor its directory is taken."""

import asyncio
import errno
import os
from pathlib import Path
from random import Random

import pytest

from headwater.core_log.broker.coordination import PartitionStateLog
from headwater.core_log.broker.lifecycle import RunningBroker
from headwater.core_log.foundation.endpoint import FILE_NAME
from headwater.core_log.foundation.settings import BrokerSettings
from headwater.core_log.storage.files import OsFiles
from scripts.free_port import free_port
from tests.core_log.broker.in_memory import create, started
from tests.fakes import FaultyFiles, MemoryFiles


def no_room_for_the_endpoint(operation: str, path: Path) -> None:
    if path.name == FILE_NAME:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


async def test_a_broker_that_cannot_say_where_it_is_gives_everything_back(tmp_path: Path) -> None:
    settings = BrokerSettings(
        data=tmp_path, listen=f"127.0.0.1:{free_port()}", internal_partitions=1
    )
    with pytest.raises(OSError, match="No space left"):
        await RunningBroker.start(settings, files=FaultyFiles(OsFiles(), no_room_for_the_endpoint))

    running = await RunningBroker.start(settings)
    await running.stop()


async def test_an_opening_that_fails_does_not_take_the_last_sync_away() -> None:
    """Records that wait for no answer are on disk after a stop."""
    files = MemoryFiles()
    broker = await started(files)
    await create(broker, "orders", 1)
    partition = broker.find_led("orders", 0)
    assert partition is not None

    async def fail() -> None:
        raise RuntimeError("an opening failed")

    broker.metadata._applying = asyncio.ensure_future(fail())
    PartitionStateLog(partition, broker.clock).append([(b"key", b"value")])
    with pytest.raises(RuntimeError):
        await broker.close()

    again = await started(files.after_power_cut(Random(1)))
    found = again.find_led("orders", 0)
    assert found is not None and found.log.end_offset == 1
    await again.close()
