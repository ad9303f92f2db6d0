"""A disk of its own with little room, which can get more."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class SmallDisk:
    """A tmpfs; only root can mount one."""

    point: Path

    def resize(self, size: int) -> None:
        command = ["mount", "-o", f"remount,size={size}", "tmpfs", str(self.point)]
        subprocess.run(command, check=True)


@contextmanager
def small_disk(point: Path, *, size: int) -> Iterator[SmallDisk]:
    point.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(point)]
    subprocess.run(command, check=True)
    try:
        yield SmallDisk(point)
    finally:
        subprocess.run(["umount", "-l", str(point)], check=True)
