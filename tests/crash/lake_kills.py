"""Who is killed at which moment while Spark fills a lake; met in whichever process gets there."""

import os
import signal
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

Victim = Literal["driver", "executor", "worker", "broker"]
Moment = Literal["reading", "writing", "written", "committing", "linking", "committed"]

PLACE = "HEADWATER_KILLS"
"""Names the directory of the plan, for processes that nobody hands an argument."""


class Kill(NamedTuple):
    """The victim dies when anybody comes to the moment for the `number`-th time."""

    victim: Victim
    moment: Moment
    number: int = 1

    def __str__(self) -> str:
        return f"{self.victim}-{self.moment}-{self.number}"


KILLS = (
    Kill("worker", "reading"),
    Kill("broker", "reading"),
    Kill("driver", "committing"),
    Kill("executor", "committed"),
    Kill("driver", "reading"),
    Kill("executor", "writing"),
    Kill("broker", "writing"),
    Kill("driver", "linking"),
    Kill("worker", "written", 2),
    Kill("executor", "reading", 3),
    Kill("driver", "committed", 2),
    Kill("broker", "committing"),
    Kill("worker", "writing", 3),
    Kill("driver", "written", 2),
    Kill("executor", "committing", 2),
    Kill("broker", "committed"),
    Kill("driver", "linking", 2),
    Kill("worker", "reading", 4),
    Kill("executor", "written", 3),
    Kill("driver", "writing"),
)


@dataclass(frozen=True, slots=True)
class Plan:
    """Kills in their order, each the name of a file: who renames it first has met it."""

    place: Path

    def write(self, kills: Iterable[Kill]) -> None:
        for each in ("waiting", "done", "pids", "executors"):
            (self.place / each).mkdir(parents=True, exist_ok=True)
        for number, kill in enumerate(kills):
            (self.place / "waiting" / f"{number:04}-{kill}").touch()

    def left(self) -> Sequence[str]:
        return sorted(each.name for each in (self.place / "waiting").iterdir())

    def know(self, victim: Victim, pid: int) -> None:
        path = self.place / "pids" / victim
        fresh = path.with_suffix(f".{pid}")
        fresh.write_text(str(pid))
        fresh.replace(path)

    def know_executor(self, pid: int) -> None:
        (self.place / "executors" / str(pid)).touch()

    def meet(self, moment: Moment) -> None:
        """Kills whoever is to die, if it is time."""
        left = self.left()
        if not left:
            return
        order, victim, awaited, number = left[0].split("-")
        if awaited != moment:
            return
        waiting = self.place / "waiting"
        after = self.place / "done" / left[0]
        if int(number) > 1:
            after = waiting / f"{order}-{victim}-{awaited}-{int(number) - 1}"
        with suppress(FileNotFoundError):  # somebody else has met it at the same time
            (waiting / left[0]).rename(after)
            if int(number) == 1:
                self._kill(victim)

    def _kill(self, victim: str) -> None:
        if victim == "worker":
            os.kill(os.getpid(), signal.SIGKILL)
        elif victim == "executor":
            for each in (self.place / "executors").iterdir():
                with suppress(ProcessLookupError):
                    os.kill(int(each.name), signal.SIGKILL)
                each.unlink(missing_ok=True)
        else:
            os.kill(int((self.place / "pids" / victim).read_text()), signal.SIGKILL)


def watch_tasks(plan: Plan) -> None:
    """In a process whose children do the tasks of an executor."""
    from headwater.pipelines.loops.deliver.split_reader import LogSplitReader
    from headwater.sinks.spark.storage_location import StorageLocation

    plan.know_executor(os.getppid())
    read, writing = LogSplitReader.read, StorageLocation.writing

    def watched_read(reader: LogSplitReader, *arguments: Any) -> Iterator[Any]:
        for changes in read(reader, *arguments):
            plan.meet("reading")
            yield changes

    @contextmanager
    def watched_writing(place: StorageLocation, name: str) -> Iterator[Any]:
        plan.meet("writing")
        with writing(place, name) as file:
            yield file
        plan.meet("written")

    LogSplitReader.read = watched_read  # type: ignore[assignment,method-assign]
    StorageLocation.writing = watched_writing  # type: ignore[assignment,method-assign]


def watch_commits(place: Path) -> None:
    """In the process of the pipeline, before it runs."""
    from headwater.sinks.spark.lake_table_writer import LakeTableWriter

    plan = Plan(place)
    os.environ[PLACE] = str(place)
    plan.know("driver", os.getpid())
    commit, link = LakeTableWriter.commit, os.link

    def watched_commit(table_writer: LakeTableWriter, *arguments: Any, **named: Any) -> bool:
        plan.meet("committing")
        is_done = commit(table_writer, *arguments, **named)
        plan.meet("committed")
        return is_done

    def watched_link(source: Any, name: Any, **named: Any) -> None:
        if "_delta_log" in str(name):
            plan.meet("linking")
        link(source, name, **named)

    LakeTableWriter.commit = watched_commit  # type: ignore[assignment,method-assign]
    os.link = watched_link  # type: ignore[assignment]
