"""A broker whose disk does not return from a sync is replaced, as one that stands still is."""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headwater.core_log.broker import group_commit
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.replication.metadata import NO_LEADER
from tests.core_log.broker.cluster_in_memory import Cluster
from tests.core_log.broker.replicated_topic import (
    ask_to_append,
    create,
    produce,
    record_of,
    start_three,
    stored,
)
from tests.fakes import FaultyFiles, MemoryFiles

pytestmark = pytest.mark.slow


class HungDisk:
    """Syncs in threads do not return before `go_on`; on the loop they would hold up all brokers of
    the test."""

    def __init__(self) -> None:
        self._goes_on = threading.Event()

    def __call__(self, operation: str, path: Path) -> None:
        if operation == "sync" and threading.current_thread() is not threading.main_thread():
            self._goes_on.wait()

    def go_on(self) -> None:
        self._goes_on.set()


@pytest.fixture
async def cluster(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cluster]:
    monkeypatch.setattr(group_commit, "QUICK_S", 0.0)
    monkeypatch.setattr(group_commit, "HANGS_S", 0.2)
    cluster = Cluster()
    cluster.files = {each: FaultyFiles(MemoryFiles()) for each in (1, 2, 3)}
    yield cluster
    await cluster.close()


def hang(cluster: Cluster, node_id: int) -> HungDisk:
    files, disk = cluster.files[node_id], HungDisk()
    assert isinstance(files, FaultyFiles)
    files.fault = disk
    return disk


@pytest.mark.parametrize("leads_quorum", [False, True])
async def test_a_leader_whose_disk_hangs_is_replaced_while_it_hangs(
    cluster: Cluster, leads_quorum: bool
) -> None:
    await start_three(cluster)
    await create(cluster)
    await produce(cluster, "before")
    before = record_of(cluster).leader
    await let_controller(cluster, node_id=before, lead=leads_quorum)

    disk = hang(cluster, before)
    unanswered = asyncio.create_task(ask_to_append(cluster, before, "unanswered"))
    await cluster.until(lambda: known_leader(cluster, before) not in {before, NO_LEADER})
    await cluster.until(lambda: cluster.brokers[before].quorum.is_leader is False)
    await produce(cluster, "meanwhile", leader=known_leader(cluster, before))
    disk.go_on()
    await cluster.until(lambda: len(record_of(cluster).in_sync) == 3)
    is_acknowledged = await unanswered == ErrorCode.NONE  # the followers had it on their disks

    promised = {b"before", b"meanwhile", *([b"unanswered"] if is_acknowledged else [])}
    for broker in cluster.brokers.values():
        assert promised <= {*stored(broker)}


async def let_controller(cluster: Cluster, *, node_id: int, lead: bool) -> None:
    """Moves the lead of the quorum, if need be."""

    def is_so() -> bool:
        controller = cluster.controller
        return controller is not None and (controller.node_id == node_id) is lead

    while not is_so():
        if (controller := cluster.controller) is not None:
            await controller.quorum.hand_over()
        await cluster.until(lambda: cluster.controller is not None)


def known_leader(cluster: Cluster, but: int) -> int:
    """As the others know it."""
    other = next(each for node_id, each in cluster.brokers.items() if node_id != but)
    record = other.image.partition("t", 0)
    return NO_LEADER if record is None else record.leader
