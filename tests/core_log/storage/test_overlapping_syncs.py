"""What is written while a sync runs is not on disk because of it, whichever files it named."""

from random import Random

import pytest

from headwater.core_log.storage.log_config import LogConfig
from tests.builders import append, open_log, sync, values_of
from tests.fakes import MemoryFiles

SMALL = LogConfig(segment_bytes=200)


@pytest.mark.parametrize("seed", range(20))
def test_a_segment_sealed_during_a_sync_is_synced_by_the_next(seed: int) -> None:
    files = MemoryFiles()
    store, log = open_log(files, config=SMALL)
    append(log, "first")

    job = log.sync_job()
    job.run()
    append(log, "after the job has passed this file")
    while len(log.segments) == 1:
        append(log, "until it is sealed")
    log.finish_sync(job)
    sync(log, store)

    promised = values_of(log, below=log.durable_offset)
    _, again = open_log(files.after_power_cut(Random(seed)), config=SMALL)
    assert values_of(again)[: len(promised)] == promised


def test_a_directory_that_changes_during_a_sync_is_synced_by_the_next() -> None:
    _, log = open_log(MemoryFiles(), config=SMALL)
    append(log, "first")
    log.roll()

    job = log.sync_job()
    append(log, "second")
    log.roll()
    log.finish_sync(job)

    assert log.sync_job().directories == [log.directory]
