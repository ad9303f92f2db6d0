"""What a process costs: CPU seconds and memory, with its children, read from /proc."""

import os
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def with_children(pid: int) -> list[int]:
    """This process and all that stand below it just now."""
    found, waiting = [], [pid]
    while waiting:
        each = waiting.pop()
        found.append(each)
        try:
            for task in Path(f"/proc/{each}/task").iterdir():
                waiting += map(int, (task / "children").read_text().split())
        except OSError:
            continue  # it has ended
    return found


def cpu_s(pid: int) -> float:
    """User and system time of the process, of its children, and of those that have ended."""
    ticks = 0
    for each in with_children(pid):
        try:
            fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += sum(map(int, fields[11:15]))
    return ticks / TICKS_PER_S


def busy_s() -> float:
    """What all processors have worked since the machine was started, whoever for."""
    words = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    user, nice, system, _idle, _waiting, interrupts, soft_interrupts = map(int, words[1:8])
    return (user + nice + system + interrupts + soft_interrupts) / TICKS_PER_S


def ended_children_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def pss_mb(pid: int) -> float:
    """Proportional set size: shared pages are counted in parts."""
    kilobytes = 0
    for each in with_children(pid):
        try:
            rollup = Path(f"/proc/{each}/smaps_rollup").read_text()
        except OSError:
            continue
        lines = (line.split() for line in rollup.splitlines())
        kilobytes += sum(int(words[1]) for words in lines if words[0] == "Pss:")
    return kilobytes / 1024


class PeakMemory:
    """The largest memory, and the CPU time, seen while it watches."""

    def __init__(self, pid: int, *, interval_s: float = 0.25) -> None:
        self.mb, self.cpu_s = pss_mb(pid), cpu_s(pid)
        self._pid, self._interval_s = pid, interval_s
        self._ended = threading.Event()

    @contextmanager
    def watching(self) -> Iterator["PeakMemory"]:
        thread = threading.Thread(target=self._watch, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._ended.set()
            thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(self._interval_s):
            self.mb = max(self.mb, pss_mb(self._pid))
            self.cpu_s = max(self.cpu_s, cpu_s(self._pid))
