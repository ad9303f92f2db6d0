"""Ways to take a broker down: a kill of its process, and a power cut under its disk."""

import fcntl
import os
import shutil
import subprocess
import time
from pathlib import Path
from random import Random
from struct import pack

from tests.crash.broker_process import BrokerProcess

EXT4_IOC_SHUTDOWN, NOLOGFLUSH = 0x8004587D, 2
IMAGE_BYTES = 1 << 30
UNMOUNT_S_MAX = 80


class Kill:
    """kill -9: what was written stays in the page cache, and nothing else of the process does."""

    promised_acks = ("all", "1")

    def __init__(self, directory: Path, random: Random) -> None:
        self._directory = directory

    def data(self) -> Path:
        return self._directory / "data"

    def strike(self, broker: BrokerProcess) -> None:
        broker.kill()
        broker.forget()

    def close(self) -> None:
        """Nothing is left behind."""


class PowerCut:
    """An ext4 file system of its own, which forgets at once all that was not synced."""

    promised_acks = ("all",)

    def __init__(self, directory: Path, random: Random) -> None:
        self._random = random
        self._image, self._mount_point = directory / "disk", directory / "mnt"
        self._mount_point.mkdir()
        with self._image.open("wb") as image:
            image.truncate(IMAGE_BYTES)
        _run("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=1", str(self._image))
        self._mount()

    def _mount(self) -> None:
        _run("mount", "-o", "loop", str(self._image), str(self._mount_point))

    def data(self) -> Path:
        return self._mount_point / "data"

    def strike(self, broker: BrokerProcess) -> None:
        """The processor stops first: within the cut a sync may return as if it had succeeded."""
        broker.freeze()
        self.write_back()
        self.cut()
        broker.kill_if_running()
        broker.forget()
        broker.end_children()
        self.mount_again()

    def mount_again(self) -> None:
        """Once nobody has a file of it open: the journal is replayed."""
        self._unmount()
        self._mount()

    def write_back(self) -> None:
        """As the system does by itself, in any order: some of what nobody has synced is on disk."""
        share = self._random.choice((0.0, 0.1, 0.5))
        for path in self.data().glob("log/*/*"):
            if self._random.random() < share:
                file = os.open(path, os.O_RDWR)
                os.fdatasync(file)
                os.close(file)

    def cut(self) -> None:
        """From now on every write and sync fails, and what was not synced is gone."""
        directory = os.open(self._mount_point, os.O_RDONLY)
        try:
            fcntl.ioctl(directory, EXT4_IOC_SHUTDOWN, pack("I", NOLOGFLUSH))
        finally:
            os.close(directory)

    def _unmount(self) -> None:
        deadline = time.monotonic() + UNMOUNT_S_MAX
        while subprocess.run(["umount", self._mount_point], capture_output=True).returncode:
            assert time.monotonic() < deadline, f"{self._mount_point} stays busy"
            time.sleep(0.02)
        # another test may have a copy of every mount in a namespace of its own, which would be this
        # very file system again, with its power cut
        while _run("losetup", "--noheadings", "--associated", str(self._image)):
            assert time.monotonic() < deadline, f"{self._image} stays in use"
            time.sleep(0.02)

    def close(self) -> None:
        if os.path.ismount(self._mount_point):
            self._unmount()


def why_no_mounts() -> str | None:
    """Why a test cannot have a disk of its own here, and what would cure it."""
    if os.geteuid() != 0:
        return "a disk of its own needs root to be mounted: run the tests as root"
    return None


def why_no_power_cuts() -> str | None:
    """Why this machine cannot cut the power of a file system, and what would cure it."""
    if (why := why_no_mounts()) is not None:
        return why
    missing = [each for each in ("mkfs.ext4", "mount", "umount") if shutil.which(each) is None]
    if missing:
        return f"power cuts need {', '.join(missing)}: apt-get install e2fsprogs mount"
    if not Path("/dev/loop-control").exists():
        return "power cuts need loop devices: run where /dev/loop-control exists (modprobe loop)"
    return None


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return done.stdout
