"""`headwater rebuild`: makes a table of a target again from the log, beside the live one."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from headwater.core_log.foundation.clock import unix_ms
from headwater.core_log.foundation.errors import ConfigError
from headwater.pipelines.commands.replay import RebuildProgress, ReplayProgress
from headwater.pipelines.terminal.control_writer import running_pipelines, split_target
from headwater.pipelines.terminal.log_address import LogAddress, log_options
from headwater.pipelines.terminal.output import DifferencesFound, Output, printable, shared_options
from headwater.pipelines.terminal.signals import run_until_signal

if TYPE_CHECKING:
    from headwater.pipelines.time_travel.history.cut_points import CutPoint
    from headwater.pipelines.time_travel.rebuild.rebuild import RebuildResult, TableRebuild


class _Options(NamedTuple):
    target: str
    sink: str | None
    as_of: str | None
    into: str | None
    verify: bool
    swap: bool
    dry_run: bool


@click.command()
@click.argument("target", metavar="PIPELINE/TABLE")
@click.option("--sink", metavar="NAME", help="The sink, if the pipeline has several.")
@click.option(
    "--as-of",
    metavar="MOMENT",
    help="The table as it was then: a time or how long ago (as committed at the source), a place "
    "in the source (0/16B3748), or an offset of the log (42, or 0:42,1:7).",
)
@click.option(
    "--into",
    metavar="PLACE",
    help="Another target for the copy, instead of beside the live table.",
)
@click.option("--verify", is_flag=True, help="Compare the copy with a second read of the log.")
@click.option("--swap", is_flag=True, help="Replace the live table by the copy at the end.")
@click.option("--dry-run", is_flag=True, help="Show the steps without doing them.")
@log_options
@shared_options
@click.pass_obj
def rebuild(
    output: Output,
    target: str,
    sink: str | None,
    as_of: str | None,
    into: str | None,
    verify: bool,
    swap: bool,
    dry_run: bool,
    address: LogAddress,
) -> None:
    """Fill a second copy of TABLE from the log, while the live one continues.

    The source is not read. With --swap the copy replaces the live table in one transaction of the
    target, and the old one is kept beside it. Without --swap it stays a copy, and the next rebuild
    continues it, unless the rules of its rows have changed since.

    With --as-of and --swap the table stays paused at that moment; `headwater resume` lets it catch
    up. A moment before compaction's reach is refused, with the oldest possible one.
    """
    if swap and into:
        raise ConfigError(
            "a copy in another target cannot replace the live table",
            hint="leave out --swap or --into",
        )
    options = _Options(target, sink, as_of, into, verify, swap, dry_run)
    result, lines = run_until_signal(_rebuild(output, address, options))
    if result.get("verified") is False:
        raise DifferencesFound("the copy differs from the log", data=result, lines=lines)
    output.result(result, lines)


async def _rebuild(
    output: Output, address: LogAddress, options: _Options
) -> tuple[dict[str, Any], list[str]]:
    from headwater.core_log.embedded import EmbeddedLog
    from headwater.core_log.foundation.clock import SystemClock
    from headwater.pipelines.file.loaded_parts import sink_elsewhere
    from headwater.pipelines.journal.audit import audit
    from headwater.pipelines.journal.replacements import check_not_reread
    from headwater.pipelines.time_travel.history.cut_points import parse_cut_point
    from headwater.pipelines.time_travel.rebuild.rebuild import (
        RebuildOptions,
        TableRebuild,
        find_rebuilding,
        nobody_begins,
        rebuild,
        rebuild_elsewhere,
        rebuildable,
    )

    pipeline, table = split_target(options.target)
    if not table:
        raise ConfigError("the argument does not name one table", hint=f"name it: {pipeline}/TABLE")
    loaded = address.load_named(output, pipeline, known="the targets are")

    async def is_running() -> bool:
        return pipeline in await running_pipelines(address)

    is_running_now = await is_running()
    async with address.open_or_own() as log:
        rebuilding = await find_rebuilding(loaded, log, table=table, sink=options.sink)
        if options.into is not None:
            part = sink_elsewhere(rebuilding.part, options.into)
            rebuilding = TableRebuild(loaded, part, rebuilding.subject)
        if options.as_of is None:
            tables = [stored.schema.table for stored in rebuilding.sources]
            await check_not_reread(log, pipeline, tables)
        partitions = await rebuilding.subject.partitions(log)
        text = options.as_of or "latest"
        cut_point = await parse_cut_point(log, pipeline, text, partitions, now_ms=unix_ms())
        if options.dry_run:
            if options.into is None:
                await rebuildable(rebuilding, clock=SystemClock()).close()
            return _plan(rebuilding, options, cut_point)
        as_of = cut_point if options.as_of else None
        wanted = RebuildOptions(swaps=options.swap, verifies=options.verify, as_of=as_of)
        clock, progress = SystemClock(), ReplayProgress(output)
        told = {"sink": options.sink, "as_of": options.as_of, "swap": options.swap}
        async with audit(log, "rebuild", options.target, told):
            if options.into is not None:
                rebuilt = await rebuild_elsewhere(
                    rebuilding, log, wanted, clock=clock, replay_reporter=progress
                )
            else:
                rebuilt = await rebuild(
                    rebuilding,
                    log,
                    wanted,
                    is_running=is_running_now,
                    runs_by_now=nobody_begins if isinstance(log, EmbeddedLog) else is_running,
                    clock=clock,
                    reporter=RebuildProgress(output, cut_point.ends),
                    replay_reporter=progress,
                )
    facts = _facts(rebuilding, options, cut_point) | {
        "rows": rebuilt.rows,
        "swapped": bool(rebuilt.kept),
        "kept": rebuilt.kept or None,
        "paused": rebuilt.is_paused,
        "verified": None if rebuilt.verdict is None else rebuilt.verdict.is_as_told,
    }
    return facts, list(_lines(rebuilding, options, rebuilt, facts))


def _facts(rebuilding: "TableRebuild", options: _Options, cut_point: "CutPoint") -> dict[str, Any]:
    return {
        "pipeline": rebuilding.loaded.name,
        "sink": rebuilding.part.name,
        "table": str(rebuilding.target),
        "as_of": cut_point.meant,
        "offsets": {f"{topic}-{number}": end for (topic, number), end in cut_point.ends.items()},
        "into": options.into,
    }


def _plan(
    rebuilding: "TableRebuild", options: _Options, cut_point: "CutPoint"
) -> tuple[dict[str, Any], list[str]]:
    """Prints the steps; the moment is known to be possible."""
    table, sink = printable(str(rebuilding.target)), printable(rebuilding.part.name)
    place = "another place" if options.into else f"a copy beside it in {sink}"
    lines = [
        f"read {printable(topic)}-{number} up to offset {end:,}"
        for (topic, number), end in cut_point.ends.items()
    ]
    lines.append(f"fill {place} with {table} as of {cut_point.meant}")
    lines += ["compare the copy with the log, read a second time"] if options.verify else []
    if options.swap:
        lines.append("pause the table, swap the copy in, and keep the old one beside it")
        lines += ["leave the table paused, as it was then"] if options.as_of else []
    return _facts(rebuilding, options, cut_point) | {"dry_run": True}, lines


def _lines(
    rebuilding: "TableRebuild",
    options: _Options,
    rebuilt: "RebuildResult",
    facts: Mapping[str, Any],
) -> Iterator[str]:
    from headwater.pipelines.terminal.record_lines import row_line

    where = "into another place" if options.into else f"into a copy of {facts['table']}"
    when = f" as of {facts['as_of']}" if options.as_of else ""
    yield f"{rebuilt.rows:,} changes replayed {where}{when}"
    verdict = rebuilt.verdict
    if verdict is not None and verdict.is_as_told:
        yield f"the copy's {verdict.compared.rows:,} rows are equal to the log's"
        yield from map(printable, verdict.unread_lines())
    elif verdict is not None:
        yield verdict.problem or f"{verdict.compared.differing:,} keys differ from the log"
        for each in verdict.named:
            yield f"{row_line(each['key'] or {})} {each['problem']}"
        return
    if rebuilt.kept:
        yield f"the copy is the live table now; the old table is {rebuilt.kept}"
    elif not options.into:
        yield f"headwater rebuild {options.target} --swap lets it take the live table's place"
    if rebuilt.is_paused:
        yield f"the table is paused as it was then; headwater resume {options.target} lets it go on"
