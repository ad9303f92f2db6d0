"""`headwater rebuild`: a table of a target made anew from the log, beside the live one."""

from pathlib import Path
from typing import Any

import click

from core_log.errors import ConfigError
from pipelines.terminal.log_address import LogAddress, log_options
from pipelines.terminal.output import Output, shared_options
from pipelines.terminal.signals import run_until_signal
from pipelines.terminal.table_names import split_target
from pipelines.terminal.wishing import running_pipelines


@click.command()
@click.argument("target", metavar="PIPELINE/TABLE")
@click.option("--sink", metavar="NAME", help="Which sink, where the pipeline has several.")
@click.option("--swap", is_flag=True, help="Put the copy in the live table's place at the end.")
@log_options
@shared_options
@click.pass_obj
def rebuild(
    output: Output,
    target: str,
    sink: str | None,
    swap: bool,
    data: Path | None,
    bootstrap: str | None,
) -> None:
    """Fill a second copy of TABLE from the log, while the live one goes on.

    The source is not touched. With --swap the copy then takes the live table's place in one
    transaction of the target, and the old one is kept beside it; without, it stays a copy, and the
    next rebuild goes on with it.
    """
    said = run_until_signal(_rebuild(output, LogAddress(data, bootstrap), target, sink, swap))
    lines = [f"{said['rows']:,} changes replayed into a copy of {said['table']}"]
    if swap:
        lines.append(f"it is the live table now; the old one is {said['kept']}")
    else:
        lines.append(f"headwater rebuild {target} --swap lets it take the live table's place")
    output.result(said, lines)


async def _rebuild(
    output: Output, address: LogAddress, target: str, sink: str | None, swap: bool
) -> dict[str, Any]:
    from core_log.clock import SystemClock
    from pipelines.file.given_files import load_named
    from pipelines.loops.rebuild import find_rebuilding, rebuild

    pipeline, table = split_target(target)
    if not table:
        raise ConfigError("a table is rebuilt at a time", hint=f"name it: {pipeline}/TABLE")
    if address.file is None:
        raise ConfigError(
            "only a pipeline file says where its targets are", hint="name it: -f FILE"
        )
    loaded = load_named(output, address.file, pipeline)
    is_running = pipeline in await running_pipelines(address)
    async with address.open_or_own() as log:
        rebuilding = await find_rebuilding(loaded, log, table=table, sink=sink)
        rebuilt = await rebuild(
            rebuilding,
            log,
            swaps=swap,
            is_running=is_running,
            clock=SystemClock(),
            tell=lambda _: None,
        )
    return {
        "pipeline": pipeline,
        "sink": rebuilding.part.name,
        "table": str(rebuilding.target),
        "rows": rebuilt.rows,
        "swapped": swap,
        "kept": rebuilt.kept or None,
    }
