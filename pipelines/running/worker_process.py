"""One worker process, as its owner sees it: orders go in, words come out."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Self

from core_log.errors import DecodeError
from pipelines.running.worker_lines import Leave, Order, Word, decode_word, encode_order

logger = logging.getLogger(__name__)

COMMAND = (sys.executable, "-m", "pipelines.running.worker")
LINE_BYTES_MAX = 64 << 20
"""A report names every file or partition at which a unit stands."""
STDOUT = 1

MEMORY = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_ARENA_MAX": "2",
    "MALLOC_MMAP_THRESHOLD_": str(4 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(8 << 20),
}
"""Batches come and go by the megabyte, and every allocator likes to keep what it once had. With a
fixed threshold glibc gives large blocks back, which halves a worker and slows nothing; who sets one
of these before the start has the say."""


class WorkerProcess:
    """It ends when its standard input does: so it never outlives its owner, however that ends."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, command: Sequence[str] = COMMAND) -> Self:
        """It has a process group of its own, because Ctrl-C is for the owner only; what its sinks
        print goes to our own standard output."""
        stdout = os.dup(STDOUT)
        level = logging.getLogger().getEffectiveLevel()
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                f"--stdout={stdout}",
                f"--level={level}",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                pass_fds=(stdout,),
                process_group=0,
                env={**MEMORY, **os.environ},
                limit=LINE_BYTES_MAX,
            )
        finally:
            os.close(stdout)
        return cls(process)

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, order: Order) -> None:
        """To one that has just died nothing can be said; `listen` then says so."""
        assert self._process.stdin is not None, "started with a pipe"
        if not self._process.stdin.is_closing():
            self._process.stdin.write(encode_order(order))

    async def listen(self, hear: Callable[[Word], None]) -> str:
        """Until the process has ended; says how."""
        await asyncio.gather(self._hear_words(hear), self._pass_on_stderr())
        return how_it_ended(await self._process.wait())

    async def leave(self, *, wait_s: float) -> None:
        """Lets the units finish what they have begun. `listen` must be running."""
        self.send(Leave())
        try:
            await asyncio.wait_for(self._process.wait(), wait_s)
        except TimeoutError:
            logger.warning("worker process %d does not end and is killed", self.pid)
            self.kill()

    def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()

    async def _hear_words(self, hear: Callable[[Word], None]) -> None:
        assert self._process.stdout is not None, "started with a pipe"
        while line := await self._process.stdout.readline():
            if not line.endswith(b"\n"):
                return  # what a killed process could not finish was never said
            try:
                word = decode_word(line)
            except DecodeError as error:
                logger.warning("worker process %d: %s", self.pid, error)
            else:
                hear(word)

    async def _pass_on_stderr(self) -> None:
        assert self._process.stderr is not None, "started with a pipe"
        while line := await self._process.stderr.readline():
            show_on_stderr(line.decode(errors="replace"))


def show_on_stderr(line: str) -> None:
    """Where our own log lines go just now, which may be above a picture that is drawn there."""
    handlers = [
        handler
        for handler in logging.getLogger().handlers
        if isinstance(handler, logging.StreamHandler)
    ]
    stream = handlers[0].stream if handlers else sys.stderr
    stream.write(line)
    stream.flush()


def how_it_ended(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
