"""A state log whose disk answers when the test says so."""

import asyncio
from random import Random

from headwater.core_log.foundation.errors import StorageFailed
from headwater.core_log.groups.group_coordinator import GroupCoordinator, GroupLimits
from tests.core_log.groups.simulated_world import SimulatedStateLog, StoredBytes, World


class ControlledLog(SimulatedStateLog):
    """`hold` keeps what follows from being durable until `release`, `fail` for ever."""

    def __init__(self, world: World, stored: StoredBytes) -> None:
        super().__init__(world, stored)
        self._is_free = asyncio.Event()
        self._is_free.set()
        self._has_failed = False

    def hold(self) -> None:
        self._is_free.clear()

    def release(self) -> None:
        self._is_free.set()

    def fail(self) -> None:
        self._has_failed = True
        self._is_free.set()

    async def durable(self, end_offset: int) -> None:
        await self._is_free.wait()
        if self._has_failed:
            raise StorageFailed("the disk refuses")


class Groups:
    """A coordinator over one partition, its log in the test's hands, and its restarts."""

    def __init__(self, limits: GroupLimits | None = None) -> None:
        self.world = World(Random(1))
        self.stored = StoredBytes()
        self.limits = limits or GroupLimits()
        self.restart()

    def restart(self) -> None:
        self.log = ControlledLog(self.world, self.stored)
        self.coordinator = GroupCoordinator(
            partition_count=lambda: 1,
            open_state_log=lambda index: self.log,
            clock=self.world,
            random=Random(2),
            limits=self.limits,
        )
        self.coordinator.load(0)

    def end_transaction(self, producer_id: int, epoch: int, *, commit: bool) -> None:
        """As a broker does: the marker into the partition, then the word to the coordinator."""
        self.log.append_marker(producer_id, epoch, commit=commit)
        self.coordinator.on_transaction_end(0, producer_id, commit=commit)

    def later(self, ms: int) -> None:
        self.world.now_ms_value += ms
        self.coordinator.tick(self.world.monotonic_ms())
