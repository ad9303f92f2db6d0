"""`headwater pause`: stops a pipeline, or one of its tables, where it is until it is resumed."""

from pathlib import Path

import click

from headwater.pipelines.terminal.control_writer import TARGET, wish_state
from headwater.pipelines.terminal.log_address import LogAddress, log_options
from headwater.pipelines.terminal.output import Output, shared_options
from headwater.pipelines.terminal.signals import run_until_signal


@click.command()
@TARGET
@log_options
@shared_options
@click.pass_obj
def pause(output: Output, target: str, data: Path | None, bootstrap: str | None) -> None:
    """Pause PIPELINE or PIPELINE/TABLE.

    A paused pipeline neither reads its source nor writes to its targets; a paused table goes on
    into the log, and waits there for its targets. It stays so over restarts, until `headwater
    resume`. Mind that a source keeps what is not read: a database its write-ahead log.
    """
    said = run_until_signal(wish_state(LogAddress(data, bootstrap), target, is_paused=True))
    output.result(said, [f"{target} is to pause; headwater resume {target} lets it go on"])
