"""`headwater offsets`: shows a pipeline's position and offsets, and changes the position."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from headwater.core_log.foundation.clock import unix_ms
from headwater.core_log.foundation.errors import ConfigError
from headwater.pipelines.terminal.control_writer import (
    check_pipeline,
    confirm,
    running_pipelines,
    yes_option,
)
from headwater.pipelines.terminal.log_address import LogAddress, log_options
from headwater.pipelines.terminal.output import (
    Output,
    format_count,
    printable,
    shared_options,
    table,
)
from headwater.pipelines.terminal.signals import run_until_signal

if TYPE_CHECKING:
    from headwater.core_log.client import KafkaLog

PIPELINE = click.argument("pipeline")
AT_REST = ("paused", "quarantined", "stopped", "done")


@click.group()
def offsets() -> None:
    """Show a pipeline's position and offsets, or change its source position."""


@offsets.command()
@PIPELINE
@log_options
@shared_options
@click.pass_obj
def show(output: Output, pipeline: str, address: LogAddress) -> None:
    """Show the position of PIPELINE's source, and the offsets of each sink.

    The source's position is the one in the log: a restart continues right behind it. A sink's
    offsets shown here are those for tools; it continues at its target's own offsets, if the target
    stores them.
    """
    found = run_until_signal(_look(address, pipeline))
    parts = [(printable(part), printable(at)) for part, at in found["source"].items()]
    lines = table(("SOURCE PART", "POSITION"), parts)
    rows = [
        (sink, each["topic"], each["partition"], each["offset"], each["end"], each["lag"])
        for sink, offsets in found["sinks"].items()
        for each in offsets
    ]
    lines += ["", *table(("SINK", "TOPIC", "PARTITION", "OFFSET", "END", "LAG"), rows)]
    output.result(found, lines)


@offsets.command("set")
@PIPELINE
@click.argument("parts", metavar="PART=POSITION...", nargs=-1, required=True)
@yes_option
@log_options
@shared_options
@click.pass_obj
def set_parts(
    output: Output,
    pipeline: str,
    parts: tuple[str, ...],
    yes: bool,
    address: LogAddress,
) -> None:
    """Set parts of the position of PIPELINE's source: for experts.

    The text is not checked: the source reads it at its next start. An earlier position brings
    changes into the log a second time; a later one skips the changes in between for ever. Topics,
    targets and other parts stay. The pipeline must be stopped or paused.
    """
    given = dict(map(_parse, parts))
    confirm(f"{pipeline} would repeat or skip changes; set {', '.join(given)}?", yes=yes)
    before = run_until_signal(_move(address, pipeline, given))
    _tell(output, pipeline, before, given)


@offsets.command()
@PIPELINE
@click.option("--part", "parts", multiple=True, help="Only this part; may be repeated.")
@yes_option
@log_options
@shared_options
@click.pass_obj
def reset(
    output: Output,
    pipeline: str,
    parts: tuple[str, ...],
    yes: bool,
    address: LogAddress,
) -> None:
    """Delete the position of PIPELINE's source: its next start reads everything again.

    The rows go into the log again, and targets upsert them; rows deleted meanwhile stay in targets.
    The pipeline must be stopped or paused.
    """
    what = ", ".join(parts) or "all of its position"
    confirm(f"{pipeline} would read its source again; delete {what}?", yes=yes)
    chosen = None if not parts else dict.fromkeys(parts)
    before = run_until_signal(_move(address, pipeline, chosen))
    _tell(output, pipeline, before, dict.fromkeys(before) if chosen is None else chosen)


def _parse(text: str) -> tuple[str, str | None]:
    part, separator, position = text.partition("=")
    if not separator or not part:
        raise ConfigError("the argument is not of the form PART=POSITION", given=text)
    return part, position


async def _look(address: LogAddress, pipeline: str) -> Mapping[str, Any]:
    from headwater.pipelines.journal.commits import load_positions
    from headwater.pipelines.journal.generations import source_parts
    from headwater.pipelines.journal.inventory import GROUP_PREFIX, leavings_of

    running = await running_pipelines(address)
    async with address.open_or_own() as log:
        await check_pipeline(log, pipeline, running)
        groups = (await leavings_of(log, pipeline)).groups
        prefix = f"{GROUP_PREFIX}{pipeline}."
        return {
            "pipeline": pipeline,
            "source": source_parts(await load_positions(log, pipeline)),
            "sinks": {
                group.removeprefix(prefix): await _load_offsets(log, group) for group in groups
            },
        }


async def _load_offsets(log: "KafkaLog", group: str) -> list[dict[str, Any]]:
    from headwater.pipelines.watching.task_status import records_behind

    committed = await log.committed_offsets(group)
    shown = {each: at for each, at in committed.items() if not each.topic.startswith("__")}
    bounds = await log.bounds(shown)
    return [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "offset": offset,
            "end": bounds[partition].stable,
            "lag": records_behind(end=bounds[partition].stable, offset=offset),
        }
        for partition, offset in sorted(shown.items())
    ]


async def _move(
    address: LogAddress, pipeline: str, parts: Mapping[str, str | None] | None
) -> Mapping[str, str]:
    """Writes under the source's own name, which fences a running source; returns the former
    value."""
    from headwater.pipelines.journal.commits import (
        encode_positions,
        load_positions,
        positions_home,
    )
    from headwater.pipelines.journal.generations import is_of_source, source_parts
    from headwater.pipelines.journal.inventory import end_rereads

    running = await running_pipelines(address)
    _refuse_at_work(pipeline, running)
    async with address.open_or_own() as log:
        await check_pipeline(log, pipeline, running)
        writer = await log.writer(f"headwater.{pipeline}")
        positions = await load_positions(log, pipeline)
        before = source_parts(positions)
        chosen = dict.fromkeys(before) if parts is None else parts
        unknown = [
            part
            for part, at in chosen.items()
            if not is_of_source(part) or (at is None and part not in before)
        ]
        if unknown:
            raise ConfigError(
                "the position does not have this part",
                hint=f"headwater offsets show {pipeline}",
                part=", ".join(unknown),
            )
        ended = await end_rereads(log, positions) if parts is None else {}
        if chosen:
            async with writer.transaction() as transaction:
                await transaction.append(
                    positions_home(pipeline),
                    encode_positions(pipeline, {**chosen, **ended}, now_ms=unix_ms()),
                )
    return before


def _refuse_at_work(pipeline: str, running: Mapping[str, Any]) -> None:
    if pipeline not in running:
        return
    state = running[pipeline]["tasks"].get("source", {}).get("state", "")
    if state not in AT_REST:
        raise ConfigError(
            "the pipeline's source is running",
            hint=f"headwater pause {pipeline}",
            pipeline=pipeline,
            state=state,
        )


def _tell(
    output: Output,
    pipeline: str,
    before: Mapping[str, str],
    after: Mapping[str, str | None],
) -> None:
    changed: Sequence[dict[str, str | None]] = [
        {"part": part, "before": before.get(part), "after": position}
        for part, position in after.items()
    ]
    lines = [
        f"{printable(part)}: {printable(before.get(part) or '-')} -> {printable(position or '-')}"
        for part, position in after.items()
    ]
    output.result({"pipeline": pipeline, "parts": changed}, lines)
    output.note(f"{format_count(len(changed), 'part')} of the position of {pipeline} changed")
