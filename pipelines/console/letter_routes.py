"""Routes of the dead letters: by table and problem, and one with its record."""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from starlette.requests import Request

from headwater.core_log.foundation.errors import ConfigError, HeadwaterError, LogRejected
from headwater.core_log.model.changes import OP_CODES
from headwater.core_log.model.log import Log
from headwater.core_log.rows.codec import SCHEMA_HEADER, codec_for
from headwater.pipelines.console.console_route import API, ConsoleContext, ConsoleRoute
from headwater.pipelines.console.hidden_columns import (
    HIDDEN,
    WHOLE_CHARACTERS_MAX,
    HiddenColumns,
    shorten,
)
from headwater.pipelines.console.shown_records import ShownField
from headwater.pipelines.dead_letters.dead_letter import (
    DeadLetter,
    StoredDeadLetter,
    read_dead_letters,
)
from headwater.pipelines.dead_letters.redrive import foretell
from headwater.pipelines.journal.inventory import pipelines_in
from headwater.pipelines.journal.schemas import SchemaReader
from headwater.pipelines.terminal.record_lines import shown_bytes

LINES_MAX = 200


@dataclass(frozen=True, slots=True)
class DeadLetterGroup:
    """Dead letters of one table with one problem."""

    pipeline: str
    table: str
    task: str
    stage: str
    problem: str
    count: int
    oldest_ms: int
    newest_ms: int


@dataclass(frozen=True, slots=True)
class DeadLetterLine:
    """One dead letter in the list."""

    number: int
    since_ms: int
    table: str
    task: str
    stage: str
    problem: str
    place: str


@dataclass(frozen=True, slots=True)
class DeadLetterPage:
    """One dead letter."""

    line: DeadLetterLine
    kind: str
    """The class of the error."""
    topic: str | None
    partition: int | None
    offset: int | None
    at: str
    """The source's commit, and the place in it."""
    operation: str | None
    key: str | None
    fields: list[ShownField]
    value: str | None
    """As stored, where the record cannot be decoded."""
    fate: str
    """The effect that a redrive would have on it now."""
    is_redrivable: bool


async def letters(console: ConsoleContext, request: Request) -> list[DeadLetterGroup]:
    async with console.open_log() as log:
        found: dict[tuple[str, str, str, str, str], list[StoredDeadLetter]] = {}
        for pipeline in sorted(await pipelines_in(log)):
            for each in await _read(log, pipeline):
                letter = each.dead_letter
                stage = letter.stage.name.lower()
                group = (pipeline, _table_of(letter), letter.task, stage, letter.error)
                found.setdefault(group, []).append(each)
    groups = [
        DeadLetterGroup(
            *group,
            count=len(each),
            oldest_ms=min(one.since_ms for one in each),
            newest_ms=max(one.since_ms for one in each),
        )
        for group, each in found.items()
    ]
    return sorted(groups, key=lambda group: -group.newest_ms)


async def letters_of(console: ConsoleContext, request: Request) -> list[DeadLetterLine]:
    table = request.query_params.get("table")
    async with console.open_log() as log:
        found = await _read(log, request.path_params["pipeline"])
    chosen = [each for each in found if table in (None, _table_of(each.dead_letter))]
    return [_line(each) for each in reversed(chosen[-LINES_MAX:])]


async def letter(console: ConsoleContext, request: Request) -> DeadLetterPage:
    pipeline, number = request.path_params["pipeline"], int(request.path_params["number"])
    async with console.open_log() as log:
        stored = next((e for e in await _read(log, pipeline) if e.number == number), None)
        if stored is None:
            raise ConfigError(
                "the pipeline does not have a dead letter of this number",
                hint="a redrive or a drop may have removed the dead letter",
                pipeline=pipeline,
                number=number,
            )
        [fate] = await foretell(log, pipeline, [stored])
        content = await _content(log, stored.dead_letter, console.hidden, pipeline)
    one = stored.dead_letter
    return DeadLetterPage(
        line=_line(stored),
        kind=one.kind,
        topic=one.topic if one.is_record else None,
        partition=one.partition if one.is_record else None,
        offset=one.offset if one.is_record else None,
        at=one.at,
        operation=content.operation,
        key=content.key,
        fields=content.fields,
        value=content.value,
        fate=fate.fate.value,
        is_redrivable=fate.fate.name == "REDRIVEN",
    )


@dataclass(frozen=True, slots=True)
class _Content:
    operation: str | None
    key: str | None
    fields: list[ShownField]
    value: str | None


async def _content(
    log: Log, dead_letter: DeadLetter, hidden: HiddenColumns, pipeline: str
) -> _Content:
    """The row under the schema that it was written with; bytes where it cannot be decoded."""
    number = dict(dead_letter.headers).get(SCHEMA_HEADER)
    if number is not None and dead_letter.value is not None:
        try:
            stored = await SchemaReader(log).find(dead_letter.topic, int(number))
            changes = codec_for(stored.wire, topic=dead_letter.topic).decode(
                pa.array([dead_letter.key], pa.binary()),
                pa.array([dead_letter.value], pa.binary()),
                stored.schema,
            )
        except (HeadwaterError, ValueError):
            pass
        else:
            known = await hidden.known_schemas(log, pipeline)
            view = hidden.view(pipeline, stored.schema, known)
            [operation], [row] = changes.operations.to_pylist(), changes.rows.to_pylist()
            values = view.row(row, characters_max=WHOLE_CHARACTERS_MAX)
            fields = list(map(ShownField, view.names, values))
            return _Content(OP_CODES[operation], view.key(row), fields, None)
    if hidden.hides_anything:
        return _Content(None, None, [], HIDDEN)
    text = shorten(shown_bytes(dead_letter.value or b""), WHOLE_CHARACTERS_MAX)
    key = None if dead_letter.key is None else shown_bytes(dead_letter.key)
    return _Content(None, key, [], text)


async def _read(log: Log, pipeline: str) -> Sequence[StoredDeadLetter]:
    try:
        return await read_dead_letters(log, pipeline)
    except LogRejected:
        return []  # the pipeline has no topic for them yet


def _line(stored: StoredDeadLetter) -> DeadLetterLine:
    one = stored.dead_letter
    place = f"{one.topic}-{one.partition} offset {one.offset}" if one.is_record else one.at
    return DeadLetterLine(
        stored.number,
        stored.since_ms,
        _table_of(one),
        one.task,
        one.stage.name.lower(),
        one.error,
        place,
    )


def _table_of(dead_letter: DeadLetter) -> str:
    return dead_letter.table or dead_letter.topic


LETTERS = API + "/pipelines/{pipeline}/letters"
ROUTES = (
    ConsoleRoute(
        "GET",
        API + "/letters",
        letters,
        "Dead letters of all pipelines, counted by table and problem.",
        list[DeadLetterGroup],
    ),
    ConsoleRoute(
        "GET",
        LETTERS,
        letters_of,
        "The newest 200 dead letters of a pipeline.",
        list[DeadLetterLine],
        {"table": "Only those of this table."},
    ),
    ConsoleRoute(
        "GET",
        LETTERS + "/{number:count}",
        letter,
        "One dead letter: its reason, its record, and what a redrive would do with it.",
        DeadLetterPage,
    ),
)
