"""A deletion that the disk interrupts leaves nothing of the deleted topic to its successor."""

import errno
import os
from contextlib import suppress
from pathlib import Path

import pytest

from headwater.core_log.broker.lifecycle import PartitionRecovery
from headwater.core_log.foundation.errors import HeadwaterError
from headwater.core_log.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tests.builders import append, values_of
from tests.core_log.broker.in_memory import ask, create, started
from tests.fakes import FaultyFiles, MemoryFiles


class Once:
    """One call of that kind, on the topic's own files where it has any, finds no descriptor."""

    def __init__(self, operation: str) -> None:
        self.operation, self.has_refused = operation, False

    def __call__(self, what: str, path: Path) -> None:
        is_meant = what != "rename" or path.name.startswith("t-")
        if what == self.operation and is_meant and not self.has_refused:
            self.has_refused = True
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(path))


@pytest.mark.parametrize("operation", ["sync_directory", "rename"])
async def test_a_topic_made_anew_after_a_refused_deletion_is_empty(operation: str) -> None:
    files = FaultyFiles(MemoryFiles())
    broker = await started(files)
    await create(broker, "t", partitions=2)
    for index in range(2):
        partition = broker.find_led("t", index)
        assert partition is not None
        append(partition.log, b"of the deleted topic")
        partition.on_written(is_urgent=True)
        await partition.wait_committed(1)

    files.fault = refusing = Once(operation)
    with suppress(HeadwaterError):
        await ask(broker, DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]))
    assert refusing.has_refused and broker.image.topic("t") is None
    files.heal()
    with suppress(HeadwaterError):
        await create(broker, "t", partitions=2)
    await PartitionRecovery(broker).recover(broker.clock.now_ms())

    known = broker.image.topic("t")
    assert known is not None
    led = [
        broker.find_led(name, index) for name in ("t", known.topic_id.bytes) for index in range(2)
    ]
    assert [each for each in led if each is not None and values_of(each.log)] == []
