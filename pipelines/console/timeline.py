"""Events of a pipeline and its tables, on one axis of time: schemas, comparisons, commands
and dead letters."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from headwater.core_log.foundation.errors import LogRejected
from headwater.core_log.model.log import Log
from headwater.pipelines.dead_letters.dead_letter import StoredDeadLetter, read_dead_letters
from headwater.pipelines.journal.audit import AuditedAction, read_actions
from headwater.pipelines.journal.schemas import StoredSchema, all_schemas_of, differences

ENTRIES_MAX = 500
MINUTE_MS = 60_000
SCHEMA, COMPARISON, COMMAND, DEAD_LETTER = "schema", "comparison", "command", "dead letter"
DIFFERENCES_MAX = 10
"""More columns than these are counted, not named."""


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """One thing that happened; it has no key and no value of a row."""

    at_ms: int
    kind: str
    """`schema`, `comparison`, `command` or `dead letter`."""
    table: str
    """Empty where it was the whole pipeline."""
    words: str
    who: str
    """Empty where nobody asked for it."""
    is_problem: bool


@dataclass(frozen=True, slots=True)
class Timeline:
    """The newest entries, newest first."""

    entries: list[TimelineEntry]
    is_whole: bool
    """Whether there were no more than are shown."""


async def timeline(
    log: Log, pipeline: str, table: str = "", *, verified: Mapping[str, Any]
) -> Timeline:
    """`verified`: by table the last comparison that the running pipeline tells."""
    schemas = await all_schemas_of(log, pipeline)
    tables = {str(each.schema.table) for each in schemas}
    actions = _actions_on(pipeline, table, await read_actions(log), tables)
    found = [
        *_schema_entries(schemas, table),
        *actions,
        *_comparisons(verified, table, actions),
        *_dead_letter_entries(await _dead_letters(log, pipeline), table),
    ]
    found.sort(key=lambda each: -each.at_ms)
    return Timeline(found[:ENTRIES_MAX], len(found) <= ENTRIES_MAX)


async def _dead_letters(log: Log, pipeline: str) -> Sequence[StoredDeadLetter]:
    try:
        return await read_dead_letters(log, pipeline)
    except LogRejected:
        return []  # the pipeline has no topic for them yet


def _schema_entries(schemas: Iterable[StoredSchema], table: str) -> Iterator[TimelineEntry]:
    by_topic: dict[str, list[StoredSchema]] = {}
    for each in sorted(schemas, key=lambda stored: stored.id):
        by_topic.setdefault(each.topic, []).append(each)
    for versions in by_topic.values():
        if table and str(versions[-1].schema.table) != table:
            continue
        first = versions[0]
        words = f"first schema, {len(first.schema.columns)} columns"
        yield TimelineEntry(first.recorded_ms, SCHEMA, str(first.schema.table), words, "", False)
        for before, after in pairwise(versions):
            words = "; ".join(_difference_words(differences(before, after)))
            words = words or "the schema was written again"
            yield TimelineEntry(
                after.recorded_ms, SCHEMA, str(after.schema.table), words, "", False
            )


def _difference_words(changes: Sequence[Mapping[str, str]]) -> Iterator[str]:
    for change in changes[:DIFFERENCES_MAX]:
        name, before, after = change["column"], change["before"], change["after"]
        match change["what"]:
            case "dropped":
                yield f"column {name} dropped"
            case "added":
                yield f"column {name} added ({after})"
            case "altered":
                yield f"column {name}: {before} → {after}"
            case what:
                yield f"{' '.join(filter(None, (what, name)))}: {before} → {after}"
    if len(changes) > DIFFERENCES_MAX:
        yield f"{len(changes) - DIFFERENCES_MAX} more changes"


def _actions_on(
    pipeline: str, table: str, actions: Iterable[AuditedAction], tables: Collection[str]
) -> list[TimelineEntry]:
    """Actions on the pipeline count for each of its tables."""
    found = []
    for each in actions:
        whose, _, named = each.target.partition("/")
        target = _whole_name(named, tables)
        if whose != pipeline or (table and target not in ("", table)):
            continue
        words = f"{each.command} {'has no known end' if each.ended_ms is None else each.outcome}"
        if each.problem:
            words = f"{each.command}: {each.problem}"
        kind = COMPARISON if each.command == "verify" else COMMAND
        at_ms = each.ended_ms if kind == COMPARISON and each.ended_ms else each.started_ms
        found.append(TimelineEntry(at_ms, kind, target, words, each.user, bool(each.problem)))
    return found


def _whole_name(named: str, tables: Collection[str]) -> str:
    """A command may leave out the schema where no other table has that name."""
    if named in tables:
        return named
    found = [each for each in tables if each.endswith(f".{named}")]
    return found[0] if len(found) == 1 else named


def _comparisons(
    verified: Mapping[str, Any], table: str, actions: Sequence[TimelineEntry]
) -> Iterator[TimelineEntry]:
    """Those of a schedule, which no command has recorded."""
    for name, of in verified.items():
        if of is None or (table and name != table):
            continue
        recorded = [e for e in actions if e.kind == COMPARISON and e.table in ("", name)]
        if any(abs(each.at_ms - of["at_ms"]) < MINUTE_MS for each in recorded):
            continue
        words = of["problem"] or ("equal" if of["is_equal"] else f"{of['differing']} keys differ")
        yield TimelineEntry(
            of["at_ms"], COMPARISON, name, f"verify: {words}", "", not of["is_equal"]
        )


def _dead_letter_entries(
    letters: Iterable[StoredDeadLetter], table: str
) -> Iterator[TimelineEntry]:
    """Those of one minute, table and problem are one entry."""
    counts: Counter[tuple[int, str, str, str]] = Counter()
    for each in letters:
        one = each.dead_letter
        name = one.table or one.topic
        if not table or name == table:
            counts[each.since_ms // MINUTE_MS * MINUTE_MS, name, one.task, one.error] += 1
    for (at_ms, name, task, problem), count in counts.items():
        words = f"{count} {'dead letter' if count == 1 else 'dead letters'} of {task}: {problem}"
        yield TimelineEntry(at_ms, DEAD_LETTER, name, words, "", True)
