"""A `headwater` command in a process of its own, started without importing anything again."""

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from scripts.owned_process import end_with_owner
from tests.crash import pipeline_process

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(  # for all of a test run, as there is one server for all
    [
        __name__,
        pipeline_process.__name__,
        "headwater.pipelines.cli",
        "headwater.pipelines.commands.run",
        "headwater.pipelines.running.run",
        "headwater.core_log.broker.lifecycle",
        "headwater.core_log.rows.codec",
        "headwater.connectors.postgres.session",
        "sqlalchemy",
        "duckdb",
    ]
)

PATIENCE_S = 240


class CommandProcess:
    """What it says is kept in one file, over all of its lives."""

    def __init__(
        self,
        arguments: Sequence[object],
        *,
        directory: Path,
        output: Path,
        before: Callable[[], None] | None = None,
    ) -> None:
        """`before` is called in the process, before the command is."""
        self._arguments = [str(each) for each in arguments]
        self._directory, self._output, self._before = directory, output, before
        self._process: multiprocessing.process.BaseProcess | None = None
        self.child_kills = 0
        """Of this life."""

    def start(self) -> None:
        assert self._process is None, "one process at a time"
        self._process = PROCESSES.Process(
            target=_run,
            args=(self._arguments, self._directory, self._output, self._before),
            daemon=True,
        )
        self._process.start()
        self.child_kills = 0
        assert self._process.pid is not None, "it has been started"
        end_with_owner(self._process.pid)

    @property
    def is_started(self) -> bool:
        return self._process is not None

    @property
    def pid(self) -> int:
        assert self._process is not None and self._process.pid is not None, "it has been started"
        return self._process.pid

    def poll(self) -> int | None:
        """Its exit code, once it has ended by itself or by others."""
        return None if self._process is None else self._process.exitcode

    def kill(self) -> None:
        """No handler runs, nothing is flushed."""
        assert self._process is not None, "what is killed has been started"
        assert self._process.is_alive(), f"it ended by itself: {self.last_words()}"
        self.end()

    def end(self) -> None:
        """With all that it has started, whatever it does and whether it still runs."""
        if self._process is not None:
            assert self._process.pid is not None, "it has been started"
            with suppress(ProcessLookupError):  # it has not come to lead a group yet
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.kill()
            self.wait()

    def kill_children(self) -> None:
        """Whoever it has started and still runs; it itself goes on."""
        assert self._process is not None, "whose children are killed has been started"
        self.child_kills += 1
        for listed in Path(f"/proc/{self._process.pid}/task").glob("*/children"):
            for child in listed.read_text().split():
                with suppress(ProcessLookupError):
                    os.kill(int(child), signal.SIGKILL)

    def stop(self) -> int:
        """Asks it to end; its exit code."""
        assert self._process is not None and self._process.pid is not None, "it has been started"
        os.kill(self._process.pid, signal.SIGTERM)
        return self.wait()

    def wait(self, patience_s: float = PATIENCE_S) -> int:
        assert self._process is not None, "who is waited for has been started"
        process, self._process = self._process, None
        process.join(patience_s)
        if process.is_alive():
            process.kill()
            process.join()
            raise AssertionError(f"it does not end: {self.last_words()}")
        assert process.exitcode is not None, "a joined process has an exit code"
        return process.exitcode

    def last_words(self) -> str:
        return self._output.read_text(errors="replace")[-4_000:]


def _run(
    arguments: Sequence[str], directory: Path, output: Path, before: Callable[[], None] | None
) -> None:
    from headwater.pipelines.cli import main

    os.setsid()
    with output.open("ab") as said:
        for descriptor in (1, 2):
            os.dup2(said.fileno(), descriptor)
    os.chdir(directory)
    sys.argv = ["headwater", *arguments]
    if before is not None:
        before()
    main()
