"""`verify:` of a pipeline file: a task that repeats the comparison."""

import asyncio
import logging
import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from headwater.core_log.foundation.clock import Clock
from headwater.core_log.foundation.errors import HeadwaterError
from headwater.core_log.model.log import Log
from headwater.pipelines.file.loader import LoadedPipeline
from headwater.pipelines.journal.control import VERIFIED, DesiredTaskState, Signal, write_control
from headwater.pipelines.loops.assembly import ensure_topics
from headwater.pipelines.reports import (
    VERIFY,
    GaugesRead,
    RemarksMade,
    StateChanged,
    TaskRun,
    TaskState,
)
from headwater.pipelines.time_travel.verify.result import ComparedSides, TableVerdict
from headwater.pipelines.time_travel.verify.table_selection import subjects_of
from headwater.pipelines.time_travel.verify.verify import Verifier

logger = logging.getLogger(__name__)

LOOK_S_MAX = 10.0
"""A long sleep is divided into short ones: a machine's clock may be set, and somebody may compare
by hand."""
DUE = "verify_due_ms"
"""The gauge of the time at which a comparison is due; one that failed is still due."""


async def run_verifying(task: TaskRun) -> None:
    """Runs for ever. The first comparison is one interval after the last one, or after the start;
    failures are reported and tried again one interval later."""
    loaded, log, clock = task.loaded, task.log, task.clock
    schedule = loaded.spec.verify
    assert schedule is not None, "the task is only there where the file wants it"
    await ensure_topics(loaded, log)
    task.report(StateChanged(loaded.name, VERIFY, "", TaskState.RUNNING))
    compared = frozenset[str]()
    done_ms = _last_ms(task.desired(), compared) or clock.now_ms()
    next_ms = schedule.due_ms(last_ms=done_ms, now_ms=clock.now_ms())
    reported_ms = 0
    while True:
        done_ms = max(done_ms, _last_ms(task.desired(), compared))
        due_ms = schedule.due_ms(last_ms=done_ms, now_ms=done_ms)
        if due_ms != reported_ms:
            task.report(GaugesRead(loaded.name, VERIFY, DUE, due_ms, None))
            reported_ms = due_ms
        left_ms = next_ms - clock.now_ms()
        if left_ms > 0:
            await asyncio.sleep(min(left_ms / 1_000, LOOK_S_MAX))
            continue
        next_ms = schedule.due_ms(last_ms=clock.now_ms(), now_ms=clock.now_ms())
        if task.desired().is_paused:
            continue
        try:
            compared = await verify_once(loaded, log, clock=clock)
        except HeadwaterError as error:
            logger.warning("%s could not be verified: %s", loaded.name, error)
            problem = f"the last comparison failed: {loaded.redaction.scrub(error.problem)}"
            hint = loaded.redaction.scrub(error.hint)
            task.report(RemarksMade(loaded.name, VERIFY, VERIFY, problem, hint))
        else:
            done_ms = clock.now_ms()
            task.report(RemarksMade(loaded.name, VERIFY, VERIFY, "", ""))


async def verify_once(loaded: LoadedPipeline, log: Log, *, clock: Clock) -> frozenset[str]:
    """Returns the names of the source tables that were compared."""
    subjects = await subjects_of(loaded, log)
    verifier = Verifier(loaded, log, clock=clock, is_running=True, note=logger.debug)
    verdicts = await verifier.verify(subjects, ComparedSides(), is_whole=True)
    for verdict in verdicts:
        if verdict.compared.differing:
            logger.error(
                "%s: %d keys of %s differ between the log and %s; headwater verify %s names them",
                loaded.name,
                verdict.compared.differing,
                verdict.subject.target,
                verdict.side,
                loaded.name,
            )
    new = {each.subject.target: each.side for each in verdicts if not each.has_begun}
    for target, side in new.items():
        logger.info("%s: %s waits for its first rows of %s", loaded.name, side, target)
    compared = [each for each in verdicts if each.subject.target not in new]
    return await remember(log, loaded.name, compared, clock=clock)


def _last_ms(desired: DesiredTaskState, tables: Collection[str]) -> int:
    """Returns when all these tables had been compared, by whomever; without names, when any had."""
    times = {each.table: each.at_ms for each in desired.signals if each.kind == VERIFIED}
    if tables:
        return min(times.get(table, 0) for table in tables)
    return max(times.values(), default=0)


PROBLEM_LETTERS_MAX = 500


async def remember(
    log: Log, pipeline: str, verdicts: Sequence[TableVerdict], *, clock: Clock
) -> frozenset[str]:
    """Stores the result by source table, without keys and values; returns the tables' names."""
    by_table: dict[str, list[TableVerdict]] = {}
    for verdict in verdicts:
        for stored in verdict.subject.sources:  # a table that the log lacks has no status either
            by_table.setdefault(str(stored.schema.table), []).append(verdict)
    signals = [
        Signal(VERIFIED, table, secrets.token_hex(8), _options(found))
        for table, found in by_table.items()
    ]
    if signals:
        await write_control(log, pipeline, signals, now_ms=clock.now_ms())
    return frozenset(by_table)


def _options(verdicts: Iterable[TableVerdict]) -> Mapping[str, str]:
    found = list(verdicts)
    problems = (f"{each.side}: {text}" for each in found for text in _problems(each))
    return {
        "differing": str(sum(each.compared.differing for each in found)),
        "rows": str(max(each.compared.log_rows for each in found)),
        "sides": ",".join(each.side for each in found if not each.problem),
        "problem": next(problems, "").partition("\n")[0][:PROBLEM_LETTERS_MAX],
    }


def _problems(verdict: TableVerdict) -> Iterator[str]:
    if verdict.problem:
        yield verdict.problem
    yield from verdict.unread_lines()
    if verdict.left_out:
        yield f"columns that are not compared: {', '.join(sorted(verdict.left_out))}"
