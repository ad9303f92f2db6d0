"""How long a writer stands still when the leader of its partition is killed, frozen or cut off, or
when its disk hangs."""

import asyncio
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random

from benchmarks.cluster_nodes import SOUND_S_MAX, Cluster
from headwater.core_log.client import KafkaLog, KafkaSettings
from headwater.core_log.foundation.clock import SystemClock
from headwater.core_log.foundation.errors import HeadwaterError
from headwater.core_log.model.log import TopicPartition
from tests.cluster.disks import HangingDisk, NodesOnDisks
from tests.simulation.load import batch_of

KILLS, CUTS, HANGS = 10, 4, 10
PAUSED = TopicPartition("paused", 0)
AFTER_S = 1.0
"""How long a writer works on once it has been answered again."""


class PausedWriter:
    """Our client, one record after another to one partition; remembers its longest pause."""

    def __init__(self, bootstrap: Sequence[str], random: Random) -> None:
        settings = KafkaSettings(bootstrap=list(bootstrap), retry_for_ms=120_000)
        self._log = KafkaLog(settings, random=random)
        self._is_over, self._last_s = False, time.monotonic()
        self.longest_s, self.count = 0.0, 0

    async def work(self) -> None:
        while not self._is_over:
            batch = batch_of([f"k={self.count}"], SystemClock().now_ms())
            with suppress(HeadwaterError):
                await self._log.append(PAUSED, batch)
                self.answered()
            await asyncio.sleep(0.002)
        await self._log.close()

    def answered(self) -> None:
        now_s = time.monotonic()
        self.longest_s = max(self.longest_s, now_s - self._last_s)
        self._last_s, self.count = now_s, self.count + 1

    def begin(self) -> None:
        self.longest_s, self._last_s = 0.0, time.monotonic()

    def end(self) -> None:
        self._is_over = True


async def pauses(cluster: Cluster) -> None:
    """kill -9, then SIGSTOP, of the node that leads the partition, whether or not it leads the
    quorum, and of the active controller that leads the partition."""
    await befall_leaders(cluster, ("kill", "freeze"), max(1, KILLS // cluster.shrink))


async def kills(cluster: Cluster) -> None:
    """kill -9 alone, as often as `--kills` says: for a longest pause of many."""
    await befall_leaders(cluster, ("kill",), cluster.kills)


async def cuts(cluster: Cluster) -> None:
    """All links of the leader go silent, those of its clients as well."""
    await befall_leaders(cluster, ("cut",), max(1, CUTS // cluster.shrink))


async def stops(cluster: Cluster) -> None:
    """The leader stops in order, as for a restart, and comes back."""
    await befall_leaders(cluster, ("stop",), max(1, KILLS // cluster.shrink))


async def hangs(cluster: Cluster) -> None:
    """No sync of the leader's disk returns; its writes go to the page cache as ever."""
    await befall_leaders(cluster, ("hang",), max(1, HANGS // cluster.shrink))


async def befall_leaders(cluster: Cluster, ways: Sequence[str], count: int) -> None:
    await cluster.topic(PAUSED.topic, 1)
    writer = PausedWriter(cluster.nodes.bootstrap, Random(1))
    working = asyncio.ensure_future(writer.work())
    try:
        for _ in range(count):
            for how in ways:
                await asyncio.sleep(1)
                leader = (await cluster.view.leader(PAUSED, cluster.nodes.awake))[0]
                controller = await cluster.view.controller(cluster.nodes.awake)
                row = f"{how}-{'both' if controller == [leader] else 'leader'}"
                pause_s = await befall(cluster, writer, how, leader)
                cluster.add(row, {"pause_s": pause_s})
                print(f"    {row}: {pause_s:.2f} s", file=sys.stderr, flush=True)
    finally:
        writer.end()
        await asyncio.gather(working)


async def befall(cluster: Cluster, writer: PausedWriter, how: str, node: int) -> float:
    """Returns the longest time for which the writer was not answered."""
    links, disk = cluster.nodes.links, disk_of(cluster, node)
    writer.begin()
    match how:
        case "kill":
            cluster.nodes.kill(node)
        case "stop":
            await asyncio.to_thread(cluster.nodes.stop, node)
        case "freeze":
            cluster.nodes.pause(node)
        case "hang":
            assert disk is not None, "a disk hangs where nodes have one each"
            disk.hang()
        case _:
            assert links is not None, "a link is cut where nodes have namespaces"
            links.cut |= links.ways([node], to=True, back=True, clients=True)
    before = writer.count
    try:
        await until(lambda: writer.count > before + 1)
        await asyncio.sleep(AFTER_S)
    finally:
        if how == "hang" and disk is not None:
            disk.go_on()  # nothing can end on a disk that hangs
    pause_s = writer.longest_s
    match how:
        case "kill" | "stop":
            cluster.nodes.start(node)
        case "freeze":
            cluster.nodes.resume(node)
        case "hang":
            pass
        case _:
            assert links is not None, "they were cut"
            await links.heal()
    await cluster.sound()
    return pause_s


def disk_of(cluster: Cluster, node: int) -> HangingDisk | None:
    disk = cluster.nodes.disks[node] if isinstance(cluster.nodes, NodesOnDisks) else None
    return disk if isinstance(disk, HangingDisk) else None


async def until(is_so: Callable[[], bool]) -> None:
    end_s = time.monotonic() + SOUND_S_MAX
    while not is_so():
        if time.monotonic() > end_s:
            raise RuntimeError("the writer does not go on")
        await asyncio.sleep(0.005)
