"""`headwater maintain`: compacts and cleans tables of a target that are kept in files."""

from typing import TYPE_CHECKING

import click

from headwater.core_log.foundation.errors import ConfigError
from headwater.pipelines.terminal.control_writer import TARGET, split_target
from headwater.pipelines.terminal.log_address import LogAddress, log_options
from headwater.pipelines.terminal.output import (
    DifferencesFound,
    Output,
    format_count,
    shared_options,
)
from headwater.pipelines.terminal.signals import run_until_signal

if TYPE_CHECKING:
    from headwater.pipelines.file.loader import LoadedPipeline


@click.command()
@TARGET
@click.option("--sink", metavar="NAME", help="Only this sink.")
@log_options
@shared_options
@click.pass_obj
def maintain(output: Output, target: str, sink: str | None, address: LogAddress) -> None:
    """Compact small files, and remove files that no version of a table needs.

    It may run beside the pipeline, which retries if a commit of this command came first. Old files
    stay as long as the sink's `maintenance: {retain: ...}` says.
    """
    pipeline, table = split_target(target)
    loaded = address.load_named(output, pipeline, known="the targets are")
    result, failures = run_until_signal(_maintain(loaded, table, sink, address))
    data = {"pipeline": pipeline, "done": result, "failed": failures}
    if failures:
        lines = [*result, *(f"{name}: {why}" for name, why in failures.items())]
        problem = f"{format_count(len(failures), 'table')} could not be maintained"
        raise DifferencesFound(problem, data=data, lines=lines)
    output.result(data, result or ["nothing was to be done"])


async def _maintain(
    loaded: "LoadedPipeline", table: str, name: str | None, address: LogAddress
) -> tuple[list[str], dict[str, str]]:
    from headwater.core_log.foundation.clock import SystemClock
    from headwater.pipelines.journal.audit import audit
    from headwater.pipelines.loops.assembly import make_sink
    from headwater.sinks.sink import Maintainable, MaintenanceFailed

    parts = [part for part in loaded.sinks if name in (None, part.name)]
    sinks = [make_sink(loaded, part, clock=SystemClock()) for part in parts]
    able = [sink for sink in sinks if isinstance(sink, Maintainable)]
    result: list[str] = []
    failures: dict[str, str] = {}
    try:
        if not able:
            raise ConfigError(
                "no sink of the pipeline has tables to maintain",
                hint="use it for sinks of `type: spark`",
                pipeline=loaded.name,
                sinks=tuple(part.name for part in loaded.sinks),
            )
        target = f"{loaded.name}/{table}" if table else loaded.name
        async with (
            address.open_or_own() as log,
            audit(log, "maintain", target, {"sink": name}) as outcome,
        ):
            for sink in able:
                try:
                    result += await sink.maintain([table] if table else [])
                except MaintenanceFailed as error:
                    result += error.done
                    failures |= error.failures
            outcome.problem = "; ".join(failures)
    finally:
        for each in sinks:
            await each.close()
    return result, failures
