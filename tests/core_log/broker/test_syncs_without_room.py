"""Whoever waits for a disk that has no room just now is answered once it has, unasked."""

import asyncio
import errno
import os
from pathlib import Path

from headwater.core_log.foundation.settings import TopicSettings
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.storage.files import OsFiles
from tests.budget import PATIENCE_S
from tests.builders import Sequenced, append
from tests.contract.records import NOW_MS, batch_of
from tests.core_log.broker.test_failed_syncs import connect, running
from tests.fakes import FaultyFiles

PARTITION = TopicPartition("t", 0)


class NoRoomForAborted:
    """The index of aborted transactions is the one file for which there is no room."""

    def __init__(self) -> None:
        self.has_refused = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def __call__(self, operation: str, path: Path) -> None:
        if operation in ("create", "write") and path.suffix == ".txnindex":
            self._loop.call_soon_threadsafe(self.has_refused.set)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


async def test_an_append_held_up_by_the_index_of_aborted_transactions_is_answered_in_the_end(
    tmp_path: Path,
) -> None:
    files = FaultyFiles(OsFiles())
    async with running(tmp_path, files) as broker:
        log = connect(broker)
        await log.ensure_topic(TopicSettings(name="t"))
        partition, full = broker.broker.find_led("t", 0), NoRoomForAborted()
        assert partition is not None

        files.fault = full
        stamp = Sequenced(99, is_transactional=True)
        append(partition.log, "aborted", producer=stamp, timestamp_ms=NOW_MS)
        partition.append_marker(99, 0, commit=False, coordinator_epoch=0, now_ms=NOW_MS)
        waiting = asyncio.create_task(log.append(PARTITION, batch_of("kept")))
        while partition.log.end_offset < 3:  # noqa: ASYNC110 - on its way through a socket
            await asyncio.sleep(0)
        full.has_refused.clear()
        await full.has_refused.wait()
        files.heal()

        async with asyncio.timeout(PATIENCE_S):
            assert await waiting == 2
        await log.close()
