"""A simulated machine with one broker: its process may be killed or paused, its power cut, its disk
fail."""

import asyncio
import errno
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

from headwater.core_log.broker.broker import Broker
from headwater.core_log.broker.dispatch import load_handlers
from headwater.core_log.broker.lifecycle import PeriodicTasks, cluster_to_join
from headwater.core_log.broker.server import BrokerServer
from headwater.core_log.foundation.errors import HeadwaterError
from headwater.core_log.foundation.settings import BrokerSettings
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.storage.compaction import CompactionRequest, CompactionResult
from headwater.core_log.storage.compaction_worker import Compaction
from headwater.core_log.storage.properties import META, decode_uuid, read_properties
from headwater.core_log.storage.store import Store
from tests.fakes import FaultyFiles, MemoryFiles
from tests.simulation.network import Network
from tests.simulation.stored_log import StoredReplica, read_disk
from tests.simulation.virtual_time import LoopClock, Process

SERVED = load_handlers()
DATA, PORT = "/data", 9092
RESTART_S = 0.5


class Machine:
    """Comes back under the same address with what its disk holds."""

    def __init__(
        self,
        network: Network,
        clock: LoopClock,
        random: Random,
        *,
        settings: Mapping[str, Any],
        node_id: int = 1,
        join: Sequence[tuple[str, int]] = (),
    ) -> None:
        """`join` names the machines whose cluster it joins; without any it begins one."""
        self._network, self._clock, self._random = network, clock, random
        self._settings, self._node_id, self._join = settings, node_id, list(join)
        self.name = f"node-{node_id}"
        self.address = (self.name, PORT)
        self._disk = MemoryFiles()
        self.files = FaultyFiles(self._disk)
        self.lost_directories = set[UUID | None]()
        """The ids of its data directories that were on lost disks."""
        self.process: Process | None = None
        self._starting: asyncio.Task[None] | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self.broker: Broker | None = None
        self._server: BrokerServer | None = None
        self._periodic: PeriodicTasks | None = None

    @property
    def is_up(self) -> bool:
        return self.process is not None

    def boot(self) -> None:
        """Starts the broker; it listens once it is ready."""
        assert self.process is None, "a machine runs one broker"
        self.process = Process(f"broker {self._node_id}")
        self._starting = self.process.start(self._start(self.process))
        self._supervisor = asyncio.ensure_future(self._supervise(self.process, self._starting))

    async def _supervise(self, process: Process, starting: "asyncio.Task[None]") -> None:
        """A process that cannot start, as its disk is full, is started again."""
        try:
            await starting
        except (HeadwaterError, OSError):
            if self.process is process:
                self.kill()
                await asyncio.sleep(RESTART_S)
                if self.process is None:
                    self.boot()

    async def started(self) -> None:
        """Returns once the broker serves clients."""
        assert self._starting is not None, "a machine is booted first"
        await asyncio.wait([self._starting])
        self._starting.result()

    async def _start(self, process: Process) -> None:
        random, dial = Random(self._random.random()), self._network.dialer(self.name)
        settings = BrokerSettings(
            data=DATA,
            **self._settings,
            node_id=self._node_id,
            rack=self.name,
            join=[f"{host}:{port}" for host, port in self._join],
        )
        cluster_id = await cluster_to_join(settings, self.files, dial)
        store = Store.open(
            settings.data,
            files=self.files,
            clock=self._clock,
            random=random,
            node_id=self._node_id,
            cluster_id=cluster_id,
        )
        broker = Broker(settings, store, SERVED, clock=self._clock, random=random, dial=dial)
        server = BrokerServer(broker, SERVED)
        if broker.needs_peers:
            self._network.listen(self.address, server, process)
        await broker.open(*self.address)
        periodic = PeriodicTasks(broker, compact=self._compact)
        periodic.start()
        self.broker, self._server, self._periodic = broker, server, periodic
        self._network.listen(self.address, server, process)

    async def _compact(self, request: CompactionRequest) -> CompactionResult:
        return Compaction(request, self.files).run()

    def kill(self) -> None:
        """As kill -9 does: the operating system keeps what was written."""
        self._end(is_silent=False)
        self._disk.after_kill()

    def cut_power(self) -> None:
        """What was not synced may be gone."""
        self._end(is_silent=True)
        self._disk = self._disk.after_power_cut(self._random)
        faulty = FaultyFiles(self._disk)
        faulty.fail_at = self.files.fail_at
        self.files = faulty

    def lose_disk(self, *, join: Sequence[tuple[str, int]]) -> None:
        """Its power is cut, and another disk is put in, with which it joins these machines."""
        if self.is_up:
            self._end(is_silent=True)
        self.lost_directories.add(self.directory_id)
        self._disk, self._join = MemoryFiles(), list(join)
        self.files = FaultyFiles(self._disk)

    @property
    def directory_id(self) -> UUID | None:
        """The id of the data directory; None for an empty disk."""
        path = Path(DATA) / META
        if not self._disk.exists(path):
            return None
        return decode_uuid(read_properties(self._disk, path)["directory.id"])

    def _end(self, *, is_silent: bool) -> None:
        assert self.process is not None, "only a running broker can be ended"
        self.process.kill()
        self._network.leave(self.address, is_silent=is_silent)
        if not is_silent:
            self._network.forget(self.name)
        self.process = self.broker = self._server = self._periodic = None

    async def stop(self) -> None:
        """A clean stop, if the broker has started."""
        process, broker, server, periodic = self.process, self.broker, self._server, self._periodic
        if process is None or broker is None or server is None or periodic is None:
            return

        async def work() -> None:
            await periodic.stop()
            await broker.leave()
            broker.end_waits()
            await server.drain(10.0)
            await broker.close()

        await process.start(work())
        self._end(is_silent=False)
        self._disk.after_kill()

    def fail_syncs(self) -> None:
        """Every sync fails until the disk is healed."""

        def fault(operation: str, path: Path) -> None:
            if operation == "sync":
                raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

        self.files.fault = fault

    def hang_disk(self) -> None:
        """No sync returns until the disk is healed."""
        assert self.process is not None, "the machine is up"
        self.process.hang_threads()

    def fill_disk(self) -> None:
        """Nothing can be written until the disk is healed."""

        def fault(operation: str, path: Path) -> None:
            if operation in {"write", "create", "replace", "make_directory"}:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

        self.files.fault = fault

    def heal_disk(self) -> None:
        if self.process is not None:
            self.process.let_threads_go_on()
        self.files.heal()

    @property
    def written(self) -> Mapping[TopicPartition, StoredReplica]:
        """The logs as programs see them."""
        return read_disk(self.content())

    @property
    def synced(self) -> Mapping[TopicPartition, StoredReplica]:
        """The logs as a power cut may leave them."""
        return read_disk({str(path): content for path, content in self._disk.on_disk().items()})

    def content(self) -> Mapping[str, bytes]:
        """What lies on the disk, by path, but for the lock, which names this very process."""
        files = self._disk.files.items()
        return {str(path): bytes(file.content) for path, file in files if path.name != "lock"}
