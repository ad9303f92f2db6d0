"""A worker whose tasks follow a script instead of moving rows."""

import argparse
import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from headwater.config.redaction import Redaction
from headwater.core_log.foundation.errors import SinkRejected
from headwater.pipelines.file.spec import PipelineSpec
from headwater.pipelines.reports import RowsMoved, StateChanged, TaskRun, TaskState
from headwater.pipelines.running import worker
from tests.budget import PATIENCE_S

COMMAND = (sys.executable, "-m", "tests.pipelines.running.fake_tasks")


@dataclass(frozen=True)
class FakePipeline:
    """What a runtime needs of a loaded pipeline: names, and here what each task does."""

    name: str
    acts: Mapping[str, str]
    """Task to the name of a function below."""
    path: Path
    workers: str | int = "auto"

    @property
    def spec(self) -> PipelineSpec:
        return PipelineSpec.model_validate({"pipeline": self.name, "workers": self.workers})

    @property
    def directory(self) -> Path:
        return self.path

    @property
    def log_path(self) -> Path:
        return self.path / "data"

    @property
    def source(self) -> Any:
        return self._part("source")

    @property
    def sinks(self) -> tuple[Any, ...]:
        return tuple(self._part(name) for name in self.acts if name != "source")

    @property
    def content(self) -> Mapping[str, Any]:
        return {"pipeline": self.name}

    def with_secrets_of_now(self) -> "FakePipeline":
        return self

    @property
    def redaction(self) -> Redaction:
        return Redaction()

    def _part(self, name: str) -> Any:
        content = {"act": self.acts[name]}
        return SimpleNamespace(name=name, kind="fake", content=content, settings=None)

    def to_wire(self) -> bytes:
        return json.dumps([self.name, self.acts, str(self.path), self.workers]).encode()

    @staticmethod
    def from_wire(content: bytes) -> "FakePipeline":
        name, acts, path, workers = json.loads(content)
        return FakePipeline(name, acts, Path(path), workers)


async def run_task(task: TaskRun) -> None:
    loaded: Any = task.loaded
    name, report = task.name, task.report
    act = ACTS[loaded.acts[name]]
    report(StateChanged(loaded.name, name, "", TaskState.RUNNING, str(os.getpid())))
    if task.until_end and loaded.acts[name] == "wait":
        return
    await act(loaded.path, name, lambda: report(RowsMoved(loaded.name, name, "t", 1, 1, 0, 0)))


async def wait(notes: Path, task: str, move: Callable[[], None]) -> None:
    """Leaves a note when it has cleaned up."""
    move()
    try:
        await asyncio.Event().wait()
    finally:
        await asyncio.sleep(0)
        (notes / f"{task}-cleaned").write_text(str(time.monotonic_ns()))


async def end(notes: Path, task: str, move: Callable[[], None]) -> None:
    move()


async def fail(notes: Path, task: str, move: Callable[[], None]) -> None:
    raise SinkRejected("the table has another key")


async def die(notes: Path, task: str, move: Callable[[], None]) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def speak(notes: Path, task: str, move: Callable[[], None]) -> None:
    """In one write, as sinks do: others write there too. It cleans up however busy the machine
    is."""
    worker.ORPHAN_S_MAX = PATIENCE_S
    sys.stdout.write("a row for stdout\n")
    sys.stdout.flush()
    await wait(notes, task, move)


async def hang(notes: Path, task: str, move: Callable[[], None]) -> None:
    """Computes for ever without letting the loop breathe."""
    move()
    while True:
        sum(range(1_000))


ACTS = {each.__name__: each for each in (wait, end, fail, die, speak, hang)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--stdout", type=int)
    parser.add_argument("--level", type=int)
    from_wire: Any = FakePipeline.from_wire
    worker.work(run_task, from_wire, stdout=parser.parse_args().stdout)


if __name__ == "__main__":
    main()
