"""`headwater verify`: compares source, log and targets at one position, and repairs."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from headwater.core_log.foundation.errors import ConfigError
from headwater.pipelines.terminal.control_writer import (
    TARGET,
    check_pipeline,
    running_pipelines,
    split_target,
)
from headwater.pipelines.terminal.log_address import LogAddress, log_options
from headwater.pipelines.terminal.output import (
    DependencyMissing,
    DifferencesFound,
    Output,
    format_count,
    printable,
    shared_options,
    table,
)
from headwater.pipelines.terminal.signals import run_until_signal

if TYPE_CHECKING:
    from headwater.pipelines.time_travel.verify.result import TableVerdict


@click.command()
@TARGET
@click.option(
    "--against",
    type=click.Choice(["source", "log", "table"]),
    help="Compare only this with what the pipeline says: the source with the log, the log with the "
    "targets (the source is not touched), or a target's tables with the log.  "
    "[default: source and targets with the log]",
)
@click.option("--sink", metavar="NAME", help="Only this sink.")
@click.option("--repair", is_flag=True, help="Repair differences, and compare again.")
@log_options
@shared_options
@click.pass_obj
def verify(
    output: Output,
    target: str,
    against: str | None,
    sink: str | None,
    repair: bool,
    address: LogAddress,
) -> None:
    """Compare the source, the log and the targets of PIPELINE, or of one of its TABLEs.

    Each side is read at one position while the pipeline continues: the source at a snapshot, the
    log at that position, and each target at its own offsets. Rows pass the pipeline's own
    transforms and value format. Differing keys are named, and the exit code is then 4, as for
    tables that cannot be compared; all others are compared. With --repair rows of a target are
    rewritten from the log, and rows of the log are read again from the source.
    """
    verdicts = run_until_signal(_verify(output, address, target, against, sink, repair))
    facts = {"pipeline": split_target(target)[0], "tables": [facts_of(each) for each in verdicts]}
    lines = list(_lines(verdicts))
    if not verdicts:
        raise DifferencesFound(
            "the log has no rows of this pipeline that could be compared with a source or a target",
            data=facts,
            lines=[],
            hint="headwater status says what runs",
        )
    if any(each.compared.differing for each in verdicts):
        differing = sum(each.compared.differing for each in verdicts)
        raise DifferencesFound(
            f"{format_count(differing, 'key')} differ" + ("s" if differing == 1 else ""),
            data=facts,
            lines=lines,
            hint="" if repair else f"headwater verify {target} --repair repairs them",
        )
    failed = sum(each.is_failed for each in verdicts)
    if failed:
        raise DifferencesFound(
            f"not everything could be compared: {format_count(failed, 'comparison')} failed",
            data=facts,
            lines=lines,
        )
    if any(each.problem for each in verdicts):
        raise DependencyMissing("some systems could not be reached", data=facts, lines=lines)
    output.result(facts, lines)


async def _verify(
    output: Output,
    address: LogAddress,
    target: str,
    against: str | None,
    sink: str | None,
    repair: bool,
) -> "Sequence[TableVerdict]":
    from headwater.core_log.foundation.clock import SystemClock
    from headwater.pipelines.journal.audit import audit
    from headwater.pipelines.time_travel.verify.result import ComparedSides
    from headwater.pipelines.time_travel.verify.schedule import remember
    from headwater.pipelines.time_travel.verify.table_selection import subject_of, subjects_of
    from headwater.pipelines.time_travel.verify.verify import Verifier

    pipeline, given = split_target(target)
    loaded = address.load_named(output, pipeline, known="source and targets are")
    if sink is not None and sink not in {part.name for part in loaded.sinks}:
        raise ConfigError(
            "the pipeline does not have this sink",
            hint="known sinks: " + (", ".join(part.name for part in loaded.sinks) or "none"),
            sink=sink,
        )
    running = await running_pipelines(address)
    async with address.open_or_own() as log:
        await check_pipeline(log, pipeline, running)
        subjects = await subjects_of(loaded, log)
        if given:
            subjects = [subject_of(subjects, given, pipeline=pipeline)]
        verifier = Verifier(
            loaded, log, clock=SystemClock(), is_running=pipeline in running, note=output.note
        )
        sides = ComparedSides(
            source=against in (None, "source"),
            targets=against in (None, "log", "table"),
            only=sink,
        )
        options = {"against": against, "sink": sink, "repair": repair}
        async with audit(log, "verify", target, options) as outcome:
            verdicts = await verifier.verify(subjects, sides, repairs=repair, is_whole=not given)
            await remember(log, pipeline, verdicts, clock=SystemClock())
            differing = sum(each.compared.differing for each in verdicts)
            outcome.problem = f"{format_count(differing, 'key')} differ" if differing else ""
        return verdicts


def facts_of(verdict: "TableVerdict") -> dict[str, Any]:
    from headwater.pipelines.terminal.record_lines import to_json_value

    compared = verdict.compared
    return {
        "table": str(verdict.subject.target),
        "side": verdict.side,
        "equal": verdict.is_equal,
        "differing": compared.differing,
        "log_rows": compared.log_rows,
        "rows": compared.rows,
        "problems": {kind.name.lower(): count for kind, count in compared.counts.items() if count},
        "keys": [
            {
                "key": to_json_value(each["key"]),
                "problem": each["problem"],
                "log": _texts(each["log"]),
                "there": _texts(each["there"]),
            }
            for each in verdict.named
        ],
        "at": verdict.cut_point.meant,
        "behind": verdict.behind,
        "offsets": {
            f"{topic}-{number}": end for (topic, number), end in verdict.cut_point.ends.items()
        },
        "left_out": sorted(verdict.left_out),
        "problem": verdict.problem or None,
        "unrepaired": verdict.unrepaired or None,
        "unread": [
            {"topic": topic, "partition": partition, "offset": offset}
            for (topic, partition), offset in verdict.unread
        ],
        "incomparable": verdict.incomparable.count,
        "incomparable_keys": [to_json_value(each) for each in verdict.incomparable.named],
        "dead_letters": [
            {"topic": topic, "partition": partition, "offset": offset}
            for (topic, partition), offset in verdict.dead
        ],
        "repaired": verdict.repaired,
        "took_ms": verdict.took_ms,
    }


VALUE_LETTERS_MAX = 1_000


def _texts(row: Mapping[str, Any] | None) -> dict[str, str | None] | None:
    """Returns the values as text, which no reader rounds; a long one is cut."""
    from headwater.pipelines.terminal.record_lines import to_json_value

    if row is None:
        return None
    found = dict[str, str | None]()
    for name, value in row.items():
        shown = to_json_value(value)
        if shown is None:
            found[name] = None
            continue
        text = shown if isinstance(shown, str) else json.dumps(shown, default=str)
        is_long = len(text) > VALUE_LETTERS_MAX
        found[name] = f"{text[:VALUE_LETTERS_MAX]}…" if is_long else text
    return found


def _other_columns(named: Mapping[str, Any]) -> str:
    """Returns the columns in which both sides of a key differ."""
    ours, theirs = _texts(named["log"]), _texts(named["there"])
    if ours is None or theirs is None:
        return ""
    found = [printable(name) for name in ours if ours[name] != theirs.get(name)]
    return f" in {', '.join(found)}" if found else ""


def _lines(verdicts: "Sequence[TableVerdict]") -> Iterator[str]:
    if not verdicts:
        return
    head = ("TABLE", "COMPARED", "AT", "ROWS", "IN THE LOG", "BEHIND", "DIFFERING")
    rows = [
        (
            printable(str(each.subject.target)),
            printable(each.side),
            "-" if each.problem else printable(each.cut_point.meant),
            None if each.problem else each.compared.rows,
            None if each.problem else each.compared.log_rows,
            None if each.problem or not each.behind else each.behind,
            _find(each),
        )
        for each in verdicts
    ]
    yield from table(head, rows)
    for each in verdicts:
        yield from _details(each)


def _find(verdict: "TableVerdict") -> int | str:
    """Returns the result in one or two words, with the columns left out."""
    if verdict.is_reread:
        return "being read again"
    if verdict.problem:
        return "not compared"
    if verdict.compared.differing:
        return verdict.compared.differing
    if verdict.unread:
        return "not all compared"
    if verdict.dead:
        return f"equal but for {format_count(len(verdict.dead), 'dead letter')}"
    if verdict.left_out:
        left_out = ", ".join(map(printable, sorted(verdict.left_out)))
        return f"equal but for {left_out}, not compared"
    return "equal"


def _details(verdict: "TableVerdict") -> Iterator[str]:
    from headwater.pipelines.terminal.record_lines import row_line

    name = f"{printable(str(verdict.subject.target))} in {printable(verdict.side)}"
    if verdict.problem:
        yield f"{name}: {verdict.problem}"
    for line in verdict.unread_lines():
        yield f"{name}: {printable(line)}"
    for key in verdict.incomparable.named:
        yield f"{name}: {row_line(key)} cannot be compared"
    if verdict.repaired:
        yield f"{name}: {format_count(verdict.repaired, 'row')} repaired"
    if verdict.unrepaired:
        yield f"{name}: not repaired: {verdict.unrepaired}"
    if verdict.left_out and (verdict.compared.differing or verdict.unread):
        left_out = ", ".join(map(printable, sorted(verdict.left_out)))
        yield f"{name}: columns that are not compared: {left_out}"
    for each in verdict.named:
        yield f"{name}: {row_line(each['key'] or {})} {each['problem']}{_other_columns(each)}"
    more = verdict.compared.differing - len(verdict.named)
    if more > 0:
        yield f"{name}: and {format_count(more, 'more key')}"
