"""Starts worker processes, whose program this is; loads nothing heavy before the first starts."""

import os
import subprocess
import sys
from collections.abc import Sequence

from headwater.core_log.foundation.speed import freeze_imports, switch_threads_often

COMMAND = (sys.executable, "-m", "headwater.pipelines.running.worker_start")
STDOUT = 1


def read_umask() -> int:
    """Returns which rights new files of this process lack."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


UMASK = read_umask()
"""The user's own: the owner may keep the files of its log to itself, but not those of sinks."""

MEMORY = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_ARENA_MAX": "2",
    "MALLOC_MMAP_THRESHOLD_": str(4 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(8 << 20),
}
"""Batches come and go by the megabyte, and every allocator likes to keep what it once had. With a
fixed threshold glibc gives large blocks back, which halves a worker. Pages that are made anew cost
time: what is needed again and again is kept by `BufferPool`. A value that is set before the start
wins."""


def spawn(command: Sequence[str] = COMMAND, *, level: int) -> "subprocess.Popen[bytes]":
    """It has a process group of its own, because Ctrl-C is for the owner only; what its sinks
    print goes to our own standard output. It ends when its standard input does, also when nobody
    has spoken to it yet."""
    stdout = os.dup(STDOUT)
    try:
        return subprocess.Popen(
            [*command, f"--stdout={stdout}", f"--level={level}"],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=(stdout,),
            process_group=0,
            umask=UMASK,
            env={**MEMORY, **os.environ},
        )
    finally:
        os.close(stdout)


def start() -> None:
    """Everything heavy is imported before the first order, while the owner makes its start."""
    with freeze_imports():
        from headwater.pipelines.loops.assembly import watch_source
        from headwater.pipelines.running.first_checks import checked_first, prepare_source
        from headwater.pipelines.running.worker import main
    switch_threads_often()
    main(checked_first(), prepare_source, watch_source)


if __name__ == "__main__":
    start()
