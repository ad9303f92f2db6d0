"""Servers of tests and demos, which end when the process that started them has ended, however."""

import os
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

WATCHDOG = Path(__file__).with_name("watchdog.py")


def start_owned(command: Sequence[object], **options: Any) -> "subprocess.Popen[Any]":
    """`subprocess.Popen` in a process group of its own: Ctrl-C reaches its owner alone, who stops
    it in order. If the owner is killed, the watchdog kills it."""
    process = subprocess.Popen([str(part) for part in command], process_group=0, **options)
    end_with_owner(process.pid)
    return process


def end_with_owner(group: int) -> None:
    """A process group, by the process that leads it, is killed if this process ends before it."""
    os.write(_watchdog(os.getpid()), f"{group}\n".encode())


@cache
def _watchdog(owner: int) -> int:
    """The end of a pipe that closes with `owner`. The process that waits at its other end is
    nobody's `Popen`, which would complain that it still runs at exit."""
    waiting, held = os.pipe()
    os.posix_spawn(
        sys.executable,
        [sys.executable, "-I", "-S", str(WATCHDOG)],
        os.environ,
        file_actions=[(os.POSIX_SPAWN_DUP2, waiting, 0)],
        setpgroup=0,
    )
    os.close(waiting)
    return held
