"""`headwater plan`: shows what a run would create and change; changes nothing."""

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headwater.pipelines.terminal.log_address import data_option
from headwater.pipelines.terminal.output import (
    DifferencesFound,
    Output,
    format_count,
    printable,
    shared_options,
    table,
)

if TYPE_CHECKING:
    from headwater.pipelines.preview.plan import Difference, Plan
    from headwater.pipelines.preview.sample import SampledRows


HIDING = ("mask of ", "drop of ")
"""Start of the differences after which more values are masked."""


@click.command()
@click.argument("path", type=click.Path(path_type=Path), default=Path("pipeline.yaml"))
@click.option(
    "--sample",
    type=click.IntRange(min=1),
    metavar="N",
    help="Show N rows of each table before and after the transforms.",
)
@click.option(
    "--ddl",
    multiple=True,
    metavar="SQL",
    help="Show only the effects of this ALTER TABLE; may be repeated.",
)
@data_option
@shared_options
@click.pass_obj
def plan(
    output: Output, path: Path, sample: int | None, ddl: tuple[str, ...], data: Path | None
) -> None:
    """Show the topics, tables and statements of a run's start.

    At a PostgreSQL source a publication and a slot are created. A table that cannot be planned is
    named with the reason, and the exit code is then 4; all others are shown.

    PATH is a pipeline file or a directory of them. Differences between the file and existing topics
    are shown; those that need new topics are marked.

    With --ddl the statement is tried on an empty temporary copy of its table, of which nothing
    stays. The output says whether the stream brings the change, it is followed in place, the table
    is read again (with rows, bytes, time and free space) or quarantined, and what each target does.
    The table itself is not changed. Sources of PostgreSQL, MySQL and MariaDB can do it.
    """
    asyncio.run(_plan_ddl(output, path, data, ddl) if ddl else _plan(output, path, data, sample))


async def _plan_ddl(
    output: Output, path: Path, place: Path | None, statements: tuple[str, ...]
) -> None:
    from headwater.core_log.foundation.clock import SystemClock
    from headwater.pipelines.file.loader import load_given
    from headwater.pipelines.preview.ddl_plan import ddl_lines, ddl_plans
    from headwater.pipelines.terminal.log_place import log_as_found

    data: list[dict[str, Any]] = []
    lines: list[str] = []
    for loaded in load_given(output, path, data=place):
        async with log_as_found(loaded) as log:
            found = await ddl_plans(loaded, log, statements, clock=SystemClock())
        data.append({"pipeline": loaded.name, "ddl": [each.as_json() for each in found]})
        lines += ddl_lines(loaded.name, found)
    output.result(data, lines)


async def _plan(output: Output, path: Path, place: Path | None, sample: int | None) -> None:
    from headwater.core_log.foundation.clock import SystemClock
    from headwater.pipelines.file.loader import load_given
    from headwater.pipelines.preview.plan import plan_of
    from headwater.pipelines.preview.sample import sample_of
    from headwater.pipelines.terminal.log_place import log_as_found

    data: list[dict[str, Any]] = []
    lines: list[str] = []
    failures = 0
    for loaded in load_given(output, path, data=place):
        async with log_as_found(loaded) as log:
            found = await plan_of(loaded, log, clock=SystemClock())
        result = plan_data(found)
        lines += plan_lines(found)
        failures += len({each.table for each in found.failures})
        if sample is not None:
            samples = await sample_of(loaded, rows=sample, clock=SystemClock())
            result["samples"] = [asdict(each) for each in samples]
            lines += [line for each in samples for line in sample_lines(each)]
        data.append(result)
    if failures:
        raise DifferencesFound(
            f"{format_count(failures, 'table')} cannot be planned", data=data, lines=lines
        )
    output.result(data, lines)


def plan_data(found: "Plan") -> dict[str, Any]:
    return asdict(found) | {"statements": dict(found.statements), "moves": dict(found.moves)}


def plan_lines(found: "Plan") -> list[str]:
    topics = [
        (
            each.topic,
            each.table,
            ", ".join(each.key) or "none",
            each.partitions,
            each.cleanup,
            "new" if each.is_new else "there",
        )
        for each in found.topics
    ]
    lines = [f"PIPELINE {found.pipeline}   {format_count(len(topics), 'topic')}"]
    lines += table(("TOPIC", "TABLE", "KEY", "PARTITIONS", "CLEANUP", "STATE"), topics)
    if found.at_source:
        lines += ["", "SOURCE"] + [f"  {line}" for line in found.at_source]
    failed = {failure.where for failure in found.failures}
    for sink, statements in found.statements.items():
        is_idle = not statements and sink not in failed
        lines += ["", f"SINK {sink}" + ("   nothing to create or change" if is_idle else "")]
        lines += [f"  {line}" for each in statements for line in each.splitlines()]
    for (where, problem), tables in _tables_by_failure(found).items():
        lines += ["", f"{', '.join(tables)} cannot be planned in {where}:"]
        lines += [f"  {line.strip()}" for line in problem.splitlines()]
    if found.differences:
        lines += ["", "DIFFERENCES from what the log holds"]
        lines += [f"  {_difference_line(each)}" for each in found.differences]
    if found.moves:
        lines += ["", "headwater run FILE --migrate fills new topics from those that are there:"]
        lines += [f"  {topic} -> {new}" for topic, new in found.moves.items()]
        lines += [
            "  the source waits meanwhile; former topics stay until "
            f"headwater drop {found.pipeline} --generations"
        ]
    if any(each.what.startswith(HIDING) for each in found.differences if not each.hindrance):
        lines += [
            "  targets keep what they hold until their tables are rebuilt: "
            f"headwater rebuild {found.pipeline}/TABLE --swap"
        ]
    return [*lines, *(f"note: {remark}" for remark in found.remarks)]


def _tables_by_failure(found: "Plan") -> dict[tuple[str, str], list[str]]:
    """Groups tables by failure, so that an unreachable target is reported once."""
    tables: dict[tuple[str, str], list[str]] = {}
    for failure in found.failures:
        tables.setdefault((failure.where, failure.problem), []).append(failure.table)
    return tables


def _difference_line(each: "Difference") -> str:
    line = f"{each.topic}: {each.what}: {each.found} -> {each.wanted}"
    if each.hindrance:
        return f"{line}   cannot be made of the old records: {each.hindrance}"
    return f"{line}   cannot share a topic with the old records" if each.needs_migration else line


def sample_lines(sample: "SampledRows") -> list[str]:
    lines = ["", f"SAMPLE {sample.table}"]
    lines += [f"  before  {_row_text(row)}" for row in sample.before]
    return lines + [f"  after   {target}: {_row_text(row)}" for target, row in sample.after]


def _row_text(row: dict[str, Any]) -> str:
    return printable("  ".join(f"{name}={value}" for name, value in row.items()))
