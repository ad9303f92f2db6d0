"""A round of syncs that began before a topic was deleted says nothing of its successor."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.core_log.broker import group_commit
from headwater.core_log.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tests.builders import Sequenced, append
from tests.core_log.broker.in_memory import ask, create, started
from tests.fakes import FaultyFiles, MemoryFiles


class Slow:
    """Syncs below directories of that name wait until they are let go on."""

    def __init__(self, name: str) -> None:
        self.name, self.go, self.waits = name, threading.Event(), threading.Event()

    def __call__(self, operation: str, path: Path) -> None:
        if operation == "sync" and path.parent.name.startswith(self.name):
            self.waits.set()
            assert self.go.wait(10)


async def until(met: Callable[[], object]) -> None:
    for _ in range(1_000_000):
        if met():
            return
        await asyncio.sleep(0)
    raise AssertionError("never")


async def test_a_topic_made_anew_is_promised_nothing_of_its_forerunner(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(group_commit, "QUICK_S", 0.0)  # else the loop waits for what is held
    memory = MemoryFiles()
    files = FaultyFiles(memory)
    broker = await started(files)
    await create(broker, "t")
    await create(broker, "u")
    old, other = broker.find_led("t", 0), broker.find_led("u", 0)
    assert old is not None and other is not None
    for number in range(3):
        append(old.log, b"old", producer=Sequenced(7, 0, number, is_transactional=True))
        old.on_written(is_urgent=True)
        await old.wait_committed(number + 1)

    # The topic is deleted; while that comes to the disk, a transaction that wrote there ends.
    files.fault = slow = Slow("__cluster_metadata")
    deleting = asyncio.create_task(
        ask(broker, DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]))
    )
    await until(slow.waits.is_set)
    old.append_marker(7, 0, commit=True, coordinator_epoch=0, now_ms=1_000)
    slow.go.set()
    await deleting
    await asyncio.sleep(0.05)

    # It is made anew; the same round syncs another partition, which takes longer.
    files.fault = slow = Slow("u-")
    metadata = broker.find_led("__cluster_metadata", 0)
    assert metadata is not None
    before = metadata.log.end_offset
    creating = asyncio.create_task(create(broker, "t"))
    await until(lambda: metadata.log.end_offset > before)
    append(other.log, b"other")
    other.on_written(is_urgent=True)
    await until(lambda: broker.find_led("t", 0) is not None)
    slow.go.set()
    await creating
    await other.wait_committed(1)
    await asyncio.sleep(0.05)

    after = await started(memory.copy())  # the process is killed
    assert after.find_led("t", 0) is not None
    await after.close()
