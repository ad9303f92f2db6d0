"""`headwater dlq`: shows, redrives and drops dead letters."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from headwater.core_log.foundation.clock import unix_ms
from headwater.core_log.foundation.errors import ConfigError, LogRejected
from headwater.pipelines.terminal.control_writer import confirm, yes_option
from headwater.pipelines.terminal.log_address import LogAddress, log_options
from headwater.pipelines.terminal.output import (
    Output,
    format_count,
    printable,
    shared_options,
    table,
)
from headwater.pipelines.terminal.quantities import time_text
from headwater.pipelines.terminal.signals import run_until_signal

if TYPE_CHECKING:
    from headwater.core_log.client import KafkaLog
    from headwater.pipelines.dead_letters.dead_letter import DeadLetter, StoredDeadLetter
    from headwater.pipelines.dead_letters.redrive import Redriven
    from headwater.pipelines.journal.schemas import SchemaReader

PIPELINE = click.argument("pipeline")
TABLE = click.option(
    "--table", "of_table", metavar="TABLE", help="Only dead letters of this table."
)
LIMIT = click.option(
    "--limit", type=click.IntRange(1), help="The number of dead letters, oldest first."
)
NUMBER = click.option(
    "--number", "numbers", type=click.IntRange(0), multiple=True,
    help="Only the dead letter of this number in `show`; may be repeated.",
)  # fmt: skip


@click.group()
def dlq() -> None:
    """Show records that could not be applied, redrive them, or drop them."""


@dlq.command()
@PIPELINE
@TABLE
@log_options
@shared_options
@click.pass_obj
def ls(output: Output, pipeline: str, of_table: str | None, address: LogAddress) -> None:
    """Count the dead letters of PIPELINE by table and problem."""
    dead_letters = run_until_signal(find_dead_letters(address, pipeline, of_table, (), None))
    groups: dict[tuple[str, str, str, str], list[StoredDeadLetter]] = {}
    for each in dead_letters:
        dead_letter = each.dead_letter
        group = (
            table_of(dead_letter),
            dead_letter.task,
            dead_letter.stage.name.lower(),
            dead_letter.error,
        )
        groups.setdefault(group, []).append(each)
    rows = [
        {
            "table": name,
            "task": task,
            "stage": stage,
            "records": len(group),
            "oldest": time_text(min(each.since_ms for each in group)),
            "newest": time_text(max(each.since_ms for each in group)),
            "problem": problem,
        }
        for (name, task, stage, problem), group in sorted(groups.items())
    ]
    head = ("TABLE", "TASK", "STAGE", "RECORDS", "OLDEST", "NEWEST", "PROBLEM")
    cells = [
        [printable(str(cell)) if isinstance(cell, str) else cell for cell in row.values()]
        for row in rows
    ]
    output.result(rows, table(head, cells) if rows else [])
    if not rows:
        output.note(f"{pipeline} has no dead letters")


@dlq.command()
@PIPELINE
@TABLE
@NUMBER
@LIMIT
@log_options
@shared_options
@click.pass_obj
def show(
    output: Output,
    pipeline: str,
    of_table: str | None,
    numbers: tuple[int, ...],
    limit: int | None,
    address: LogAddress,
) -> None:
    """Show the dead letters of PIPELINE: the problem, the origin and the contents of each."""

    async def work() -> list[tuple[dict[str, object], list[str]]]:
        from headwater.pipelines.journal.schemas import SchemaReader

        async with address.open_or_own() as log:
            schemas = SchemaReader(log)
            dead_letters = await choose_dead_letters(log, pipeline, of_table, numbers, limit)
            return [await describe_dead_letter(each, schemas) for each in dead_letters]

    dead_letters = run_until_signal(work())
    output.result(
        [facts for facts, _ in dead_letters], (line for _, lines in dead_letters for line in lines)
    )
    if not dead_letters:
        output.note(f"{pipeline} does not have these dead letters")


@dlq.command()
@PIPELINE
@TABLE
@NUMBER
@LIMIT
@click.option("--dry-run", is_flag=True, help="Show what would become of each, and do nothing.")
@log_options
@shared_options
@click.pass_obj
def redrive(
    output: Output,
    pipeline: str,
    of_table: str | None,
    numbers: tuple[int, ...],
    limit: int | None,
    dry_run: bool,
    address: LogAddress,
) -> None:
    """Put dead letters of PIPELINE back into their topics, after the cause is removed.

    Every sink of the pipeline gets them again. A dead letter stays if a newer record of its key
    exists: an old value never replaces a newer row.
    """

    async def work() -> "list[Redriven]":
        from headwater.pipelines.dead_letters.redrive import foretell
        from headwater.pipelines.dead_letters.redrive import redrive as put_back
        from headwater.pipelines.journal.audit import audit

        async with address.open_or_own() as log:
            dead_letters = await choose_dead_letters(log, pipeline, of_table, numbers, limit)
            if dry_run:
                return await foretell(log, pipeline, dead_letters)
            options = {"table": of_table, "dead_letters": len(dead_letters)}
            async with audit(log, "dlq redrive", pipeline, options):
                now_ms = unix_ms()
                return await put_back(log, pipeline, dead_letters, now_ms=now_ms)

    done = run_until_signal(work())
    facts = [
        {
            "number": each.stored.number,
            "table": table_of(each.stored.dead_letter),
            "outcome": each.fate.name.lower(),
        }
        for each in done
    ]
    output.result(facts, (f"#{each.stored.number} {each.fate.value}" for each in done))
    if not done:
        output.note(f"{pipeline} does not have these dead letters")


@dlq.command()
@PIPELINE
@TABLE
@NUMBER
@LIMIT
@click.option("--all", "every", is_flag=True, help="All of them.")
@yes_option
@log_options
@shared_options
@click.pass_obj
def drop(
    output: Output,
    pipeline: str,
    of_table: str | None,
    numbers: tuple[int, ...],
    limit: int | None,
    every: bool,
    yes: bool,
    address: LogAddress,
) -> None:
    """Drop dead letters of PIPELINE for good."""
    if not (every or of_table or numbers):
        raise ConfigError(
            "no dead letters are selected", hint="add --number N, --table TABLE or --all"
        )
    which = "every dead letter" if every else "these dead letters"
    confirm(f"drop {which} of {pipeline}?", yes=yes)

    async def work() -> "list[StoredDeadLetter]":
        from headwater.pipelines.dead_letters.dead_letter import dead_letter_home, encode_removals
        from headwater.pipelines.journal.audit import audit

        async with address.open_or_own() as log:
            dead_letters = await choose_dead_letters(log, pipeline, of_table, numbers, limit)
            gone = [each.dead_letter for each in dead_letters]
            options = {"table": of_table, "dead_letters": len(gone)}
            async with audit(log, "dlq drop", pipeline, options):
                for batch in encode_removals(gone, now_ms=unix_ms()):
                    await log.append(dead_letter_home(pipeline), batch)
            return dead_letters

    dropped = run_until_signal(work())
    facts = {"dropped": [each.number for each in dropped]}
    output.result(facts, [f"dropped {format_count(len(dropped), 'dead letter')}"])


async def find_dead_letters(
    address: LogAddress,
    pipeline: str,
    of_table: str | None,
    numbers: Sequence[int],
    limit: int | None,
) -> "list[StoredDeadLetter]":
    async with address.open_or_own() as log:
        return await choose_dead_letters(log, pipeline, of_table, numbers, limit)


async def choose_dead_letters(
    log: "KafkaLog",
    pipeline: str,
    of_table: str | None,
    numbers: Sequence[int],
    limit: int | None,
) -> "list[StoredDeadLetter]":
    from headwater.pipelines.dead_letters.dead_letter import read_dead_letters
    from headwater.pipelines.terminal.control_writer import find_table

    try:
        dead_letters = await read_dead_letters(log, pipeline)
    except LogRejected as error:
        raise ConfigError(
            "the log has no pipeline of this name",
            hint="headwater topics ls shows the pipelines' topics",
            pipeline=pipeline,
        ) from error
    if numbers:
        if missing := set(numbers) - {each.number for each in dead_letters}:
            raise ConfigError(
                "the pipeline does not have a dead letter of this number",
                hint=f"headwater dlq show {pipeline}",
                number=min(missing),
            )
        dead_letters = [each for each in dead_letters if each.number in numbers]
    if of_table is not None:
        known = {table_of(each.dead_letter) for each in dead_letters}
        name = find_table(of_table, known, pipeline=pipeline) if known else of_table
        dead_letters = [each for each in dead_letters if table_of(each.dead_letter) == name]
    return dead_letters[:limit]


def table_of(dead_letter: "DeadLetter") -> str:
    return dead_letter.table or dead_letter.topic


async def describe_dead_letter(
    stored: "StoredDeadLetter", schemas: "SchemaReader"
) -> tuple[dict[str, object], list[str]]:
    """Returns a dead letter as JSON for programs, and as lines for people."""
    from headwater.pipelines.terminal.record_lines import content_of

    dead_letter, content = stored.dead_letter, await content_of(stored.dead_letter, schemas)
    place = (
        f"{dead_letter.topic}-{dead_letter.partition} offset {dead_letter.offset}"
        if dead_letter.is_record
        else dead_letter.at
    )
    facts: dict[str, object] = {
        "number": stored.number,
        "since": time_text(stored.since_ms),
        "table": table_of(dead_letter),
        "task": dead_letter.task,
        "stage": dead_letter.stage.name.lower(),
        "problem": dead_letter.error,
        "kind": dead_letter.kind,
        "topic": dead_letter.topic or None,
        "partition": dead_letter.partition if dead_letter.is_record else None,
        "offset": dead_letter.offset if dead_letter.is_record else None,
        "at": dead_letter.at or None,
        "content": content,
    }
    return facts, list(lines_of(stored, place, content))


def lines_of(stored: "StoredDeadLetter", place: str, content: object) -> Iterator[str]:
    import json

    dead_letter = stored.dead_letter
    yield printable(f"#{stored.number}  {table_of(dead_letter)}  {time_text(stored.since_ms)}")
    origin = f"{dead_letter.kind}, {dead_letter.task}, {dead_letter.stage.name.lower()}"
    yield printable(f"    problem  {dead_letter.error} ({origin})")
    yield printable(
        f"    place    {place}"
        + (f", at {dead_letter.at}" if dead_letter.is_record and dead_letter.at else "")
    )
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    yield f"    content  {printable(text)}"
