"""Three nodes of ours on disks of their own, whose power is cut, or whose syncs hang."""

import fcntl
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Protocol

from tests.cluster.nodes import HeadwaterNodes
from tests.crash.broker_faults import PowerCut

FIFREEZE, FITHAW = 0xC0045877, 0xC0045878


class Disk(Protocol):
    def data(self) -> Path: ...
    def close(self) -> None: ...


class HangingDisk:
    """A file system in a file of another one. While that one is frozen, writes go to the page cache
    as ever, and no sync returns."""

    def __init__(self, directory: Path, random: Random) -> None:
        (directory / "outer").mkdir(parents=True)
        self._outer = PowerCut(directory / "outer", random)
        inside = self._outer.data()
        inside.mkdir()
        self._inner = PowerCut(inside, random)

    def data(self) -> Path:
        return self._inner.data()

    def hang(self) -> None:
        self._control(FIFREEZE)

    def go_on(self) -> None:
        self._control(FITHAW)

    def _control(self, request: int) -> None:
        directory = os.open(self._outer.data(), os.O_RDONLY)
        try:
            fcntl.ioctl(directory, request, 0)
        finally:
            os.close(directory)

    def close(self) -> None:
        self._inner.close()
        self._outer.close()


class NodesOnDisks(HeadwaterNodes):
    """Each node has a file system of its own."""

    def __init__(
        self,
        directory: Path,
        make: Callable[[Path, Random], Disk],
        random: Random,
        *,
        settings: Sequence[str] = (),
    ) -> None:
        super().__init__(directory, settings=settings)
        self.disks = dict[int, Disk]()
        for node in self.addresses:
            place = directory / f"disk-{node}"
            place.mkdir()
            self.disks[node] = make(place, Random(random.random()))

    def data(self, node: int) -> Path:
        return self.disks[node].data()

    def end(self) -> None:
        super().end()
        for disk in self.disks.values():
            disk.close()


def cut_power(nodes: NodesOnDisks, at: Sequence[int]) -> None:
    """Of several nodes in the same moment: their processors stop first, and then what was not
    synced is gone."""
    disks = [nodes.disks[node] for node in at]
    for node in at:
        nodes.pause(node)
    for disk in disks:
        assert isinstance(disk, PowerCut), "its power can be cut"
        disk.write_back()
        disk.cut()
    for node in at:
        nodes.kill(node)
    for disk in disks:
        assert isinstance(disk, PowerCut), "its power can be cut"
        disk.mount_again()
