"""One worker process, as its owner sees it: orders go in, words come out."""

import asyncio
import logging
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import IO, Self

from headwater.core_log.foundation.errors import DecodeError
from headwater.pipelines.running.worker_protocol import (
    LeaveTask,
    Order,
    Word,
    decode_word,
    encode_order,
)
from headwater.pipelines.running.worker_spawn import COMMAND, spawn

logger = logging.getLogger(__name__)

LINE_BYTES_MAX = 64 << 20
"""A report names every file or partition at which a task stands."""


class WorkerProcess:
    """It ends when its standard input does: so it never outlives its owner, however that ends."""

    def __init__(
        self,
        process: "subprocess.Popen[bytes]",
        *,
        orders: asyncio.WriteTransport,
        words: asyncio.StreamReader,
        complaints: asyncio.StreamReader,
    ) -> None:
        self._process = process
        self._orders, self._words, self._complaints = orders, words, complaints
        self._has_ended = asyncio.Event()
        waiting = (asyncio.get_running_loop(),)
        threading.Thread(target=self._wait, args=waiting, name="worker", daemon=True).start()

    @classmethod
    async def start(cls, command: Sequence[str] = COMMAND) -> Self:
        level = logging.getLogger().getEffectiveLevel()
        return await cls.adopt(spawn(command, level=level))

    @classmethod
    async def adopt(cls, process: "subprocess.Popen[bytes]") -> Self:
        """One that `spawn` has started."""
        stdin = process.stdin
        assert stdin is not None, "started with a pipe"
        orders, _ = await asyncio.get_running_loop().connect_write_pipe(asyncio.BaseProtocol, stdin)
        words, complaints = await _reader_of(process.stdout), await _reader_of(process.stderr)
        return cls(process, orders=orders, words=words, complaints=complaints)

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, order: Order) -> None:
        """To one that has just died nothing can be said; `listen` then says so."""
        if not self._orders.is_closing():
            self._orders.write(encode_order(order))

    async def listen(self, hear: Callable[[Word], None]) -> str:
        """Until the process has ended; says how."""
        await asyncio.gather(self._hear_words(hear), self._pass_on_stderr())
        await self._has_ended.wait()
        self._orders.close()
        return how_it_ended(self._process.wait())

    async def leave(self, *, wait_s: float) -> None:
        """Lets the tasks finish what they have begun. `listen` must be running."""
        self.send(LeaveTask())
        try:
            async with asyncio.timeout(wait_s):
                await self._has_ended.wait()
        except TimeoutError:
            logger.warning("worker process %d does not end; it is killed", self.pid)
            self.kill()

    def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()

    async def _hear_words(self, hear: Callable[[Word], None]) -> None:
        while line := await self._words.readline():
            if not line.endswith(b"\n"):
                return  # what a killed process could not finish was never said
            try:
                word = decode_word(line)
            except DecodeError as error:
                logger.warning("worker process %d: %s", self.pid, error)
            else:
                hear(word)

    async def _pass_on_stderr(self) -> None:
        while line := await self._complaints.readline():
            show_on_stderr(line.decode(errors="replace"))

    def _wait(self, loop: asyncio.AbstractEventLoop) -> None:
        self._process.wait()
        with suppress(RuntimeError):  # the loop is closed: nobody asks any more
            loop.call_soon_threadsafe(self._has_ended.set)


async def _reader_of(pipe: IO[bytes] | None) -> asyncio.StreamReader:
    assert pipe is not None, "started with a pipe"
    reader = asyncio.StreamReader(limit=LINE_BYTES_MAX)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    return reader


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
