"""A broker whose disk fails its metadata while it starts ends with that, and does not wait for
ever."""

import errno
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headwater.core_log.foundation.errors import StorageFailed
from tests.core_log.broker.cluster_in_memory import Cluster
from tests.core_log.broker.replicated_topic import start_three
from tests.fakes import FaultyFiles, MemoryFiles

pytestmark = pytest.mark.slow


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    cluster = Cluster()
    cluster.files = {each: FaultyFiles(MemoryFiles()) for each in (1, 2, 3)}
    yield cluster
    await cluster.close()


def fail_syncs_of_the_metadata(operation: str, path: Path) -> None:
    if operation == "sync" and path.parent.name == "__cluster_metadata-0" and path.suffix == ".log":
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))


async def test_a_broker_whose_metadata_fails_at_its_start_says_so(cluster: Cluster) -> None:
    await start_three(cluster)
    await cluster.stop(3)
    files = cluster.files[3]
    assert isinstance(files, FaultyFiles)
    files.fault = fail_syncs_of_the_metadata

    with pytest.raises(StorageFailed, match="metadata"):
        await cluster.start(3)
    cluster.kill(3)
    files.heal()
    third = await cluster.start(3)

    assert third.is_open
