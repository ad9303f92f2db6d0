"""Topics that a sink skips because their table is quarantined or paused."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from headwater.core_log.foundation.errors import (
    BatchTooLarge,
    Cure,
    HeadwaterError,
    LogRejected,
    PositionLost,
    RegistryRejected,
    SinkRejected,
    SourceRejected,
    TableFailed,
)
from headwater.pipelines.journal.control import DesiredTaskState

OUTSIDE = (
    SourceRejected,
    SinkRejected,
    RegistryRejected,
    LogRejected,
    BatchTooLarge,
    PositionLost,
    TableFailed,
)
"""Errors whose cause may be cured outside: a right, a slot, a target table. Mistakes in the
pipeline file and rejected records are not among them."""
FIRST_TRY_MS, LONGEST_MS = 60_000, 600_000


@dataclass(frozen=True, slots=True)
class QuarantinedTopic:
    """The reason of a quarantine, and the newest restart command known by then."""

    table: str
    reason: str
    fresh_start: str
    due_ms: int | None = None
    """Time of the next automatic try; None if only a person can help."""
    needs_reopening: bool = False
    """Whether the target table's offsets are unknown."""
    is_rebuilt: bool = False
    """Whether its table is being rebuilt: nothing else may write to the table until that ends."""


class Quarantine:
    """Quarantined and paused topics.

    A quarantine ends by `headwater resume` or `restart` of the table, by a new run, or by an
    automatic try if the cause may be cured outside.
    """

    def __init__(self) -> None:
        self._topics: dict[str, QuarantinedTopic] = {}
        self._tries: dict[str, int] = {}

    def put(
        self,
        topic: str,
        *,
        table: str,
        error: HeadwaterError,
        desired: DesiredTaskState,
        now_ms: int,
        needs_reopening: bool = False,
        is_rebuilt: bool = False,
    ) -> str:
        """Quarantines a topic; returns the message."""
        due_ms = None
        if is_cured_outside(error) and not is_rebuilt:
            due_ms = self._next_try_ms(topic, now_ms)
        reason = reason_of(error_text(error, desired.pipeline, table), due_ms)
        fresh_start = desired.fresh_start(table)
        self._topics[topic] = QuarantinedTopic(
            table, reason, fresh_start, due_ms, needs_reopening, is_rebuilt
        )
        return reason

    def give_up_rebuild(self, table: str, *, now_ms: int) -> int | None:
        """Keeps the topics of a table that could not be rebuilt; returns the time of the next
        automatic try."""
        due_ms = None
        for topic, each in self._topics.items():
            if each.table == table and each.is_rebuilt:
                due_ms = self._next_try_ms(topic, now_ms)
                self._topics[topic] = replace(each, due_ms=due_ms, is_rebuilt=False)
        return due_ms

    def end_rebuild(self, table: str) -> None:
        """Lets the topics of a rebuilt table continue."""
        for topic in [topic for topic, each in self._topics.items() if each.table == table]:
            del self._topics[topic]

    def lift(self, desired: DesiredTaskState, *, now_ms: int) -> Mapping[str, QuarantinedTopic]:
        """Returns topics that may continue."""
        lifted = {
            topic: each
            for topic, each in self._topics.items()
            if not each.is_rebuilt
            and (
                desired.fresh_start(each.table) != each.fresh_start
                or (each.due_ms is not None and each.due_ms <= now_ms)
            )
        }
        for topic in lifted:
            del self._topics[topic]
        return lifted

    def note_progress(self, topic: str) -> None:
        """Records progress: the next failure is retried soon again."""
        self._tries.pop(topic, None)

    @property
    def topics(self) -> frozenset[str]:
        return frozenset(self._topics)

    def _next_try_ms(self, topic: str, now_ms: int) -> int:
        tries = self._tries.get(topic, 0)
        self._tries[topic] = tries + 1
        return now_ms + pause_ms(tries)


def is_cured_outside(error: HeadwaterError) -> bool:
    return error.cure is Cure.TIME or isinstance(error, OUTSIDE)


def pause_ms(tries: int) -> int:
    """Returns the wait before the next try: longer each time, up to a limit."""
    return min(FIRST_TRY_MS << min(tries, 10), LONGEST_MS)


def error_text(error: HeadwaterError, pipeline: str, table: str = "") -> str:
    """Returns the error with the names in its hint's commands filled in."""
    table = table or str(error.facts.get("table", "TABLE"))
    hint = error.hint.replace("PIPELINE/TABLE", f"{pipeline}/{table}").replace("PIPELINE", pipeline)
    return f"{error.statement}\n  hint: {hint}" if hint else error.statement


def reason_of(text: str, due_ms: int | None) -> str:
    """Returns the reason with the time of the next try, if there is one."""
    if due_ms is None:
        return text
    due = datetime.fromtimestamp(due_ms / 1_000, UTC).astimezone()
    return f"{text}\n  next try: {due:%H:%M:%S}, without a command"
