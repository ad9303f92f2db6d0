"""What verifying has found, kept in the log, so that `status` knows it after any restart."""

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence

from headwater.core_log.foundation.clock import Clock
from headwater.core_log.model.log import Log
from headwater.pipelines.journal.control import VERIFIED, Signal, write_control
from headwater.pipelines.time_travel.verify.result import TableVerdict

PROBLEM_LETTERS_MAX = 500


async def remember(
    log: Log, pipeline: str, verdicts: Sequence[TableVerdict], *, clock: Clock
) -> None:
    """By the tables of the source; no key and no value of a row is kept."""
    by_table: dict[str, list[TableVerdict]] = {}
    for verdict in verdicts:
        for stored in verdict.subject.sources:
            by_table.setdefault(str(stored.schema.table), []).append(verdict)
    wishes = [
        Signal(VERIFIED, table, secrets.token_hex(8), _options(found))
        for table, found in by_table.items()
    ]
    if wishes:
        await write_control(log, pipeline, wishes, now_ms=clock.now_ms())


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
        yield f"not compared are the columns {', '.join(sorted(verdict.left_out))}"
