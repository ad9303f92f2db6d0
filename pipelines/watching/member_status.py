"""One picture of tasks that run on several machines: each run tells the others through the log what
it sees of its own."""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headwater.core_log.foundation.clock import Clock
from headwater.core_log.foundation.errors import HeadwaterError
from headwater.pipelines.journal.member_topic import MemberTopic
from headwater.pipelines.reports import StateChanged, TaskState
from headwater.pipelines.watching.status import StatusBoard
from headwater.pipelines.watching.status_screen import WORST_FIRST
from headwater.pipelines.watching.task_status import SOURCE, Json

logger = logging.getLogger(__name__)

INTERVAL_S = 2.0
NOBODY = "no run has it yet"

Task = tuple[str, str]


@dataclass(frozen=True, slots=True)
class RunsNow:
    """The group as this member sees it."""

    instance: str
    members: Mapping[str, str] = field(default_factory=dict)
    """Names by instance."""
    generation: int = -1
    here: Collection[Task] = ()
    shared: Collection[Task] = ()
    """All tasks of the pipelines that this member has files of."""


class MemberStatus:
    def __init__(
        self, topic: MemberTopic, board: StatusBoard, look: Callable[[], RunsNow], clock: Clock
    ) -> None:
        self._topic, self._board, self._look, self._clock = topic, board, look, clock
        self._others: Mapping[str, Mapping[str, Any]] = {}

    async def run(self) -> None:
        """Runs until it is cancelled; costs nothing while nobody else is there."""
        while True:
            try:
                await self._exchange()
            except HeadwaterError as error:
                logger.debug("the status of other runs is unknown: %s", error)
            await asyncio.sleep(INTERVAL_S)

    async def _exchange(self) -> None:
        now = self._look()
        if len(now.members) < 2:
            self._others = {}
            return
        own = only(self._board.own_snapshot()["pipelines"], now.here)
        said = {"generation": now.generation, "pipelines": own}
        await self._topic.say(now.instance, said, now_ms=self._clock.now_ms())
        others = await self._topic.statuses()
        self._others = {
            instance: others[instance]
            for instance in now.members
            if instance in others and instance != now.instance
        }

    def merge(self, own: Json) -> Json:
        """Returns the picture of all members in place of that of this one."""
        now = self._look()
        names = distinct_names(now.members)
        mine = name_member(only(own["pipelines"], now.here), names.get(now.instance, ""))
        known = [mine]
        by_generation = sorted(
            self._others.items(), key=lambda each: int(each[1]["generation"]), reverse=True
        )
        known += [
            name_member(said["pipelines"], names.get(each, "")) for each, said in by_generation
        ]
        shown = {
            (name, task)
            for each in known
            for name, found in each.items()
            for task in found["tasks"]
        }
        waiting = self._waiting(own["pipelines"], set(now.shared) - shown)
        return {
            **own,
            "members": sorted(names.values()),
            "pipelines": merge_all([*known, waiting]),
        }

    def _waiting(self, own: Json, tasks: Iterable[Task]) -> Json:
        """Tasks of which nobody says anything: they are on their way, or the log is away."""
        board = StatusBoard(self._clock)
        for name, task in sorted(tasks):
            facts = own.get(name, {"tasks": {}})["tasks"].get(task, {})
            is_retrying = facts.get("state") == TaskState.RETRYING.value
            state, reason = (
                (TaskState.RETRYING, facts["reason"])
                if is_retrying
                else (TaskState.STARTING, NOBODY)
            )
            board(StateChanged(name, task, "", state, reason))
        found: Json = board.own_snapshot()["pipelines"]
        return name_member(found, "")


def only(pipelines: Json, tasks: Collection[Task]) -> Json:
    """Returns the status without other tasks."""
    found = {}
    for name, pipeline in pipelines.items():
        kept = {task: each for task, each in pipeline["tasks"].items() if (name, task) in tasks}
        if kept:
            tables = {
                table: {
                    **line,
                    "tasks": {task: each for task, each in line["tasks"].items() if task in kept},
                }
                for table, line in pipeline["tables"].items()
            }
            found[name] = {**pipeline, "tasks": kept, "tables": tables}
    return found


def name_member(pipelines: Json, member: str) -> Json:
    """Returns the status with the member's name at each task."""
    return {
        name: {
            **pipeline,
            "tasks": {task: {**each, "member": member} for task, each in pipeline["tasks"].items()},
        }
        for name, pipeline in pipelines.items()
    }


def merge_all(known: Sequence[Json]) -> Json:
    """Merges what several say; the first one that names a task counts."""
    names = dict.fromkeys(name for each in known for name in each)
    return {name: _merge([each[name] for each in known if name in each]) for name in sorted(names)}


def _merge(parts: Sequence[Json]) -> Json:
    tasks: Json = {}
    for part in parts:
        tasks = {**part["tasks"], **tasks}
    order = sorted(tasks, key=lambda task: (task != SOURCE, task))
    worst = min(tasks.values(), key=lambda task: WORST_FIRST.index(task["state"]))
    tables = dict.fromkeys(table for part in parts for table in part["tables"])
    return {
        "state": worst["state"],
        "reason": worst["reason"],
        "since_ms": worst["since_ms"],
        "tasks": {task: tasks[task] for task in order},
        "tables": {
            table: _merge_table(
                [part["tables"][table] for part in parts if table in part["tables"]]
            )
            for table in tables
        },
    }


def _merge_table(lines: Sequence[Json]) -> Json:
    tasks: Json = {}
    for line in lines:
        tasks = {**line["tasks"], **tasks}
    said = [line for line in lines if line["tasks"]] or lines
    worst = min(said, key=lambda line: WORST_FIRST.index(line["state"]))
    sinks = [facts for task, facts in tasks.items() if task != SOURCE]
    lags = [each["lag_ms"] for each in sinks or tasks.values() if each["lag_ms"] is not None]
    entering = [tasks[SOURCE]] if SOURCE in tasks else sinks
    readings = [line["snapshot"] for line in lines if line["snapshot"]]
    return {
        "state": worst["state"],
        "reason": worst["reason"],
        "since_ms": worst["since_ms"],
        "rows_per_s": max((each["rows_per_s"] for each in entering), default=0.0),
        "lag_ms": max(lags, default=None),
        "dead_letters": sum(each["dead_letters"] for each in tasks.values()),
        "dead_letter_problem": next(
            (line["dead_letter_problem"] for line in lines if line["dead_letter_problem"]), ""
        ),
        "snapshot": min(readings, key=lambda each: bool(each["is_done"]), default=None),
        "verified": next((line["verified"] for line in lines if line["verified"]), None),
        "tasks": tasks,
    }


def distinct_names(members: Mapping[str, str]) -> Mapping[str, str]:
    """Returns names by which people tell members apart: hosts, as a rule."""
    names = list(members.values())
    return {
        instance: name if names.count(name) == 1 else f"{name}/{instance[:6]}"
        for instance, name in members.items()
    }
