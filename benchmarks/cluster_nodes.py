"""Three nodes of a make that run, and what is measured of them."""

import asyncio
import time

from benchmarks.client_loads import create_topics
from benchmarks.figures import Collected, Figures
from benchmarks.processes import cpu_s
from tests.cluster.nodes import COUNT, Nodes
from tests.cluster.view import ClusterView

PARTITIONS = 6
MIN = {"min.insync.replicas": "2"}
SOUND_S_MAX = 120.0


class Cluster:
    """Three nodes that run, and what is measured of them."""

    def __init__(
        self, nodes: Nodes, collected: Collected, name: str, *, shrink: int, kills: int
    ) -> None:
        """`kills` is for the stage that only kills."""
        self.nodes, self._collected, self.name = nodes, collected, name
        self.shrink, self.kills = shrink, kills
        self.view = ClusterView(nodes.addresses)

    @property
    def bootstrap(self) -> str:
        return ",".join(self.nodes.bootstrap)

    def cpu_s(self) -> float:
        return sum(map(cpu_s, self.nodes.pids))

    def add(self, row: str, figures: Figures) -> None:
        self.add_for(row, self.name, figures)

    def add_for(self, row: str, who: str, figures: Figures) -> None:
        self._collected.add(row, who, figures)

    async def sound(self, replicas: int = COUNT) -> None:
        """Every partition is led, and in sync on so many nodes."""
        end_s = time.monotonic() + SOUND_S_MAX
        while problems := await self.view.out_of_sync(self.nodes.awake, replicas):
            self.nodes.check()
            if time.monotonic() > end_s:
                raise RuntimeError(f"the cluster does not become sound: {problems[:3]}")
            await asyncio.sleep(0.02)

    async def topic(self, name: str, partitions: int, config: dict[str, str] = MIN) -> None:
        await asyncio.to_thread(  # links are carried by this loop
            create_topics, self.bootstrap, [name], partitions, config, replicas=COUNT
        )
        await self.sound()
