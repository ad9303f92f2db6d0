"""`headwater status`: shows running pipelines, their lag, their snapshots and their problems."""

import asyncio
import shutil
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from headwater.core_log.foundation.errors import ConfigError
from headwater.pipelines.terminal.log_address import LogAddress, log_options
from headwater.pipelines.terminal.output import Output, envelope, shared_options
from headwater.pipelines.terminal.signals import run_until_signal

if TYPE_CHECKING:
    from headwater.pipelines.running.owner_client import LockHolder

WATCH_MS = 2_000
PIPED_WIDTH = 120
TABLES_SHOWN = 20


@click.command()
@click.argument("pipeline", required=False)
@click.option("--watch", is_flag=True, help="Update the display until Ctrl-C.")
@click.option(
    "--positions",
    is_flag=True,
    help="Show positions and offsets, and the source's time at each.",
)
@click.option("--all", "shows_all", is_flag=True, help="Show every table.")
@log_options
@shared_options
@click.pass_obj
def status(
    output: Output,
    pipeline: str | None,
    watch: bool,
    positions: bool,
    shows_all: bool,
    address: LogAddress,
) -> None:
    """Show the running pipelines, or only PIPELINE.

    One screen shows for each whether it is running, how far behind it is, how much of the snapshot
    is left, and what is quarantined. If there are more than 30 tables, they are counted by state,
    and the 20 most urgent are shown; --all shows the rest. --json prints the fields of
    docs/status.md.
    """
    owner = address.owner()
    if watch:
        run_until_signal(_watch(output, owner, pipeline, shows_all=shows_all))
    found = choose_pipeline(owner.status(), pipeline)
    if positions:
        found = {**found, "positions": run_until_signal(_positions(output, address, found))}
    output.result(found, _lines(output, found, with_positions=positions, shows_all=shows_all))


def choose_pipeline(snapshot: Mapping[str, Any], pipeline: str | None) -> Mapping[str, Any]:
    if pipeline is None:
        return snapshot
    found = snapshot["pipelines"]
    if pipeline not in found:
        raise ConfigError(
            "the pipeline is not running here",
            hint=f"running pipelines: {', '.join(found) or 'none'}",
            pipeline=pipeline,
        )
    return {**snapshot, "pipelines": {pipeline: found[pipeline]}}


def _lines(
    output: Output, snapshot: Mapping[str, Any], *, with_positions: bool, shows_all: bool
) -> Iterator[str]:
    from headwater.pipelines.watching.progress import speaks_unicode
    from headwater.pipelines.watching.status_screen import SUMMED_FROM, screen

    width = shutil.get_terminal_size((PIPED_WIDTH, 24)).columns
    most = max((len(each["tables"]) for each in snapshot["pipelines"].values()), default=0)
    for line in screen(
        snapshot,
        width=width,
        tables_max=None if shows_all or most <= SUMMED_FROM else TABLES_SHOWN,
        has_unicode=speaks_unicode(sys.stdout.encoding),
    ):
        yield "".join(
            output.style(span.text, fg=span.style) if _is_color(span.style) else span.text
            for span in line
        ).rstrip()
    if with_positions:
        from headwater.pipelines.watching.positions_view import position_lines

        yield from position_lines(snapshot)


def _is_color(style: str) -> bool:
    return style not in ("", "bold", "dim")


async def _positions(
    output: Output, address: LogAddress, snapshot: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns positions by pipeline; versions of tables only if a pipeline file names the
    targets."""
    from headwater.core_log.foundation.clock import SystemClock
    from headwater.pipelines.loops.assembly import make_sink
    from headwater.pipelines.watching.positions_view import (
        offsets_meant,
        sources_of_targets,
        versions_meant,
    )

    loaded = {each.name: each for each in address.load(output)}
    found: dict[str, Any] = {}
    async with address.open() as log:
        for name, pipeline in snapshot["pipelines"].items():
            tasks = {
                task: facts["positions"]
                for task, facts in pipeline["tasks"].items()
                if task != "source"
            }
            found[name] = {"sinks": await offsets_meant(log, name, tasks)}
            if name not in loaded:
                continue
            sinks = {
                part.name: make_sink(loaded[name], part, clock=SystemClock())
                for part in loaded[name].sinks
            }
            try:
                found[name]["versions"] = await versions_meant(loaded[name], log, sinks)
                found[name]["sources"] = await sources_of_targets(loaded[name], log)
            finally:
                for sink in sinks.values():
                    await sink.close()
    return found


async def _watch(
    output: Output, owner: "LockHolder", pipeline: str | None, *, shows_all: bool
) -> None:
    """Updates a terminal in place; otherwise prints one answer after the other."""
    from headwater.pipelines.watching.progress import ProgressView, is_drawable

    async def look() -> Mapping[str, Any]:
        return choose_pipeline(await asyncio.to_thread(owner.status), pipeline)

    if is_drawable(sys.stdout) and not output.as_json:
        await ProgressView(look, has_color=output.has_color).watch(sys.stdout)
    while True:
        found = await look()
        if output.as_json:
            output.write(envelope(found))
        else:
            lines = _lines(output, found, with_positions=False, shows_all=shows_all)
            output.result(found, [*lines, ""])
        await asyncio.sleep(WATCH_MS / 1_000)
