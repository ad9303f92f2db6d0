"""`headwater replay`: delivers a range of a table's history from the log to another target."""

import os
import time
from typing import TYPE_CHECKING, Any

import click

from headwater.core_log.foundation.clock import unix_ms
from headwater.core_log.foundation.errors import ConfigError
from headwater.pipelines.terminal.control_writer import (
    TARGET,
    check_pipeline,
    running_pipelines,
    split_target,
)
from headwater.pipelines.terminal.log_address import LogAddress, log_options
from headwater.pipelines.terminal.output import Output, shared_options
from headwater.pipelines.terminal.quantities import duration_text
from headwater.pipelines.terminal.signals import run_until_signal
from headwater.pipelines.terminal.starting_points import LATEST

if TYPE_CHECKING:
    from headwater.pipelines.reports import Report
    from headwater.pipelines.time_travel.history.cut_points import Ends
    from headwater.pipelines.time_travel.rebuild.replay import Replay


@click.command()
@TARGET
@click.option(
    "--from",
    "start",
    metavar="MOMENT",
    default="earliest",
    show_default=True,
    help="Where to begin: earliest, a time or how long ago (as committed at the source), a "
    "position of the source (0/16B3748), or an offset of the log.",
)
@click.option(
    "--to", "end", metavar="MOMENT", default="latest", show_default=True, help="Where to end."
)
@click.option(
    "--into",
    metavar="SINK",
    required=True,
    help="A type of sink, or its keys as in a pipeline file: '{type: files, path: ./out}'.",
)
@log_options
@shared_options
@click.pass_obj
def replay(
    output: Output,
    target: str,
    start: str,
    end: str,
    into: str,
    address: LogAddress,
) -> None:
    """Deliver the changes of PIPELINE, or of one TABLE, in the log to another sink.

    Changes pass the pipeline's transforms and routes as they are in the file now, and end at --to.
    The source and the pipeline's own sinks are not affected. An interrupted replay continues at its
    target's offsets.
    """
    result = run_until_signal(_replay(output, address, target, start, end, into))
    tables = ", ".join(result["tables"])
    output.note(f"{result['changes']:,} changes of {tables} replayed")
    output.result(result, [])


async def _replay(
    output: Output, address: LogAddress, target: str, start: str, end: str, into: str
) -> dict[str, Any]:
    from headwater.core_log.foundation.clock import SystemClock
    from headwater.pipelines.file.loaded_parts import sink_of_words
    from headwater.pipelines.journal.audit import audit
    from headwater.pipelines.loops.assembly import make_sink
    from headwater.pipelines.time_travel.history.cut_points import (
        begun_at,
        check_order,
        parse_cut_point,
    )
    from headwater.pipelines.time_travel.rebuild.replay import replay
    from headwater.pipelines.time_travel.verify.table_selection import subject_of, subjects_of

    pipeline, given = split_target(target)
    loaded = address.load_named(output, pipeline, known="the transforms are")
    part, redaction = sink_of_words(
        into, taken={each.name for each in loaded.sinks}, environment=dict(os.environ)
    )
    if part.kind == "console" and output.as_json:
        raise ConfigError(
            "the console's rows go where --json puts its envelope",
            hint="leave out --json; rows as JSON: --into '{type: console, format: json}'",
        )
    scrub = output.scrub
    output.scrub = lambda text: redaction.scrub(scrub(text))
    running = await running_pipelines(address)
    async with address.open_or_own() as log:
        await check_pipeline(log, pipeline, running)
        subjects = await subjects_of(loaded, log)
        if given:
            subjects = [subject_of(subjects, given, pipeline=pipeline)]
        partitions = [each for subject in subjects for each in await subject.partitions(log)]
        first = await begun_at(log, pipeline, start, partitions, now_ms=unix_ms(), note=output.note)
        last = await parse_cut_point(log, pipeline, end, partitions, now_ms=unix_ms())
        check_order(first, last.ends)
        clock = SystemClock()
        sink = make_sink(loaded, part, clock=clock)
        try:
            async with audit(log, "replay", target, {"into": part.kind}):
                changes = await replay(
                    loaded,
                    part,
                    sink,
                    log,
                    start=first,
                    end={each: max(to, first[each]) for each, to in last.ends.items()},
                    clock=clock,
                    as_of=None if end == LATEST else last,
                    reporter=ReplayProgress(output),
                )
        finally:
            await sink.close()
    return {
        "pipeline": pipeline,
        "tables": [str(subject.target) for subject in subjects],
        "into": part.kind,
        "changes": changes,
        "to": last.meant,
    }


EVERY_S = 2.0


class ReplayProgress:
    """Call it with every report."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._began_s = self._reported_s = time.monotonic()

    def __call__(self, replaying: "Replay") -> None:
        now_s = time.monotonic()
        if now_s - self._reported_s < EVERY_S or replaying.offsets >= replaying.offsets_wanted:
            return
        self._reported_s = now_s
        left = replaying.offsets_wanted - replaying.offsets
        left_ms = round((now_s - self._began_s) * 1_000 * left / max(replaying.offsets, 1))
        share = replaying.offsets / replaying.offsets_wanted
        self._output.note(
            f"{replaying.changes:,} changes, {share:.0%}, {duration_text(left_ms)} left"
        )


class RebuildProgress:
    """The same from what a delivery reports, up to where the log ended when it began."""

    def __init__(self, output: Output, ends: "Ends") -> None:
        self._progress = ReplayProgress(output)
        self._ends = {f"{topic}-{number}": end for (topic, number), end in ends.items()}
        self._reached = dict.fromkeys(self._ends, 0)
        self._changes = 0

    def __call__(self, report: "Report") -> None:
        from headwater.pipelines.reports import OffsetsApplied, RowsMoved
        from headwater.pipelines.time_travel.rebuild.replay import Replay

        if isinstance(report, RowsMoved):
            self._changes += report.rows
        elif isinstance(report, OffsetsApplied):
            for part, at in report.positions.items():
                if part in self._ends:
                    self._reached[part] = min(int(at), self._ends[part])
            wanted = sum(self._ends.values())
            self._progress(Replay(self._changes, sum(self._reached.values()), wanted))
