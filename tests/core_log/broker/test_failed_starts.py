"""A start that fails leaves nothing behind: neither its address nor its directory is taken."""

import errno
import os
from pathlib import Path

import pytest

from headwater.core_log.broker.lifecycle import RunningBroker
from headwater.core_log.foundation.endpoint import FILE_NAME
from headwater.core_log.foundation.settings import BrokerSettings
from headwater.core_log.storage.files import OsFiles
from scripts.free_port import free_port
from tests.fakes import FaultyFiles


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
