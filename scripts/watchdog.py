"""Waits until its standard input closes, and kills the process groups that it was told of."""

import os
import select
import signal
import sys


def main() -> None:
    watched: dict[int, int | None] = {}
    for line in sys.stdin.buffer:
        for pid in [pid for pid, handle in watched.items() if _has_ended(handle)]:
            os.close(watched.pop(pid) or 0)
        pid = int(line)
        try:
            # A number may be given to another process later, a handle never.
            watched[pid] = os.pidfd_open(pid) if sys.platform == "linux" else None
        except ProcessLookupError:
            continue
    for pid, handle in watched.items():
        if _has_ended(handle):
            continue
        try:
            os.killpg(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def _has_ended(handle: int | None) -> bool:
    return handle is not None and bool(select.select([handle], [], [], 0)[0])


if __name__ == "__main__":
    main()
