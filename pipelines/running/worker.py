"""A worker process: runs the tasks that its owner names."""

import argparse
import asyncio
import logging
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from random import SystemRandom

from headwater.config.redaction import Redaction, set_up_logging
from headwater.core_log.client import KafkaLog
from headwater.core_log.foundation.clock import SystemClock
from headwater.pipelines.file.loader import LoadedPipeline
from headwater.pipelines.reports import OffsetsApplied, RowsMoved
from headwater.pipelines.running.data_directory_lock import kafka_settings, log_opener
from headwater.pipelines.running.supervisor import TaskEnvironment
from headwater.pipelines.running.tasks import (
    Listeners,
    Prepare,
    RunTask,
    TaskAssignment,
    TaskRunner,
    WatchSource,
)
from headwater.pipelines.running.worker_protocol import (
    LeaveTask,
    Order,
    RenewLease,
    StartTask,
    StopTask,
    TaskGone,
    Word,
    decode_order,
    encode_word,
)

STDIN, STDOUT = 0, 1
READ_BYTES = 1 << 16
ORPHAN_S_MAX = 2.0
"""How long a worker may clean up when its owner is gone; nothing it does can count any more."""

FromWire = Callable[[bytes], LoadedPipeline]


def main(run_task: RunTask, prepare: Prepare, watch: WatchSource) -> None:
    parser = argparse.ArgumentParser(prog="headwater.pipelines.running.worker_start")
    parser.add_argument("--stdout", type=int, help="file descriptor of a sink's own output")
    parser.add_argument("--level", type=int, default=logging.INFO, help="lowest level to be logged")
    chosen = parser.parse_args()
    work(
        run_task,
        LoadedPipeline.from_wire,
        stdout=chosen.stdout,
        level=chosen.level,
        prepare=prepare,
        watch=watch,
    )


def work(
    run_task: RunTask,
    from_wire: FromWire,
    *,
    stdout: int | None,
    level: int = logging.INFO,
    prepare: Prepare = lambda *_: None,
    watch: WatchSource | None = None,
) -> None:
    """Returns when the owner has said so; when the owner is gone, the process ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the owner's to answer
    words = os.dup(STDOUT)
    if stdout is not None:
        os.dup2(stdout, STDOUT)
        os.close(stdout)
    worker = _Worker(run_task, from_wire, words, prepare, watch)
    set_up_logging(level, scrub=worker.scrub)
    asyncio.run(worker.run())


class _Worker:
    def __init__(
        self,
        run_task: RunTask,
        from_wire: FromWire,
        words: int,
        prepare: Prepare,
        watch: WatchSource | None,
    ) -> None:
        self._run_task, self._from_wire, self._words = run_task, from_wire, words
        self._prepare, self._watch = prepare, watch
        self._saying = threading.Lock()
        self._orders: asyncio.Queue[Order | None] = asyncio.Queue()
        self._redactions: dict[str, Redaction] = {}

    def scrub(self, text: str) -> str:
        """Takes the secrets of every pipeline that was ever run here out of a log line."""
        for redaction in self._redactions.values():
            text = redaction.scrub(text)
        return text

    def _keep_unsaid(self, loaded: "LoadedPipeline") -> None:
        known = self._redactions.get(loaded.name, Redaction())
        self._redactions[loaded.name] = known.merge([loaded.redaction])

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._listen, args=(loop,), daemon=True).start()
        bootstraps: dict[str, tuple[str, ...]] = {}

        def client_for(loaded: LoadedPipeline) -> KafkaLog:
            return KafkaLog(kafka_settings(loaded, bootstraps[loaded.name]))

        say = ReportBuffer(self.say, loop)
        async with asyncio.TaskGroup() as tasks:
            listeners = Listeners(say, say, lambda task: say(TaskGone(task)))
            around = TaskEnvironment(SystemClock(), SystemRandom(), keep_unsaid=self._keep_unsaid)
            runner = TaskRunner(
                tasks,
                self._run_task,
                log_opener(client_for),
                listeners,
                around,
                prepare=self._prepare,
                watch=self._watch,
            )
            lease: asyncio.TimerHandle | None = None
            while (order := await self._orders.get()) is not None:
                match order:
                    case RenewLease():
                        if lease is not None:
                            lease.cancel()
                        lease = loop.call_later(order.for_ms / 1_000, runner.expire)
                    case StartTask():
                        bootstraps[order.task.pipeline] = order.bootstrap
                        loaded = self._from_wire(order.pipeline)
                        self._keep_unsaid(loaded)
                        runner.start(TaskAssignment(loaded, order.task.name, order.until_end))
                    case StopTask():
                        tasks.create_task(runner.stop(order.task))
                    case LeaveTask():
                        await runner.stop_all()
                        break
            else:
                runner.cancel_all()
        say.flush()

    def say(self, word: Word) -> None:
        """From any thread. Without an owner there is nobody to tell, and `_listen` ends us."""
        line = memoryview(encode_word(word))
        with self._saying:
            try:
                while line:
                    line = line[os.write(self._words, line) :]
            except BrokenPipeError:
                pass

    def _listen(self, loop: asyncio.AbstractEventLoop) -> None:
        """In a thread of its own, so that the owner's end is heard however busy the loop is."""
        rest = b""
        while part := os.read(STDIN, READ_BYTES):
            *lines, rest = (rest + part).split(b"\n")
            for line in lines:
                loop.call_soon_threadsafe(self._orders.put_nowait, decode_order(line))
        orphan = threading.Timer(ORPHAN_S_MAX, os._exit, (1,))
        orphan.daemon = True
        orphan.start()
        loop.call_soon_threadsafe(self._orders.put_nowait, None)


GATHER_S = 0.05


class ReportBuffer:
    """A buffer that adds up counts and offsets of tasks for a moment; the first after quiet goes at
    once. Everything else goes at once, too, and takes what came before it along."""

    def __init__(self, say: Callable[[Word], None], loop: asyncio.AbstractEventLoop) -> None:
        self._say, self._loop = say, loop
        self._moved: dict[tuple[str, str, str], RowsMoved] = {}
        self._stood: dict[tuple[str, str], OffsetsApplied] = {}
        self._lock = threading.Lock()
        """Tasks report from threads as well."""
        self.is_busy = False
        """Something was said a moment ago."""

    def __call__(self, word: Word) -> None:
        with self._lock:
            if not self._keeps(word):
                self._flush()
                self._say(word)
                return
            if self.is_busy:
                return
            self.is_busy = True
            self._flush()
        self._loop.call_soon_threadsafe(self._loop.call_later, GATHER_S, self._on_time)

    def flush(self) -> None:
        """Everything that there is."""
        with self._lock:
            self._flush()

    def _keeps(self, word: Word) -> bool:
        match word:
            case RowsMoved():
                moved = (word.pipeline, word.task, word.table)
                known = self._moved.get(moved)
                self._moved[moved] = word if known is None else _sum(known, word)
                return True
            case OffsetsApplied():
                task = (word.pipeline, word.task)
                before = self._stood.get(task)
                if before is not None:
                    word = replace(word, positions={**before.positions, **word.positions})
                self._stood[task] = word
                return True
        return False

    def _on_time(self) -> None:
        with self._lock:
            if self._moved or self._stood:
                self._flush()
                self._loop.call_later(GATHER_S, self._on_time)
            else:
                self.is_busy = False

    def _flush(self) -> None:
        moved, self._moved = self._moved, {}
        stood, self._stood = self._stood, {}
        words: list[Word] = [*moved.values(), *stood.values()]
        for word in words:
            self._say(word)


def _sum(one: RowsMoved, other: RowsMoved) -> RowsMoved:
    return replace(other, rows=one.rows + other.rows, bytes=one.bytes + other.bytes)
