"""`headwater status`: what runs, how far behind it is, what is left to read, and what is wrong."""

import asyncio
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from core_log.errors import ConfigError
from pipelines.terminal.log_address import LogAddress, log_options
from pipelines.terminal.output import Output, envelope, printable, shared_options
from pipelines.terminal.signals import run_until_signal

if TYPE_CHECKING:
    from pipelines.running.owner_client import Owner

WATCH_MS = 2_000
PIPED_WIDTH = 120


@click.command()
@click.argument("pipeline", required=False)
@click.option("--watch", is_flag=True, help="Keep showing it, until Ctrl-C.")
@click.option("--positions", is_flag=True, help="Show where each source and sink stands, too.")
@log_options
@shared_options
@click.pass_obj
def status(
    output: Output,
    pipeline: str | None,
    watch: bool,
    positions: bool,
    data: Path | None,
    bootstrap: str | None,
) -> None:
    """Show the running pipelines, or only PIPELINE.

    Answers on one screen whether it is running, how far behind it is, how much of the snapshot is
    left, and what is quarantined. With --json the fields of docs/status.md.
    """
    owner = LogAddress(data, bootstrap).owner()
    if watch:
        run_until_signal(_watch(output, owner, pipeline))
    found = chosen(owner.status(), pipeline)
    output.result(found, _lines(output, found, with_positions=positions))


def chosen(snapshot: Mapping[str, Any], pipeline: str | None) -> Mapping[str, Any]:
    """Only what was asked for."""
    if pipeline is None:
        return snapshot
    found = snapshot["pipelines"]
    if pipeline not in found:
        raise ConfigError(
            "no pipeline of that name is running here",
            hint=f"there is {', '.join(found) or 'none'}",
            pipeline=pipeline,
        )
    return {**snapshot, "pipelines": {pipeline: found[pipeline]}}


def _lines(output: Output, snapshot: Mapping[str, Any], *, with_positions: bool) -> Iterator[str]:
    from pipelines.watching.progress import speaks_unicode
    from pipelines.watching.status_screen import screen

    width = shutil.get_terminal_size((PIPED_WIDTH, 24)).columns
    for line in screen(snapshot, width=width, has_unicode=speaks_unicode(sys.stdout.encoding)):
        yield "".join(
            output.styled(span.text, fg=span.style) if _is_color(span.style) else span.text
            for span in line
        ).rstrip()
    if with_positions:
        yield from _positions(snapshot)


def _is_color(style: str) -> bool:
    return style not in ("", "bold", "dim")


def _positions(snapshot: Mapping[str, Any]) -> Iterator[str]:
    for name, pipeline in snapshot["pipelines"].items():
        for unit, facts in pipeline["units"].items():
            yield f"POSITIONS {name} {unit}"
            for part, position in facts["positions"].items():
                yield f"  {printable(part)}  {printable(position)}"


async def _watch(output: Output, owner: "Owner", pipeline: str | None) -> None:
    """On a terminal drawn in place; elsewhere one answer after the other."""
    from pipelines.watching.progress import ProgressView, is_drawable

    async def look() -> Mapping[str, Any]:
        return chosen(await asyncio.to_thread(owner.status), pipeline)

    if is_drawable(sys.stdout) and not output.as_json:
        await ProgressView(look, has_color=output.has_color).watch(sys.stdout)
    while True:
        found = await look()
        if output.as_json:
            output.write(envelope(found))
        else:
            output.result(found, [*_lines(output, found, with_positions=False), ""])
        await asyncio.sleep(WATCH_MS / 1_000)
